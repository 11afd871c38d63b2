"""GroupRacks: racks of members and replicas, for the sticky assignors (KIP-881).

Racks matter for a whole group or not at all: they do when a member's rack has a replica and not
every partition has replicas in the same racks. Then a member prefers partitions with a replica in
its rack and does not keep others; even counts come first nevertheless, so a partition without such
a member with room is assigned as without racks. Pure; network thread.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kfast.consumer.group.assignors.group_topics import Racks, replica_racks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kfast.client.cluster import Cluster
    from kfast.consumer.group.assignors.assignor import GroupMember
    from kfast.types import TopicPartition

NO_RACKS: Racks = frozenset()


class GroupRacks:
    """Racks by member id, without members that have none, and of the replicas by partition.

    Both are empty where racks make no difference.
    """

    __slots__ = ("_members_in", "of_member", "of_partition")

    def __init__(
        self, of_member: Mapping[str, str], of_partition: Mapping[TopicPartition, Racks]
    ) -> None:
        every = NO_RACKS.union(*of_partition.values())
        if every.isdisjoint(of_member.values()) or all(
            racks == every for racks in of_partition.values()
        ):
            of_member = {}
        self.of_member = of_member
        self.of_partition = of_partition
        self._members_in = Counter(of_member.values())

    @classmethod
    def of(
        cls, cluster: Cluster, members: Iterable[GroupMember], partitions: Iterable[TopicPartition]
    ) -> GroupRacks:
        """Return the racks of a group and of the partitions to assign."""
        of_member = {member.member_id: member.rack_id for member in members if member.rack_id}
        if not of_member:
            return cls({}, {})
        return cls(of_member, {tp: replica_racks(cluster, tp) for tp in partitions})

    @property
    def matter(self) -> bool:
        """Whether racks make a difference."""
        return bool(self.of_member)

    def is_far(self, member_id: str, tp: TopicPartition) -> bool:
        """Return whether the member is in a rack without a replica of the partition."""
        rack = self.of_member.get(member_id)
        return rack is not None and rack not in self.of_partition[tp]

    def is_near(self, member_id: str, tp: TopicPartition) -> bool:
        """Return whether the member is in a rack with a replica of the partition."""
        rack = self.of_member.get(member_id)
        return rack is not None and rack in self.of_partition[tp]

    def hardest_first(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions, first those near the fewest members."""
        if not self.matter:
            return list(partitions)
        near = self._members_in
        return sorted(partitions, key=lambda tp: sum(near[rack] for rack in self.of_partition[tp]))

    def __repr__(self) -> str:
        return f"<GroupRacks {len(self.of_member)} members in {len(self._members_in)} racks>"
