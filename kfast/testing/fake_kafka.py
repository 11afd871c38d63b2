"""FakeKafka: a Kafka in the process of a test."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from kfast.protocol.api_keys import ApiKey
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.releases import LATEST, RELEASES
from kfast.testing.server import BrokerServer
from kfast.types import TopicPartition


class FakeKafka:
    """A Kafka in this process, on ports of 127.0.0.1, until the ``with`` statement ends.

    Consumers of kfast, kafka-python and librdkafka read from it, join its groups and commit to it.
    Records are written with `produce`: there is no Produce request. Everything is in memory. The
    members of a group use the same protocol, the classic one or that of KIP-848.

    Parameters
    ----------
    nodes : int
        Number of brokers; their ids count from 1.
    release : str
        Release of Kafka whose versions of requests the brokers offer, such as ``"3.9"``.

    Attributes
    ----------
    cluster : FakeCluster
        The cluster, with its topics, groups and faults, to move leaders, stop nodes, expire members
        or let requests fail.

    Examples
    --------
    >>> from kfast.testing import FakeKafka
    >>> with FakeKafka() as kafka:
    ...     kafka.create_topic("orders", partitions=2)
    ...     offset = kafka.produce("orders", b"an order", key=b"customer-7", partition=1)
    ...     records = kfast.read_topic("orders", bootstrap_servers=kafka.bootstrap_servers)
    >>> records.count(), offset
    (1, 0)
    """

    def __init__(self, nodes: int = 1, *, release: str = LATEST) -> None:
        self.cluster = FakeCluster(nodes, release=release)
        if ApiKey.CONSUMER_GROUP_HEARTBEAT in RELEASES[release]:
            self.cluster.features["group.version"] = 1
        self._server = BrokerServer(self.cluster)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.stop()

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT,...`` of all nodes."""
        return self._server.bootstrap_servers

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic.

        Parameters
        ----------
        name : str
            Its name; a topic of that name must not exist.
        partitions : int
            Number of partitions, each with replicas on all nodes.
        """
        self.cluster.create_topic(name, partitions)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int = 0,
    ) -> int:
        """Append a record to a partition, and return its offset.

        Parameters
        ----------
        topic, partition : str, int
            An existing partition.
        value, key : bytes or None
            None is a null; a record with a null value is a tombstone.
        headers : sequence of (str, bytes or None)
            Headers of the record.
        timestamp_ms : int
            Milliseconds since the epoch.
        """
        record = Record(key, value, tuple(headers), timestamp_ms)
        (batch,) = self.cluster.append(topic, partition, [record])
        return batch.last_offset

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group."""
        return self.cluster.groups.committed(group_id)

    def __repr__(self) -> str:
        return f"<FakeKafka {self.bootstrap_servers} {self.cluster!r}>"
