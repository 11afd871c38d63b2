"""Rack-aware range assignment (KIP-881).

Used only for groups where racks can make a difference: a member's rack has replicas, and not every
partition has replicas in the same racks. Partitions go first to the members, in order, whose rack
has a replica (a member without a rack matches everywhere), then the rest as without racks. No
member gets more partitions than without racks. Topics with the same subscribers and as many
partitions stay co-partitioned: a number is assigned for all of them at once, or not at all in the
first pass.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from kfast.consumer.group.assignors.group_topics import Racks, replica_racks
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfast.client.cluster import Cluster
    from kfast.consumer.group.assignors.assignor import GroupMember

Assigned = dict[str, list[TopicPartition]]


class TopicShare:
    """Unassigned partitions of one topic, and how many each subscriber may still get.

    ``racks`` are those of the replicas by partition, ``consumers`` those of the subscribers by
    member id, both in order.
    """

    __slots__ = ("_extra", "_given", "_quota", "consumers", "left", "needs_racks", "racks", "topic")

    def __init__(
        self, topic: str, racks: Mapping[int, Racks], consumers: Mapping[str, str | None]
    ) -> None:
        self.topic = topic
        self.racks = racks
        self.consumers = consumers
        self.left = dict.fromkeys(racks)
        self._given = dict.fromkeys(consumers, 0)
        self._quota, self._extra = divmod(len(racks), len(consumers))
        member_racks = {rack for rack in consumers.values() if rack}
        every = frozenset[str]().union(*racks.values())
        self.needs_racks = not member_racks.isdisjoint(every) and any(
            some != every for some in racks.values()
        )

    def room(self, member_id: str) -> int:
        """Return how many more partitions the member may get."""
        return max(0, self._quota + (self._extra > 0) - self._given[member_id])

    def matches(self, member_id: str, partition: int) -> bool:
        """Return whether the partition has a replica in the member's rack."""
        rack = self.consumers[member_id]
        return not rack or rack in self.racks[partition]

    def give(self, member_id: str, partitions: Sequence[int], assigned: Assigned) -> None:
        """Assign unassigned partitions to a member that has room for them."""
        self._given[member_id] += len(partitions)
        if self._given[member_id] > self._quota:
            self._extra -= 1
        for partition in partitions:
            del self.left[partition]
        assigned[member_id] += [TopicPartition(self.topic, number) for number in partitions]

    def give_runs(self, assigned: Assigned, *, only_matching: bool) -> None:
        """Assign the rest in order, as many to each member as it has room for."""
        for member_id in self.consumers:
            if not self.left:
                return
            candidates = (
                number
                for number in self.left
                if not only_matching or self.matches(member_id, number)
            )
            run = list(islice(candidates, self.room(member_id)))
            if run:
                self.give(member_id, run, assigned)

    def __repr__(self) -> str:
        return f"<TopicShare {self.topic} left={len(self.left)} of {len(self.racks)}>"


def topic_shares(
    cluster: Cluster,
    topics: Mapping[str, Sequence[TopicPartition]],
    by_topic: Mapping[str, Sequence[GroupMember]],
) -> list[TopicShare] | None:
    """Return a share per topic, None if racks make no difference to any of them."""
    if not any(member.rack_id for consumers in by_topic.values() for member in consumers):
        return None
    shares = [
        TopicShare(
            topic,
            {tp.partition: replica_racks(cluster, tp) for tp in partitions},
            {member.member_id: member.rack_id or None for member in by_topic[topic]},
        )
        for topic, partitions in topics.items()
    ]
    return shares if any(share.needs_racks for share in shares) else None


def assign_with_racks(shares: Sequence[TopicShare], members: Sequence[GroupMember]) -> Assigned:
    """Return the partitions of every member."""
    assigned: Assigned = {member.member_id: [] for member in members}
    alike: dict[tuple[object, ...], list[TopicShare]] = {}
    for share in shares:
        # A topic whose subscribers have no racks is not co-partitioned by rack.
        if any(share.consumers.values()):
            alike.setdefault((len(share.racks), *share.consumers.items()), []).append(share)
    for together in alike.values():
        if len(together) > 1:
            _assign_together(together, assigned)
        elif together[0].needs_racks:
            together[0].give_runs(assigned, only_matching=True)
    for share in shares:
        share.give_runs(assigned, only_matching=False)
    for partitions in assigned.values():
        partitions.sort()
    return assigned


def _assign_together(shares: Sequence[TopicShare], assigned: Assigned) -> None:
    """Assign each number of co-partitioned topics to the first member that all of them match.

    All shares have assigned the same numbers at any time, so they have the same room.
    """
    first = shares[0]
    with_room = dict.fromkeys(first.consumers)
    for number in first.racks:
        if not all(number in share.left for share in shares):
            continue  # the topics' numbers differ, which no healthy cluster reports
        common = frozenset.intersection(*(share.racks[number] for share in shares))
        for member_id in with_room:
            rack = first.consumers[member_id]
            if (not rack or rack in common) and first.room(member_id):
                break
        else:
            continue
        for share in shares:
            share.give(member_id, [number], assigned)
        if not first.room(member_id):
            del with_room[member_id]
