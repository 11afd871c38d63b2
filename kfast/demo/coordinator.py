"""DemoCoordinator: the group coordinator of the demo's broker, for the classic protocol.

Owns the groups, their members and committed offsets. Any thread; a JoinGroup or SyncGroup that has
to wait for other members blocks its own, which is that of one connection. Static members are
replaced by their successors. A request of a member moves a group on::

    Empty  --JoinGroup-->  PreparingRebalance  --all have joined, or time is up-->
    CompletingRebalance  --SyncGroup of the leader-->  Stable  --JoinGroup, LeaveGroup, session-->
    PreparingRebalance
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from kfast.errors import ErrorCode
from kfast.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from kfast.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kfast.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kfast.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from kfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

EMPTY: Final = "Empty"
PREPARING: Final = "PreparingRebalance"
COMPLETING: Final = "CompletingRebalance"
STABLE: Final = "Stable"

PROTOCOL_TYPE: Final = "consumer"
NO_GENERATION: Final = -1
MOST_GROUPS: Final = 100
MOST_MEMBERS: Final = 100
"""Of one group."""

_LONGEST_WAIT_S: Final = 300.0


@dataclass(slots=True, eq=False)
class _Member:
    """One member; ``until`` is the end of its session."""

    member_id: str
    client_id: str
    instance_id: str | None
    session_s: float
    rebalance_s: float
    protocols: dict[str, bytes]
    until: float
    has_joined: bool = True
    assignment: bytes = b""


@dataclass(slots=True, eq=False)
class _Group:
    """One group; ``changed`` is notified at each step of a rebalance."""

    name: str
    changed: threading.Condition
    members: dict[str, _Member] = field(default_factory=dict)
    state: str = EMPTY
    generation: int = 0
    protocol: str = ""
    leader: str = ""
    deadline: float = 0.0
    """Of members that have not joined yet."""
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def refusal(self, member_id: str, generation: int) -> int:
        """Return why a member may not do something, and prolong its session if it may."""
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        member.until = time.monotonic() + member.session_s
        return ErrorCode.NONE

    def begin_rebalance(self) -> None:
        """Let all members join again, or end the group's life if there are none."""
        for member in self.members.values():
            member.has_joined = False
        longest = max((each.rebalance_s for each in self.members.values()), default=0.0)
        self.deadline = time.monotonic() + min(longest, _LONGEST_WAIT_S)
        self.state = PREPARING if self.members else EMPTY
        self.changed.notify_all()

    def look(self) -> None:
        """Remove members whose session is over, and go on if all others have joined."""
        now = time.monotonic()
        if self.state == PREPARING:
            is_late = now >= self.deadline
            gone = [k for k, m in self.members.items() if not m.has_joined and is_late]
        else:
            gone = [k for k, m in self.members.items() if now >= m.until]
        for key in gone:
            del self.members[key]
        if gone and self.state != PREPARING:
            self.begin_rebalance()
        if self.state == PREPARING and all(each.has_joined for each in self.members.values()):
            self._complete_join()

    def _complete_join(self) -> None:
        members = [*self.members.values()]
        self.generation += 1
        self.state = COMPLETING if members else EMPTY
        if members:
            first = next((m for m in members if m.member_id == self.leader), members[0])
            self.leader = first.member_id
            common = (
                name for name in first.protocols if all(name in each.protocols for each in members)
            )
            self.protocol = next(common, "")
        for each in members:
            each.assignment = b""
            each.until = time.monotonic() + each.session_s
        self.changed.notify_all()


class DemoCoordinator:
    """Answers what members of groups ask; ``end`` lets what waits go."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._groups: dict[str, _Group] = {}
        self._numbers = itertools.count(1)
        self._is_ending = False

    def end(self) -> None:
        """Answer all that wait."""
        with self._lock:
            self._is_ending = True
            for group in self._groups.values():
                group.changed.notify_all()

    # --- members ----------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client_id: str) -> JoinGroupResponse:
        """Let a member join, and wait for the others."""
        with self._lock:
            group = self._group(request.group_id)
            error, member = self._enter(group, request, client_id)
            if group is None or member is None:
                return _not_joined(error, request.member_id)
            group.look()
            generation = group.generation
            while group.state == PREPARING and generation == group.generation:
                if self._is_ending or group.members.get(member.member_id) is not member:
                    return _not_joined(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)
                group.changed.wait(max(0.01, min(1.0, group.deadline - time.monotonic())))
                group.look()
            is_leader = group.leader == member.member_id
            return JoinGroupResponse(
                0,
                ErrorCode.NONE,
                group.generation,
                PROTOCOL_TYPE,
                group.protocol,
                group.leader,
                False,
                member.member_id,
                [
                    JoinGroupResponseMember(
                        each.member_id, each.instance_id, each.protocols.get(group.protocol, b"")
                    )
                    for each in group.members.values()
                    if is_leader
                ],
            )

    def _enter(
        self, group: _Group | None, request: JoinGroupRequest, client_id: str
    ) -> tuple[int, _Member | None]:
        """Return the member, which has joined, or why it cannot."""
        protocols = {each.name: each.metadata for each in request.protocols}
        if group is None:
            return ErrorCode.INVALID_GROUP_ID, None
        others = [m for k, m in group.members.items() if k != request.member_id]
        is_common = not others or any(
            all(name in each.protocols for each in others) for name in protocols
        )
        if request.protocol_type != PROTOCOL_TYPE or not protocols or not is_common:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL, None
        if request.member_id and request.member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID, None
        if not request.member_id and len(group.members) >= MOST_MEMBERS:
            return ErrorCode.GROUP_MAX_SIZE_REACHED, None
        instance = request.group_instance_id
        if instance is not None:
            for each in [m for m in others if m.instance_id == instance]:
                del group.members[each.member_id]
        session_s = max(1.0, request.session_timeout_ms / 1000)
        member = _Member(
            request.member_id or f"{client_id}-{next(self._numbers)}",
            client_id,
            instance,
            session_s,
            max(session_s, request.rebalance_timeout_ms / 1000),
            protocols,
            time.monotonic() + session_s,
        )
        group.members[member.member_id] = member
        if group.state != PREPARING:
            group.begin_rebalance()
        member.has_joined = True
        return ErrorCode.NONE, member

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Take the assignments of the leader, and wait for those."""
        with self._lock:
            group = self._groups.get(request.group_id)
            if group is None:
                return SyncGroupResponse(0, ErrorCode.UNKNOWN_MEMBER_ID)
            error = group.refusal(request.member_id, request.generation_id)
            if not error and group.state == COMPLETING and request.member_id == group.leader:
                for each in request.assignments:
                    if each.member_id in group.members:
                        group.members[each.member_id].assignment = each.assignment
                group.state = STABLE
                group.changed.notify_all()
            while not error and group.state == COMPLETING and not self._is_ending:
                group.changed.wait(1.0)
                group.look()
                error = group.refusal(request.member_id, request.generation_id)
            if not error and group.state != STABLE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
            if error:
                return SyncGroupResponse(0, error)
            member = group.members[request.member_id]
            return SyncGroupResponse(0, 0, PROTOCOL_TYPE, group.protocol, member.assignment)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Prolong the session of a member; it learns that it has to join again."""
        with self._lock:
            group = self._groups.get(request.group_id)
            if group is None:
                return HeartbeatResponse(0, ErrorCode.UNKNOWN_MEMBER_ID)
            error = group.refusal(request.member_id, request.generation_id)
            group.look()
            if not error and group.state == PREPARING:
                error = ErrorCode.REBALANCE_IN_PROGRESS
            return HeartbeatResponse(0, error)

    def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Remove members."""
        with self._lock:
            group = self._groups.get(request.group_id)
            answers = []
            for each in request.members:
                gone = None if group is None else group.members.pop(each.member_id, None)
                error = ErrorCode.UNKNOWN_MEMBER_ID if gone is None else ErrorCode.NONE
                answers.append(MemberResponse(each.member_id, each.group_instance_id, error))
            if group is not None and any(not each.error_code for each in answers):
                if group.state == PREPARING:
                    group.look()
                else:
                    group.begin_rebalance()
            return LeaveGroupResponse(0, 0, answers)

    # --- offsets ----------------------------------------------------------------------------------

    def commit(
        self, name: str, member_id: str, generation: int, offsets: dict[tuple[str, int], int]
    ) -> int:
        """Store offsets, of a member or of a group that has none; return an error code."""
        with self._lock:
            group = self._group(name)
            if group is None:
                return ErrorCode.INVALID_GROUP_ID
            if generation != NO_GENERATION or group.members:
                error = group.refusal(member_id, generation)
                if error:
                    return error
            group.offsets.update(offsets)
            return ErrorCode.NONE

    def committed(self, name: str) -> dict[tuple[str, int], int]:
        """Return the offsets of a group."""
        with self._lock:
            group = self._groups.get(name)
            return {} if group is None else dict(group.offsets)

    # --- descriptions -----------------------------------------------------------------------------

    def states(self) -> dict[str, str]:
        """Return the state of each group."""
        with self._lock:
            for group in self._groups.values():
                group.look()
            return {name: group.state for name, group in self._groups.items()}

    def describe(self, name: str, host: str) -> DescribedGroup:
        """Return a group with its members; a dead one if there is none."""
        with self._lock:
            group = self._groups.get(name)
            if group is None:
                return DescribedGroup(0, None, name, "Dead", "", "", [])
            group.look()
            members = [
                DescribedGroupMember(
                    each.member_id,
                    each.instance_id,
                    each.client_id,
                    f"/{host}",
                    each.protocols.get(group.protocol, b""),
                    each.assignment,
                )
                for each in group.members.values()
            ]
            protocol = group.protocol if members else ""
            return DescribedGroup(0, None, name, group.state, PROTOCOL_TYPE, protocol, members)

    def _group(self, name: str) -> _Group | None:
        if name and name not in self._groups and len(self._groups) < MOST_GROUPS:
            self._groups[name] = _Group(name, threading.Condition(self._lock))
        return self._groups.get(name)

    def __repr__(self) -> str:
        return f"<DemoCoordinator {len(self._groups)} groups>"


def _not_joined(error: int, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(0, error, NO_GENERATION, PROTOCOL_TYPE, "", "", False, member_id, [])
