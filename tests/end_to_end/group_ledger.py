"""What must never happen in a group, checked while it happens.

| rule | checked when |
|---|---|
| in one generation a partition is assigned to one member | assigned |
| what is added to one member is not read by another one of the same generation | assigned |
| a member begins at the committed offset, else at the start | first delivery |
| within an assignment offsets come one by one, each once | delivered |
| no offset is left out by the group | delivered |
| nothing is delivered again after everything was committed | first delivery |
| a commit covers only what was delivered, and never goes back | request handled |
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast.testing.groups.group_coordinator import FakeGroups
    from tests.end_to_end.group_member import SimulatedMember

GROUP: Final = "g"
LOG_END: Final = 120
"""Records in every partition."""


class GroupLedger:
    """The books of one group.

    Parameters
    ----------
    groups : FakeGroups
        Where commits are stored.
    """

    def __init__(self, groups: FakeGroups) -> None:
        self._groups = groups
        self.members: list[SimulatedMember] = []
        self.prefix: dict[TopicPartition, int] = {}
        """Everything before this offset was delivered to a member."""
        self.duplicates = 0
        self._assigned: dict[tuple[TopicPartition, int], SimulatedMember] = {}
        self._reading: dict[tuple[SimulatedMember, TopicPartition], tuple[int, int]] = {}
        self._is_committed: dict[TopicPartition, bool] = {}
        self._seen_commits = 0
        self._committed: dict[TopicPartition, int] = {}

    def assigned(
        self,
        member: SimulatedMember,
        assignment: Collection[TopicPartition],
        added: Collection[TopicPartition],
    ) -> None:
        """Note that an application took an assignment."""
        generation = member.generation
        assert generation >= 0, f"{member} is assigned {assignment} and is no member"
        for tp in assignment:
            owner = self._assigned.setdefault((tp, generation), member)
            assert owner is member, f"{tp} of generation {generation}: {owner} and {member}"
        for other in self.members:
            if other is not member and self._is_member(other) and self._is_member(member):
                both = other.owned & frozenset(added)
                assert not both, f"{both} go to {member} while {other} reads them"
        for tp in added:
            self._reading.pop((member, tp), None)

    def delivered(
        self, member: SimulatedMember, tp: TopicPartition, offsets: range, version: int
    ) -> None:
        """Note that an application got records."""
        reading = self._reading.get((member, tp))
        if reading is None or reading[0] != version:
            self._begin(member, tp, offsets.start)
        else:
            assert offsets.start == reading[1], f"{tp}: {offsets.start} after {reading[1]}"
        self._reading[member, tp] = (version, offsets.stop)
        prefix = self.prefix.get(tp, 0)
        assert offsets.start <= prefix, f"{tp}: {prefix} to {offsets.start} are lost"
        self.duplicates += max(0, min(prefix, offsets.stop) - offsets.start)
        self.prefix[tp] = max(prefix, offsets.stop)
        self._is_committed[tp] = False

    def _is_member(self, member: SimulatedMember) -> bool:
        """Return whether the coordinator agrees that this is a member of this generation.

        An expelled member does not know it yet, and reads on. A generation without a SyncGroup is
        forgotten when the coordinator moves, and its number used again.
        """
        group = self._groups.classic(GROUP)
        identity = member.membership.identity
        return (
            member.is_alive
            and group is not None
            and identity is not None
            and identity.member_id in group.members
            and identity.generation_id == group.generation
        )

    def _begin(self, member: SimulatedMember, tp: TopicPartition, offset: int) -> None:
        committed = self._groups.offsets(GROUP).get(tp)
        start = 0 if committed is None else committed.offset
        assert offset <= start, f"{tp} begins at {offset}, committed is {start}"
        if not self._is_member(member):
            return
        assert offset == start, f"{tp} begins at {offset}, committed is {start}"
        prefix = self.prefix.get(tp, 0)
        if self._is_committed.get(tp, False):
            assert offset == prefix, (
                f"{tp} begins at {offset}, everything to {prefix} was committed"
            )

    def given_up(self, tp: TopicPartition, position: int, committed: int | None) -> None:
        """Note that an application gave a partition up, after committing so much of it."""
        if committed == position and position == self.prefix.get(tp, 0):
            self._is_committed[tp] = True

    def check_commits(self) -> None:
        """Look at the commits that came since the last time."""
        history = self._groups.offsets(GROUP).history
        for tp, entry in history[self._seen_commits :]:
            before = self._committed.get(tp, 0)
            assert entry.offset >= before, f"{tp}: commit of {entry.offset} after {before}"
            assert entry.offset <= self.prefix.get(tp, 0), f"{tp}: {entry.offset} was not delivered"
            self._committed[tp] = entry.offset
        self._seen_commits = len(history)
