"""Members of groups on a fake cluster: a listener that notes everything, and ways to wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from kfast import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kfast.testing.cluster import FakeCluster
from tests.end_to_end.stage import Stage, eventually

GROUP: Final = "g"

PROTOCOLS: Final = ("classic", "consumer")

QUICK_MEMBER: Final = {
    "classic": {"heartbeat_interval_ms": 50, "session_timeout_ms": 6_000},
    "consumer": {},
}


def cluster_of(partitions: int = 2, records: int = 10, **settings: Any) -> FakeCluster:
    """Return a cluster with a topic "t", whose KIP-848 groups are as quick as classic ones."""
    cluster = FakeCluster(1, **settings)
    cluster.features["group.version"] = 1
    cluster.groups.settings.group_consumer_heartbeat_interval_ms = 50
    cluster.create_topic("t", partitions)
    for partition in range(partitions):
        cluster.append("t", partition, [b"x"] * records, batch_records=5)
    return cluster


def member(
    stage: Stage, protocol: str = "classic", *, listener: Any = None, **configs: Any
) -> KafkaConsumer:
    """Return a consumer in the group, subscribed to "t" and not polled yet."""
    settings = {"group_id": GROUP, "group_protocol": protocol, **QUICK_MEMBER[protocol], **configs}
    consumer = stage.consumer(**settings)
    if isinstance(listener, Notes):
        listener.consumer = consumer
    consumer.subscribe(["t"], listener=listener)
    return consumer


class Notes(ConsumerRebalanceListener):
    """Notes every call as (name, partition numbers), and does what the test says.

    Parameters
    ----------
    on_call : callable, optional
        ``on_call(name, partitions, consumer)``, run inside every callback.
    """

    def __init__(
        self, on_call: Callable[[str, list[TopicPartition], KafkaConsumer], object] | None = None
    ) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.threads: set[int] = set()
        self.on_call = on_call
        self.consumer: Any = None

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._note("revoked", revoked)

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self._note("assigned", assigned)

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self._note("lost", lost)

    def _note(self, name: str, partitions: list[TopicPartition]) -> None:
        self.threads.add(threading.get_ident())
        if partitions:  # whether a rebalance ends with nothing new is the protocol's choice
            self.calls.append((name, [tp.partition for tp in partitions]))
        if self.on_call is not None:
            self.on_call(name, partitions, self.consumer)


def poll_until(condition: Callable[[], bool], *consumers: KafkaConsumer) -> dict[int, list[int]]:
    """Poll consumers in turn until something is true; return the offsets seen per partition."""
    seen: dict[int, list[int]] = {}

    def step() -> bool:
        for consumer in consumers:
            for tp, batch in consumer.poll(timeout_ms=20).items():
                seen.setdefault(tp.partition, []).extend(batch.offsets.tolist())
        return condition()

    eventually(step, lambda: f"seen {seen}, {[c.health() for c in consumers]}")
    return seen


def join(*consumers: KafkaConsumer, partitions: int = 2) -> None:
    """Poll until all partitions are assigned and every member has its share."""
    share = partitions // len(consumers)
    poll_until(lambda: all(len(c.assignment()) == share for c in consumers), *consumers)


def read_all(consumer: KafkaConsumer, records: int) -> dict[int, list[int]]:
    """Poll until so many records came."""
    seen: dict[int, list[int]] = {}
    deadline = time.monotonic() + 30
    while sum(map(len, seen.values())) < records:
        assert time.monotonic() < deadline, seen
        for tp, batch in consumer.poll(timeout_ms=200).items():
            seen.setdefault(tp.partition, []).extend(batch.offsets.tolist())
    return seen


def commit_as(group: str, servers: str, topic: str, partitions: int, offset: int) -> None:
    """Commit an offset for each partition of a topic, as a group without members."""
    tps = [TopicPartition(topic, number) for number in range(partitions)]
    with KafkaConsumer(
        bootstrap_servers=servers, group_id=group, enable_auto_commit=False
    ) as consumer:
        consumer.assign(tps)
        consumer.commit(dict.fromkeys(tps, offset))


def committed(cluster: FakeCluster, group: str = GROUP) -> dict[int, int]:
    """Return what the cluster has stored, by partition number."""
    return {tp.partition: offset for tp, offset in cluster.groups.committed(group).items()}
