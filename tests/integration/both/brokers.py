"""A real Kafka and `FakeKafka`, with the same calls for what a test does to a cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from confluent_kafka.admin import NewPartitions

from kfast import LocalKafka, OffsetAndMetadata, TopicPartition
from kfast.testing import FakeCluster, FakeKafka, Record
from kfast.types import ConsumerGroupMetadata
from tests.integration.kafka_writer import Message
from tests.integration.support import PATIENCE_SECONDS, admin, delete_records
from tests.reference.compression import Codec
from tests.simulation.old_formats import append_batch

Messages = Iterable[Message | bytes | None]


class Broker(Protocol):
    """A cluster of one node."""

    @property
    def bootstrap_servers(self) -> str: ...
    def create_topic(self, name: str, partitions: int = 1) -> None: ...
    def delete_topic(self, name: str) -> None: ...
    def add_partitions(self, topic: str, total: int) -> None: ...
    def delete_records(self, tp: TopicPartition, before: int) -> None: ...
    def delete_group(self, group_id: str) -> None: ...


class Transaction(Protocol):
    """An open transaction."""

    def write(self, topic: str, messages: Messages, *, partition: int = 0) -> list[int]: ...
    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None: ...


class Writer(Protocol):
    """Appends records, and returns their offsets."""

    def write(
        self,
        topic: str,
        messages: Messages,
        *,
        partition: int = 0,
        codec: str = "none",
        batch_records: int = 10_000,
    ) -> list[int]: ...
    def transaction(
        self,
        transactional_id: str,
        *,
        commit: bool = True,
        codec: str = "none",
        batch_records: int = 10_000,
    ) -> AbstractContextManager[Transaction]: ...


class RealBroker:
    """A Kafka of its own processes."""

    def __init__(self, kafka: LocalKafka) -> None:
        self._kafka = kafka
        self.bootstrap_servers = kafka.bootstrap_servers

    def create_topic(self, name: str, partitions: int = 1) -> None:
        self._kafka.create_topic(name, partitions)

    def delete_topic(self, name: str) -> None:
        self._kafka.delete_topic(name)

    def add_partitions(self, topic: str, total: int) -> None:
        client = admin(self.bootstrap_servers)
        client.create_partitions([NewPartitions(topic, total)])[topic].result(PATIENCE_SECONDS)

    def delete_records(self, tp: TopicPartition, before: int) -> None:
        delete_records(self.bootstrap_servers, tp, before)

    def delete_group(self, group_id: str) -> None:
        client = admin(self.bootstrap_servers)
        client.delete_consumer_groups([group_id])[group_id].result(PATIENCE_SECONDS)


class FakeBroker:
    """A FakeKafka that runs."""

    def __init__(self, kafka: FakeKafka) -> None:
        self.cluster = kafka.cluster
        self.bootstrap_servers = kafka.bootstrap_servers

    def create_topic(self, name: str, partitions: int = 1) -> None:
        self.cluster.create_topic(name, partitions)

    def delete_topic(self, name: str) -> None:
        self.cluster.delete_topic(name)

    def add_partitions(self, topic: str, total: int) -> None:
        self.cluster.add_partitions(topic, total)

    def delete_records(self, tp: TopicPartition, before: int) -> None:
        with self.cluster.changing():
            self.cluster.log(*tp).delete_before(before)

    def delete_group(self, group_id: str) -> None:
        self.cluster.groups.delete_group(group_id)


class FakeTransaction:
    """A transaction of one producer id."""

    def __init__(
        self, cluster: FakeCluster, producer_id: int, codec: str, batch_records: int
    ) -> None:
        self._cluster = cluster
        self._producer_id = producer_id
        self._codec = Codec[codec.upper()]
        self._batch_records = batch_records
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()

    def write(self, topic: str, messages: Messages, *, partition: int = 0) -> list[int]:
        offsets = append(
            *(self._cluster, topic, messages, partition, self._codec, self._batch_records),
            producer_id=self._producer_id,
        )
        self._partitions.add(TopicPartition(topic, partition))
        return offsets

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        self._groups.add(group.group_id)
        with self._cluster.changing():
            committed = self._cluster.groups.offsets(group.group_id)
            for tp, entry in offsets.items():
                committed.add_pending(self._producer_id, tp, entry.offset)

    def end(self, *, committed: bool) -> None:
        for tp in self._partitions:
            with self._cluster.writing(*tp) as writer:
                writer.end_transaction(self._producer_id, committed=committed)
        with self._cluster.changing():
            for group_id in self._groups:
                offsets = self._cluster.groups.offsets(group_id)
                offsets.finish_pending(self._producer_id, committed=committed)


class FakeWriter:
    """Appends to the logs of a FakeKafka."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._producer_ids: dict[str, int] = {}

    def write(
        self,
        topic: str,
        messages: Messages,
        *,
        partition: int = 0,
        codec: str = "none",
        batch_records: int = 10_000,
    ) -> list[int]:
        return append(
            self._cluster, topic, messages, partition, Codec[codec.upper()], batch_records
        )

    @contextmanager
    def transaction(
        self,
        transactional_id: str,
        *,
        commit: bool = True,
        codec: str = "none",
        batch_records: int = 10_000,
    ) -> Iterator[Transaction]:
        producer_id = self._producer_ids.setdefault(transactional_id, len(self._producer_ids))
        transaction = FakeTransaction(self._cluster, producer_id, codec, batch_records)
        yield transaction
        transaction.end(committed=commit)


def append(
    cluster: FakeCluster,
    topic: str,
    messages: Messages,
    default_partition: int,
    codec: Codec,
    batch_records: int,
    producer_id: int = -1,
) -> list[int]:
    """Append messages to their partitions; return the offset of each."""
    by_partition: dict[int, list[tuple[int, Record]]] = {}
    now_ms = time.time_ns() // 1_000_000
    for number, item in enumerate(messages):
        message = item if isinstance(item, Message) else Message(item)
        record = Record(
            message.key,
            message.value,
            tuple(message.headers or ()),
            now_ms if message.timestamp_ms is None else message.timestamp_ms,
        )
        partition = default_partition if message.partition is None else message.partition
        by_partition.setdefault(partition, []).append((number, record))
    offsets: dict[int, int] = {}
    for partition, rows in by_partition.items():
        with cluster.writing(topic, partition) as writer:
            for start in range(0, len(rows), batch_records):
                batch = rows[start : start + batch_records]
                places = append_batch(
                    writer,
                    [record for _, record in batch],
                    codec=codec,
                    producer_id=producer_id,
                    is_transactional=producer_id >= 0,
                )
                offsets |= zip((number for number, _ in batch), places, strict=True)
    return [offset for _, offset in sorted(offsets.items())]
