"""Cluster: a snapshot of one Kafka cluster: brokers, topics, partitions and their leaders.

Immutable by construction: ``Metadata`` builds a new ``Cluster`` for every change and swaps the
reference, so any thread may keep and read a snapshot without a lock. Which parts of a Metadata
response are merged is decided in ``metadata_merge``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from kfast.types import ZERO_UUID, TopicPartition

NO_LEADER: Final = -1
NO_EPOCH: Final = -1


class Node(NamedTuple):
    """One broker at its advertised listener, or one bootstrap server (negative id)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """``host:port``, an IPv6 literal in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(slots=True, frozen=True)
class PartitionMetadata:
    """One partition as the cluster last described it."""

    partition: int
    leader_id: int = NO_LEADER
    """-1 when none was ever known. During an election the last known leader, with an error code."""
    leader_epoch: int = NO_EPOCH
    """-1 when the brokers do not report it (KIP-320)."""
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error_code: int = 0
    """Of the last response."""


@dataclass(slots=True, frozen=True)
class TopicMetadata:
    """One topic that exists."""

    name: str
    topic_id: bytes = ZERO_UUID
    """16 bytes, all zero when the brokers are too old to report it (KIP-516)."""
    is_internal: bool = False
    error_code: int = 0
    """Of the last response; not 0 while an older view is kept."""
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Cluster:
    """An immutable snapshot of a cluster; empty until the first response."""

    brokers: Mapping[int, Node] = field(default_factory=lambda: MappingProxyType({}))
    """Empty after a rebootstrap, too."""
    topics: Mapping[str, TopicMetadata] = field(default_factory=lambda: MappingProxyType({}))
    """Those of the requested topics that exist."""
    cluster_id: str | None = None
    controller_id: int = -1
    topic_names: Mapping[bytes, str] = field(default_factory=lambda: MappingProxyType({}))
    """Topic id to name, for the topics of this snapshot that have one."""

    def partition(self, tp: TopicPartition) -> PartitionMetadata | None:
        """Return the metadata of a partition, None for one that is not in this snapshot."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def leader_for(self, tp: TopicPartition) -> Node | None:
        """Return the broker that leads a partition, None if unknown or not among the brokers."""
        partition = self.partition(tp)
        return None if partition is None else self.brokers.get(partition.leader_id)

    def leader_epoch_for(self, tp: TopicPartition) -> int | None:
        """Return the epoch of the partition's leader, None if unknown."""
        partition = self.partition(tp)
        if partition is None or partition.leader_epoch == NO_EPOCH:
            return None
        return partition.leader_epoch

    def is_offline(self, tp: TopicPartition, node_id: int) -> bool:
        """Return whether the replica of a partition on that broker is marked offline."""
        partition = self.partition(tp)
        return partition is not None and node_id in partition.offline_replicas

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic, None if the topic is not known."""
        metadata = self.topics.get(topic)
        return None if metadata is None else set(metadata.partitions)

    def topic_partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic in order; empty if the topic is not known."""
        metadata = self.topics.get(topic)
        return (
            []
            if metadata is None
            else [TopicPartition(topic, p) for p in sorted(metadata.partitions)]
        )

    def topic_id(self, topic: str) -> bytes | None:
        """Return a topic's id, None if the topic or its id is not known."""
        metadata = self.topics.get(topic)
        return None if metadata is None or metadata.topic_id == ZERO_UUID else metadata.topic_id

    def __repr__(self) -> str:
        return (
            f"<Cluster {self.cluster_id} brokers={sorted(self.brokers)} topics={len(self.topics)}>"
        )
