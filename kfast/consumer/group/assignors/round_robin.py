"""RoundRobinAssignor: assigns all partitions of all topics to the members in turn.

Stateless. A member that is not subscribed to the topic of the next partition is skipped.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from kfast.consumer.group.assignors.assignor import ConsumerPartitionAssignor
from kfast.consumer.group.assignors.group_topics import static_first, subscribed_partitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfast.client.cluster import Cluster
    from kfast.consumer.group.assignors.assignor import GroupMember
    from kfast.types import TopicPartition


class RoundRobinAssignor(ConsumerPartitionAssignor):
    """Partitions of all topics in turn; even, as long as all members subscribe to the same.

    Examples
    --------
    >>> consumer = kfast.KafkaConsumer(
    ...     "orders",
    ...     bootstrap_servers="localhost:9092",
    ...     group_id="billing",
    ...     partition_assignment_strategy=[kfast.RoundRobinAssignor],
    ... )
    """

    name = "roundrobin"

    def assign(
        self, cluster: Cluster, members: Sequence[GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of every member."""
        ordered = static_first(members)
        topics = subscribed_partitions(cluster, ordered)
        seats: dict[str, list[int]] = {topic: [] for topic in topics}
        for seat, member in enumerate(ordered):
            for topic in set(member.topics).intersection(topics):
                seats[topic].append(seat)
        shares: list[list[TopicPartition]] = [[] for _ in ordered]
        pointer = 0
        for topic, partitions in topics.items():
            subscribed = seats[topic]
            for tp in partitions:
                at = bisect_left(subscribed, pointer)
                seat = subscribed[at] if at < len(subscribed) else subscribed[0]
                shares[seat].append(tp)
                pointer = seat + 1
        return {member.member_id: share for member, share in zip(ordered, shares, strict=True)}

    def __repr__(self) -> str:
        return "<RoundRobinAssignor>"
