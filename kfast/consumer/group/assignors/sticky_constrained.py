"""Sticky algorithm for a group whose members are all subscribed to the same topics.

Pure; network thread. With P partitions and C members each gets P // C of them or one more, and
keeps as many of its own as that allows. Linear, apart from sorting and the search for a member in a
rack.

Members below the lower quota come first when the free partitions are assigned, until they have it;
then those with exactly the lower quota, one partition each. When racks matter, partitions are first
assigned to members in a rack with a replica, and the rest as without racks.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfast.consumer.group.assignors.sticky_claims import Claims
    from kfast.consumer.group.assignors.sticky_racks import GroupRacks
    from kfast.types import TopicPartition


class EqualAssignment:
    """One run of the algorithm. Members and partitions are in order; at least one member."""

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
            free = self._assign_near(self._racks.hardest_first(free))
        self._assign(free)
        return self._assigned

    def _keep(self) -> None:
        for member_id, mine in self._assigned.items():
            # By number, then topic: partitions that are revoked are not all of one topic.
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

    def _assign_near(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members near them that have room; return the rest."""
        left: list[TopicPartition] = []
        turn = 0
        for tp in partitions:
            index = self._next_near(tp, self._under, turn)
            if index is not None:
                mine = self._assigned[self._under[index]]
                mine.append(tp)
                if len(mine) < self._low:
                    index += 1
                else:
                    member_id = self._under.pop(index)
                    if self._extra:
                        self._exact.append(member_id)
                turn = index % len(self._under) if self._under else 0
                continue
            index = self._next_near(tp, self._exact, 0)
            if index is None:
                left.append(tp)
                continue
            self._assigned[self._exact.pop(index)].append(tp)
            self._extra -= 1
            if not self._extra:
                self._exact = []
        return left

    def _next_near(self, tp: TopicPartition, members: Sequence[str], first: int) -> int | None:
        """Return the index of the next member near the partition, from ``first`` on in a circle."""
        for i in range(len(members)):
            index = (first + i) % len(members)
            if self._racks.is_near(members[index], tp):
                return index
        return None

    def _assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Assign partitions in turn to members below the quota, then one to each other."""
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
