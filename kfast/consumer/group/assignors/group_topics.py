"""Inputs of all assignors: members in order, partitions of the subscribed topics, racks.

Stateless and pure; network thread. Topics without known partitions are left out; the leader rejoins
when they appear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kfast.client.cluster import Cluster
    from kfast.consumer.group.assignors.assignor import GroupMember
    from kfast.types import TopicPartition

Racks: TypeAlias = frozenset[str]


def by_id(members: Iterable[GroupMember]) -> list[GroupMember]:
    """Return the members ordered by member id, the first one of each id."""
    unique: dict[str, GroupMember] = {}
    for member in members:
        unique.setdefault(member.member_id, member)
    return [unique[member_id] for member_id in sorted(unique)]


def static_first(members: Iterable[GroupMember]) -> list[GroupMember]:
    """Return the static members ordered by instance id, then the others by member id.

    A static member's member id changes when it restarts. Its instance id does not, so it gets the
    same partitions again.
    """

    def order(member: GroupMember) -> tuple[bool, str]:
        instance = member.group_instance_id
        return (True, member.member_id) if instance is None else (False, instance)

    return sorted(by_id(members), key=order)


def subscribed_partitions(
    cluster: Cluster, members: Iterable[GroupMember]
) -> dict[str, list[TopicPartition]]:
    """Return the partitions of every subscribed topic that has any, in order of name and number."""
    topics = sorted({topic for member in members for topic in member.topics})
    by_topic = ((topic, cluster.topic_partitions(topic)) for topic in topics)
    return {topic: partitions for topic, partitions in by_topic if partitions}


def subscribers(
    topics: Iterable[str], members: Sequence[GroupMember]
) -> dict[str, list[GroupMember]]:
    """Return the subscribers of each topic, in the order of ``members``."""
    by_topic: dict[str, list[GroupMember]] = {topic: [] for topic in topics}
    for member in members:
        for topic in dict.fromkeys(member.topics):
            if topic in by_topic:
                by_topic[topic].append(member)
    return by_topic


def replica_racks(cluster: Cluster, tp: TopicPartition) -> Racks:
    """Return the racks that hold a replica of a partition, as far as brokers name any."""
    metadata = cluster.partition(tp)
    nodes = [cluster.brokers.get(node_id) for node_id in metadata.replicas] if metadata else []
    return frozenset(node.rack for node in nodes if node is not None and node.rack)
