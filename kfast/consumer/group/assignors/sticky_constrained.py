"""The sticky algorithm for a group in which everyone is subscribed to the same topics.

Pure; network thread. With P partitions and C members, everyone gets P // C of them or one more, and
keeps as much of what it owned as that allows. Linear but for sorting, and for looking for a member
that is near.

Members that own too little come first when the free partitions are dealt, until they have the lower
quota; then those with exactly the lower quota, one partition each. When racks matter, partitions
are dealt to members near a replica first, and what is left as without racks.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfast.consumer.group.assignors.sticky_claims import Claims
    from kfast.consumer.group.assignors.sticky_racks import GroupRacks
    from kfast.types import TopicPartition


def assign_equally(
    member_ids: Sequence[str],
    partitions: Sequence[TopicPartition],
    claims: Claims,
    racks: GroupRacks,
) -> dict[str, list[TopicPartition]]:
    """Return the partitions of every member.

    Parameters
    ----------
    member_ids : sequence of str
        In order; at least one.
    partitions : sequence of TopicPartition
        Everything to share out, ordered by topic and number.
    claims : Claims
        What the members owned.
    racks : GroupRacks
        Where they are.
    """
    return EqualAssignment(member_ids, partitions, claims, racks).run()


class EqualAssignment:
    """One run of the algorithm; parameters as `assign_equally`."""

    def __init__(
        self,
        member_ids: Sequence[str],
        partitions: Sequence[TopicPartition],
        claims: Claims,
        racks: GroupRacks,
    ) -> None:
        self._partitions = partitions
        self._racks = racks
        self._low, self._extra = divmod(len(partitions), len(member_ids))
        self._high = self._low + (self._extra > 0)
        self._assigned: dict[str, list[TopicPartition]] = {name: [] for name in member_ids}
        for tp, member_id in claims.owners.items():
            if tp not in claims.doubled and not racks.is_far(member_id, tp):
                self._assigned[member_id].append(tp)
        self._under: list[str] = []
        """Members with less than the lower quota."""
        self._exact: list[str] = []
        """Members with the lower quota, as long as some may have one more."""

    def run(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions of every member."""
        self._keep()
        kept = {tp for mine in self._assigned.values() for tp in mine}
        free = [tp for tp in self._partitions if tp not in kept]
        if self._racks.matter:
            free = self._deal_near(self._racks.hardest_first(free))
        self._deal(free)
        return self._assigned

    def _keep(self) -> None:
        for member_id, mine in self._assigned.items():
            # By number, then topic: when something has to go, not all of it is of one topic.
            mine.sort(key=lambda tp: (tp.partition, tp.topic))
            if len(mine) < self._low:
                self._under.append(member_id)
            elif len(mine) >= self._high and self._extra:
                del mine[self._high :]
                self._extra -= 1
            else:
                del mine[self._low :]
                self._exact.append(member_id)
        if not self._extra:
            self._exact = []

    def _deal_near(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Deal partitions to members that are near and have room; return what is left."""
        left: list[TopicPartition] = []
        turn = 0
        for tp in partitions:
            place = self._next_near(tp, self._under, turn)
            if place is not None:
                mine = self._assigned[self._under[place]]
                mine.append(tp)
                if len(mine) < self._low:
                    place += 1
                else:
                    member_id = self._under.pop(place)
                    if self._extra:
                        self._exact.append(member_id)
                turn = place % len(self._under) if self._under else 0
                continue
            place = self._next_near(tp, self._exact, 0)
            if place is None:
                left.append(tp)
                continue
            self._assigned[self._exact.pop(place)].append(tp)
            self._extra -= 1
            if not self._extra:
                self._exact = []
        return left

    def _next_near(self, tp: TopicPartition, members: Sequence[str], first: int) -> int | None:
        """Return the place of the next member that is near, going round from the first one."""
        for i in range(len(members)):
            place = (first + i) % len(members)
            if self._racks.is_near(members[place], tp):
                return place
        return None

    def _deal(self, partitions: Sequence[TopicPartition]) -> None:
        """Deal partitions round and round to those with too little, then one to each."""
        under, exact = deque(self._under), deque(self._exact)
        for tp in partitions:
            if not under:
                self._assigned[exact.popleft()].append(tp)
                continue
            member_id = under.popleft()
            mine = self._assigned[member_id]
            mine.append(tp)
            (exact if len(mine) == self._low else under).append(member_id)

    def __repr__(self) -> str:
        return f"<EqualAssignment members={len(self._assigned)} quota={self._low}>"
