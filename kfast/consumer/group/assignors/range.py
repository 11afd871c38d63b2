"""RangeAssignor: each subscriber of a topic gets a contiguous range of its partitions.

Stateless. With n partitions and c subscribers each gets n // c, the first n % c one more, topic by
topic: topics with equal partition counts and equal subscribers are co-partitioned, that is, the
same numbers go to the same member. When members and replicas are in racks, ``range_racks`` first
assigns by rack within the same counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.consumer.group.assignors.assignor import ConsumerPartitionAssignor
from kfast.consumer.group.assignors.group_topics import (
    static_first,
    subscribed_partitions,
    subscribers,
)
from kfast.consumer.group.assignors.range_racks import assign_with_racks, topic_shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfast.client.cluster import Cluster
    from kfast.consumer.group.assignors.assignor import GroupMember
    from kfast.types import TopicPartition


class RangeAssignor(ConsumerPartitionAssignor):
    """Contiguous ranges of each topic, for joining topics that are partitioned alike.

    Members with a low id get more when there are many topics with few partitions each.

    Examples
    --------
    >>> consumer = kfast.KafkaConsumer(
    ...     "orders",
    ...     bootstrap_servers="localhost:9092",
    ...     group_id="billing",
    ...     partition_assignment_strategy=[kfast.RangeAssignor],
    ... )
    """

    name = "range"

    def assign(
        self, cluster: Cluster, members: Sequence[GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of every member."""
        ordered = static_first(members)
        topics = subscribed_partitions(cluster, ordered)
        by_topic = subscribers(topics, ordered)
        shares = topic_shares(cluster, topics, by_topic)
        if shares is not None:
            return assign_with_racks(shares, ordered)
        assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in ordered}
        for topic, partitions in topics.items():
            consumers = by_topic[topic]
            quota, extra = divmod(len(partitions), len(consumers))
            start = 0
            for i, member in enumerate(consumers[: len(partitions)]):
                end = start + quota + (i < extra)
                assigned[member.member_id] += partitions[start:end]
                start = end
        return assigned

    def __repr__(self) -> str:
        return "<RangeAssignor>"
