"""One classic consumer group as its coordinator keeps it.

Owns members, generation and state of the group and everything that is parked in it. Requests come
in as method calls with the time; an answer that has to wait goes into a ``Parked`` slot. No lock.

State                  waits for                                    next
EMPTY                  members                                      PREPARING_REBALANCE
PREPARING_REBALANCE    every member to join, or the rebalance time  COMPLETING_REBALANCE, EMPTY
COMPLETING_REBALANCE   the leader's assignments                     STABLE, PREPARING_REBALANCE
STABLE                 nothing                                      PREPARING_REBALANCE
DEAD                   nothing, it was deleted                      -

Times: the session of a member runs unless an answer is parked for it (one that never joined before
has five minutes); members that do not rejoin, or do not sync, within the group's longest rebalance
timeout are removed; the first rebalance of an empty group waits a little for more members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from kfast.errors import ErrorCode
from kfast.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kfast.testing.answers import Parked
from kfast.testing.groups.classic_member import (
    ClassicMember,
    join_error,
    protocols_of,
    rebalance_timeout_of,
)
from kfast.testing.groups.settings import GroupSettings

FIRST_VERSION_WITH_REQUIRED_ID: Final = 4
FIRST_VERSION_WITH_SKIPPING: Final = 9
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000


class GroupState(Enum):
    """Where the group is in its rebalance; the names are Kafka's."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class _Stored:
    """A group as it is in the log: written when it gets empty or its assignments are known."""

    state: GroupState
    generation: int
    protocol_name: str | None
    leader: str
    members: tuple[ClassicMember, ...]
    static_members: dict[str, str]


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """A classic group.

    Parameters
    ----------
    group_id : str
        Its name.
    settings : GroupSettings
        Timeouts and limits of the brokers.

    Attributes
    ----------
    state : GroupState
        See the table.
    generation : int
        Counts completed joins.
    members : dict
        By member id, in the order they joined.
    leader : str
        Member id of the leader; empty without members.
    static_members : dict
        Instance id to member id.
    """

    group_id: str
    settings: GroupSettings
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    _new_ids: dict[str, int] = field(default_factory=dict)
    _unsynced: set[str] = field(default_factory=set)
    _rebalance_deadline_ms: int | None = None
    _sync_deadline_ms: int | None = None
    _initial_left_ms: int | None = None
    _has_new_member: bool = False
    _stored: _Stored = field(default_factory=lambda: _Stored(GroupState.EMPTY, 0, None, "", (), {}))

    # -- requests --------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, version: int, new_id: str, now_ms: int
    ) -> Parked | JoinGroupResponse:
        """Let a member join; ``new_id`` is for one without an id."""
        parked = Parked(version)
        error = self._join(request, parked, new_id, now_ms)
        if error:
            member_id = new_id if error == ErrorCode.MEMBER_ID_REQUIRED else request.member_id
            return join_error(error, member_id, version)
        return parked.answer if isinstance(parked.answer, JoinGroupResponse) else parked

    def sync(
        self, request: SyncGroupRequest, version: int, now_ms: int
    ) -> Parked | SyncGroupResponse:
        """Hand out assignments."""
        parked = Parked(version)
        error = self._sync(request, parked, now_ms)
        if error:
            return SyncGroupResponse(error_code=error)
        return parked.answer if isinstance(parked.answer, SyncGroupResponse) else parked

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> int:
        """Keep a session alive; return the error to answer."""
        error = self.member_error(member_id, instance_id)
        if error:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._restart_session(self.members[member_id], now_ms)
        return (
            ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING_REBALANCE else 0
        )

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> int:
        """Let one member leave; return the error to answer for it."""
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if member_id not in {"", owner}:
                return ErrorCode.FENCED_INSTANCE_ID
            member_id = owner
        elif member_id in self._new_ids:
            del self._new_ids[member_id]
            self._complete_join_if_all_joined(now_ms)
            return 0
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._remove(member_id, now_ms)
        return 0

    def commit_error(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> int:
        """Return why offsets cannot be committed, 0 if they can; counts as a heartbeat."""
        if generation < 0 and self.state is GroupState.EMPTY:
            return 0
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self.member_error(member_id, instance_id)
        if error:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._restart_session(self.members[member_id], now_ms)
        return 0

    def member_error(self, member_id: str, instance_id: str | None) -> int:
        """Return the error of a member id and an instance id, 0 if there is none."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return 0 if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # -- joining ---------------------------------------------------------------------------

    def _join(self, request: JoinGroupRequest, parked: Parked, new_id: str, now_ms: int) -> int:
        settings = self.settings
        shortest, longest = (
            settings.group_min_session_timeout_ms,
            settings.group_max_session_timeout_ms,
        )
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not self._has_room_for(request):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._supports(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id:
            return self._join_known(request, parked, now_ms)
        instance_id = request.group_instance_id
        if instance_id is not None and instance_id in self.static_members:
            self._replace_static(request, parked, new_id, now_ms)
        elif instance_id is None and parked.version >= FIRST_VERSION_WITH_REQUIRED_ID:
            self._new_ids[new_id] = now_ms + request.session_timeout_ms
            return ErrorCode.MEMBER_ID_REQUIRED
        else:
            self._add(request, parked, new_id, now_ms)
        return 0

    def _join_known(self, request: JoinGroupRequest, parked: Parked, now_ms: int) -> int:
        member_id = request.member_id
        if member_id in self._new_ids and request.group_instance_id is None:
            del self._new_ids[member_id]
            self._add(request, parked, member_id, now_ms)
            return 0
        error = self.member_error(member_id, request.group_instance_id)
        if error:
            return error
        member = self.members[member_id]
        is_same = member.protocols == protocols_of(request)
        is_settled = self.state is GroupState.COMPLETING_REBALANCE or (
            self.state is GroupState.STABLE and member_id != self.leader
        )
        if is_same and is_settled:  # its answer was lost: it gets the same one again
            is_leader = member_id == self.leader
            has_members = is_leader and self.state is GroupState.COMPLETING_REBALANCE
            parked.answer = self._join_answer(member, has_members=has_members)
            return 0
        member.take(request)
        self._park_join(member, parked)
        self._prepare_rebalance(now_ms)
        return 0

    def _add(self, request: JoinGroupRequest, parked: Parked, member_id: str, now_ms: int) -> None:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            rebalance_timeout_of(request),
            request.session_timeout_ms,
            protocols_of(request),
            deadline_ms=now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
        )
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = member
        self.leader = self.leader or member_id
        if request.group_instance_id is not None:
            self.static_members[request.group_instance_id] = member_id
        self._has_new_member = True
        member.join = parked
        self._prepare_rebalance(now_ms)

    def _replace_static(
        self, request: JoinGroupRequest, parked: Parked, new_id: str, now_ms: int
    ) -> None:
        """Give the place of a static member to a new process with its instance id."""
        instance_id = request.group_instance_id or ""
        old_id = self.static_members[instance_id]
        old_leader = self.leader
        member = self.members[old_id]
        member.answer_parked(ErrorCode.FENCED_INSTANCE_ID)
        member.member_id = new_id
        self.members = {new_id if m == old_id else m: one for m, one in self.members.items()}
        self.static_members[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        self._unsynced.discard(old_id)
        member.take(request)
        self._restart_session(member, now_ms)
        if self.state is GroupState.STABLE and self._vote() == self.protocol_name:
            is_leader = self.leader == new_id
            answer = self._join_answer(member, has_members=False)
            if parked.version >= FIRST_VERSION_WITH_SKIPPING:
                if is_leader:
                    answer.skip_assignment = True
                    answer.members = self._described()
            else:
                # Under its old id, so that it does not take itself for the leader: a stable group
                # would ignore its assignments.
                answer.leader = old_leader
            parked.answer = answer
            self._store()
            return
        self._park_join(member, parked)
        self._prepare_rebalance(now_ms)

    def _prepare_rebalance(self, now_ms: int) -> None:
        """Go to PREPARING_REBALANCE, or see whether that is over already."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all_joined(now_ms)
            return
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in self.members.values():
                member.assignment = b""
                self._answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        self._unsynced.clear()
        self._sync_deadline_ms = None
        timeout_ms = self._rebalance_timeout_ms()
        was_empty = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING_REBALANCE
        if was_empty:
            delay_ms = min(self.settings.group_initial_rebalance_delay_ms, timeout_ms)
            self._initial_left_ms = timeout_ms - delay_ms
            self._has_new_member = False
            self._rebalance_deadline_ms = now_ms + delay_ms
            if delay_ms == 0:
                self._complete_join(now_ms)
        else:
            self._initial_left_ms = None
            self._rebalance_deadline_ms = now_ms + timeout_ms
            self._complete_join_if_all_joined(now_ms)

    def _complete_join_if_all_joined(self, now_ms: int) -> None:
        if (
            self.state is GroupState.PREPARING_REBALANCE
            and self._initial_left_ms is None
            and not self._new_ids
            and all(member.join is not None for member in self.members.values())
        ):
            self._complete_join(now_ms)

    def _join_time_is_up(self, now_ms: int) -> None:
        """The rebalance time is over; an initial wait is extended while members keep coming."""
        if self._initial_left_ms and self._has_new_member:
            self._has_new_member = False
            delay_ms = min(self.settings.group_initial_rebalance_delay_ms, self._initial_left_ms)
            self._initial_left_ms -= delay_ms
            self._rebalance_deadline_ms = now_ms + delay_ms
            return
        self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """Start the next generation with the members that joined; drop the others."""
        self._initial_left_ms = None
        for member in list(self.members.values()):
            if member.join is None and member.instance_id is None:
                self._forget(member)
        joined = [member for member in self.members.values() if member.join is not None]
        if self.members and not joined:
            # Static members only, and none is there: wait for them until their sessions end.
            self._rebalance_deadline_ms = now_ms + self._rebalance_timeout_ms()
            return
        self._rebalance_deadline_ms = None
        self.generation += 1
        if not joined:
            self.state = GroupState.EMPTY
            self.protocol_name = None
            self._store()
            return
        if self.members[self.leader].join is None:
            self.leader = joined[0].member_id
        self.protocol_name = self._vote()
        self.state = GroupState.COMPLETING_REBALANCE
        self._unsynced = set(self.members)
        self._sync_deadline_ms = now_ms + self._rebalance_timeout_ms()
        for member in self.members.values():
            member.is_new = False
            self._restart_session(member, now_ms)
            if member.join is not None:
                is_leader = member.member_id == self.leader
                member.join.answer = self._join_answer(member, has_members=is_leader)
                member.join = None

    # -- syncing ---------------------------------------------------------------------------

    def _sync(self, request: SyncGroupRequest, parked: Parked, now_ms: int) -> int:
        error = self.member_error(request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in {None, self.protocol_type}:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in {None, self.protocol_name}:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        member = self.members[request.member_id]
        self._unsynced.discard(member.member_id)
        member.sync = parked
        if self.state is GroupState.STABLE:
            self._answer_sync(member, 0, now_ms)
        elif member.member_id == self.leader:
            assignments = {entry.member_id: entry.assignment for entry in request.assignments}
            for one in self.members.values():
                one.assignment = assignments.get(one.member_id, b"")
            self.state = GroupState.STABLE
            self._store()
            for one in self.members.values():
                self._answer_sync(one, 0, now_ms)
        return 0

    # -- leaving and time ------------------------------------------------------------------

    def expire(self, member_id: str, now_ms: int) -> None:
        """Remove a member as if its session had ended."""
        if member_id in self.members:
            self._remove(member_id, now_ms)

    def give_up_parked(self, error: int) -> None:
        """Answer everything parked with an error, as a coordinator that loses the group does."""
        for member in self.members.values():
            member.answer_parked(error)

    def die(self) -> None:
        """Delete the group."""
        self.give_up_parked(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.state = GroupState.DEAD
        self.members.clear()
        self.static_members.clear()
        self._new_ids.clear()
        self._rebalance_deadline_ms = self._sync_deadline_ms = None

    def reload(self, now_ms: int) -> None:
        """Become the group that another coordinator loads from the log; all sessions start anew.

        A rebalance that was not complete is forgotten, with the members new in it.
        """
        stored = self._stored
        self.state, self.generation = stored.state, stored.generation
        self.protocol_name, self.leader = stored.protocol_name, stored.leader
        self.members = {member.member_id: replace(member) for member in stored.members}
        self.static_members = dict(stored.static_members)
        self._new_ids.clear()
        self._unsynced.clear()
        self._rebalance_deadline_ms = self._sync_deadline_ms = self._initial_left_ms = None
        for member in self.members.values():
            self._restart_session(member, now_ms)

    def _store(self) -> None:
        self._stored = _Stored(
            self.state,
            self.generation,
            self.protocol_name,
            self.leader,
            tuple(
                replace(member, join=None, sync=None, is_new=False)
                for member in self.members.values()
            ),
            dict(self.static_members),
        )

    def next_deadline_ms(self) -> int | None:
        """Return when something happens by time alone."""
        deadlines = [
            self._rebalance_deadline_ms,
            self._sync_deadline_ms,
            *self._new_ids.values(),
            *(member.deadline_ms for member in self.members.values()),
        ]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def time_passed(self, now_ms: int) -> None:
        """Let everything happen that is due."""
        for member_id, deadline_ms in list(self._new_ids.items()):
            if deadline_ms <= now_ms:
                del self._new_ids[member_id]
                self._complete_join_if_all_joined(now_ms)
        for member in list(self.members.values()):
            is_due = member.deadline_ms is not None and member.deadline_ms <= now_ms
            if is_due and member.member_id in self.members and member.session_passed():
                self._remove(member.member_id, now_ms)
        if self._rebalance_deadline_ms is not None and self._rebalance_deadline_ms <= now_ms:
            self._join_time_is_up(now_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._sync_deadline_ms = None
            for member_id in list(self._unsynced):
                if member_id in self.members:
                    self._remove(member_id, now_ms)
            self._unsynced.clear()

    def _remove(self, member_id: str, now_ms: int) -> None:
        self._forget(self.members[member_id])
        if self.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
            self._prepare_rebalance(now_ms)
        else:
            self._complete_join_if_all_joined(now_ms)

    def _forget(self, member: ClassicMember) -> None:
        member.answer_parked(ErrorCode.UNKNOWN_MEMBER_ID)
        del self.members[member.member_id]
        self._unsynced.discard(member.member_id)
        if self.static_members.get(member.instance_id or "") == member.member_id:
            del self.static_members[member.instance_id or ""]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")

    # -- parts -----------------------------------------------------------------------------

    def _park_join(self, member: ClassicMember, parked: Parked) -> None:
        member.join = parked
        if not member.is_new:
            member.deadline_ms = None

    def _restart_session(self, member: ClassicMember, now_ms: int) -> None:
        if not member.is_new:
            member.deadline_ms = now_ms + member.session_timeout_ms

    def _answer_sync(self, member: ClassicMember, error: int, now_ms: int) -> None:
        if member.sync is None:
            return
        assignment = b"" if error else member.assignment
        member.sync.answer = SyncGroupResponse(
            error_code=error,
            protocol_type=None if error else self.protocol_type,
            protocol_name=None if error else self.protocol_name,
            assignment=assignment,
        )
        member.sync = None
        self._restart_session(member, now_ms)

    def _has_room_for(self, request: JoinGroupRequest) -> bool:
        """Return whether the group may have this member; one that is in it counts already."""
        if request.member_id in self.members:
            return True
        return len(self.members) < self.settings.group_max_size

    def _supports(self, request: JoinGroupRequest) -> bool:
        """Return whether a member's protocols fit those of all others."""
        if not request.protocol_type or not request.protocols:
            return False
        if not self.members:
            return True
        names = {protocol.name for protocol in request.protocols}
        others = [m for m in self.members.values() if m.member_id != request.member_id]
        return request.protocol_type == self.protocol_type and (
            not others or bool(names & self._candidates(others))
        )

    @staticmethod
    def _candidates(members: Sequence[ClassicMember]) -> set[str]:
        """Return the protocols that all of some members offer."""
        return set.intersection(*(set(member.protocols) for member in members))

    def _vote(self) -> str:
        """Return the protocol most members like best of those that all offer."""
        members = list(self.members.values())
        candidates = self._candidates(members)
        votes = Counter(
            next(name for name in member.protocols if name in candidates) for member in members
        )
        return votes.most_common(1)[0][0]

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _described(self) -> list[JoinGroupResponseMember]:
        name = self.protocol_name or ""
        return [
            JoinGroupResponseMember(member.member_id, member.instance_id, member.protocols[name])
            for member in self.members.values()
        ]

    def _join_answer(self, member: ClassicMember, *, has_members: bool) -> JoinGroupResponse:
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader,
            member_id=member.member_id,
            members=self._described() if has_members else [],
        )

    def __repr__(self) -> str:
        return (
            f"<ClassicGroup {self.group_id} {self.state.value} generation {self.generation} "
            f"{len(self.members)} members>"
        )
