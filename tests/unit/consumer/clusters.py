"""Cluster snapshots as tests state them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kfast.client.cluster import Cluster, Node, PartitionMetadata, TopicMetadata
from kfast.types import ZERO_UUID, TopicPartition


def topic_id_of(name: str, incarnation: int = 0) -> bytes:
    return f"{name}/{incarnation}".encode().ljust(16, b".")[:16]


def cluster(
    leaders: Mapping[TopicPartition, tuple[int, int]],
    *,
    nodes: Iterable[int] = (1, 2, 3),
    has_topic_ids: bool = True,
    incarnation: int = 0,
    offline: Mapping[TopicPartition, tuple[int, ...]] | None = None,
    internal: Iterable[str] = (),
) -> Cluster:
    """Make a snapshot of partitions with (leader id, leader epoch)."""
    partitions: dict[str, dict[int, PartitionMetadata]] = {}
    for tp, (leader_id, epoch) in leaders.items():
        partitions.setdefault(tp.topic, {})[tp.partition] = PartitionMetadata(
            tp.partition,
            leader_id,
            epoch,
            replicas=tuple(nodes),
            offline_replicas=(offline or {}).get(tp, ()),
        )
    topics = {
        name: TopicMetadata(
            name,
            topic_id_of(name, incarnation) if has_topic_ids else ZERO_UUID,
            is_internal=name in set(internal),
            partitions=found,
        )
        for name, found in partitions.items()
    }
    return Cluster(
        MappingProxyType({node: Node(node, f"b{node}", 9092) for node in nodes}),
        MappingProxyType(topics),
        "cluster",
        1,
        MappingProxyType({topic.topic_id: name for name, topic in topics.items()}),
    )
