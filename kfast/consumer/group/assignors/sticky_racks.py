"""Where the members and the replicas of a group are, for the sticky assignors (KIP-881).

Owns ``GroupRacks``. Racks count for a whole group or not at all: they do when a member's rack holds
a replica and not every partition has replicas in the same racks. Then a member prefers partitions
with a replica in its rack and does not keep others; even counts come first all the same, so what
finds no such member with room is dealt out as without racks. Pure; network thread.
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

NOWHERE: Racks = frozenset()


class GroupRacks:
    """The racks of one group; nothing where they make no difference.

    Parameters
    ----------
    of_member : Mapping of str to str
        By member id; members that name no rack are missing.
    of_partition : Mapping of TopicPartition to Racks
        Racks of the replicas.
    """

    __slots__ = ("_members_in", "of_member", "of_partition")

    def __init__(
        self, of_member: Mapping[str, str], of_partition: Mapping[TopicPartition, Racks]
    ) -> None:
        every = NOWHERE.union(*of_partition.values())
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
        """Return the racks of a group with everything that it shares out."""
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
        """Return the partitions with those first that are near to the fewest members."""
        if not self.matter:
            return list(partitions)
        near = self._members_in
        return sorted(partitions, key=lambda tp: sum(near[rack] for rack in self.of_partition[tp]))

    def __repr__(self) -> str:
        return f"<GroupRacks {len(self.of_member)} members in {len(self._members_in)} racks>"
