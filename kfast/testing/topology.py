"""Nodes, topics and partitions of a fake cluster, as plain mutable state.

``FakeCluster`` changes them under its lock and raises the leader epoch with every leader change;
its ``append`` and ``writing`` use `PartitionWriter` for records and transaction markers.
``MetadataView`` is a frozen copy for Metadata responses, so that a node can send an old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kfast.testing.batches import (
    ABORT,
    COMMIT,
    TRANSACTIONAL,
    Record,
    encode_marker,
    encode_record_batch,
    offset_deltas,
)
from kfast.testing.log import PartitionLog, StoredBatch, read_batch
from kfast.types import ZERO_UUID

NO_LEADER: Final = -1
Value: TypeAlias = Record | bytes | None
"""A record, or just its value."""


@dataclass(slots=True)
class FakeNode:
    """One broker.

    Attributes
    ----------
    host, port : str, int
        Where it listens.
    advertised : tuple of (host, port), optional
        In Metadata instead, as a wrong ``advertised.listeners`` has it.
    is_running : bool
        A stopped node is not in Metadata, takes no connections and loses the ones it has.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None
    advertised: tuple[str, int] | None = None
    is_running: bool = True

    @property
    def address(self) -> tuple[str, int]:
        """Host and port in Metadata."""
        return self.advertised or (self.host, self.port)


@dataclass(slots=True)
class ReplicaView:
    """How far behind the leader one follower is; None means not behind."""

    log_end_offset: int | None = None
    high_watermark: int | None = None
    log_start_offset: int | None = None


@dataclass(slots=True)
class FakePartition:
    """One partition: who leads it, who follows, and its log."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    log: PartitionLog = field(default_factory=PartitionLog)
    offline_replicas: list[int] = field(default_factory=list)
    replica_views: dict[int, ReplicaView] = field(default_factory=dict)

    def high_watermark(self, node_id: int) -> int:
        """Return the high watermark as one replica knows it."""
        view = self.replica_views.get(node_id)
        if view is None or view.high_watermark is None or node_id == self.leader:
            return self.log.high_watermark
        return min(view.high_watermark, self.log.high_watermark)

    def last_stable_offset(self, node_id: int) -> int:
        """Return the last stable offset as one replica knows it."""
        return min(self.log.last_stable_offset, self.high_watermark(node_id))

    def offsets(self, node_id: int) -> tuple[int, int]:
        """Return (log start, log end) of one replica."""
        view = self.replica_views.get(node_id)
        start, end = self.log.log_start_offset, self.log.log_end_offset
        if view is None or node_id == self.leader:
            return start, end
        return (
            start if view.log_start_offset is None else view.log_start_offset,
            end if view.log_end_offset is None else min(end, view.log_end_offset),
        )


@dataclass(slots=True)
class FakeTopic:
    """One topic."""

    name: str
    topic_id: bytes
    partitions: dict[int, FakePartition]
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """One partition in a Metadata answer."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """One topic in a Metadata answer."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionEntry, ...]


@dataclass(frozen=True, slots=True)
class BrokerEntry:
    """One broker in a Metadata answer."""

    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class MetadataView:
    """The state that Metadata describes, at one moment."""

    brokers: tuple[BrokerEntry, ...]
    topics: dict[str, TopicEntry]
    controller_id: int


def metadata_view(nodes: dict[int, FakeNode], topics: dict[str, FakeTopic]) -> MetadataView:
    """Copy the current state into a frozen view."""
    running = [node for node in nodes.values() if node.is_running]
    return MetadataView(
        brokers=tuple(BrokerEntry(node.node_id, *node.address, node.rack) for node in running),
        topics={
            topic.name: TopicEntry(
                topic.name,
                topic.topic_id,
                topic.is_internal,
                tuple(
                    PartitionEntry(
                        partition.partition,
                        partition.leader,
                        partition.leader_epoch,
                        tuple(partition.replicas),
                        tuple(partition.isr),
                        tuple(partition.offline_replicas),
                    )
                    for partition in topic.partitions.values()
                ),
            )
            for topic in topics.values()
        },
        controller_id=min((node.node_id for node in running), default=NO_LEADER),
    )


def topic_id_of(topics: Mapping[str, FakeTopic], name: str) -> bytes:
    """Return the id of a topic, zero if there is none."""
    topic = topics.get(name)
    return ZERO_UUID if topic is None else topic.topic_id


class PartitionWriter:
    """Appends to one partition in its current leader epoch."""

    def __init__(self, partition: FakePartition) -> None:
        self.partition = partition
        self.log = partition.log

    def append(
        self,
        values: Iterable[Value],
        *,
        batch_records: int | None = None,
        producer_id: int = -1,
        is_transactional: bool = False,
    ) -> list[StoredBatch]:
        """Append records, in one batch or in batches of ``batch_records``.

        Parameters
        ----------
        values : iterable of Record, bytes or None
            Bytes and None are the values of records without a key.
        batch_records : int, optional
            Most records of one batch.
        producer_id : int
            Of an idempotent or transactional producer.
        is_transactional : bool
            Whether the records belong to a transaction, which ``end_transaction`` ends.
        """
        records = [value if isinstance(value, Record) else Record(value=value) for value in values]
        size = batch_records or max(len(records), 1)
        return [
            self._append_batch(records[start : start + size], producer_id, is_transactional)
            for start in range(0, len(records), size)
        ]

    def _append_batch(
        self, records: Sequence[Record], producer_id: int, is_transactional: bool
    ) -> StoredBatch:
        base_offset = self.log.log_end_offset
        data = encode_record_batch(
            records,
            base_offset,
            leader_epoch=self.partition.leader_epoch,
            attributes=TRANSACTIONAL if is_transactional else 0,
            producer_id=producer_id,
        )
        return self.log.append(
            read_batch(
                data,
                offsets=[base_offset + delta for delta in offset_deltas(records)],
                timestamps=[record.timestamp for record in records],
            )
        )

    def append_emptied(self, offsets: int, *, producer_id: int = -1) -> StoredBatch:
        """Append a batch that covers offsets but holds no record, as compaction leaves behind."""
        data = encode_record_batch(
            (),
            self.log.log_end_offset,
            leader_epoch=self.partition.leader_epoch,
            producer_id=producer_id,
            last_offset_delta=offsets - 1,
        )
        return self.log.append(read_batch(data))

    def end_transaction(self, producer_id: int, *, committed: bool) -> StoredBatch:
        """Append the marker that ends a producer's transaction, whether or not one is open."""
        data = encode_marker(
            self.log.log_end_offset,
            producer_id,
            COMMIT if committed else ABORT,
            leader_epoch=self.partition.leader_epoch,
        )
        marker = read_batch(data)
        self.log.finish_transaction(marker, committed=committed)
        return marker

    def __repr__(self) -> str:
        return f"<PartitionWriter {self.log!r}>"
