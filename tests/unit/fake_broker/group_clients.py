"""Members of classic groups for tests of the fake broker: one connection each, time by hand."""

from __future__ import annotations

from typing import Any

from kfast.protocol.message import RequestMessage
from kfast.protocol.messages.heartbeat import HeartbeatRequest
from kfast.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kfast.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.fake_broker.classic_groups import ClassicGroup
from tests.fake_broker.cluster import FakeCluster
from tests.unit.fake_broker.wire import decode, frame

GROUP = "g"


def group_of(cluster: FakeCluster) -> ClassicGroup:
    """Return the group as its coordinator has it."""
    group = cluster.groups.classic(GROUP)
    assert group is not None
    return group


class Client:
    """A client that keeps one connection to the coordinator of group ``g``."""

    def __init__(self, cluster: FakeCluster, group_id: str = GROUP) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.connection = cluster.connect(cluster.groups.coordinator(group_id))
        self._sent: tuple[RequestMessage, int] | None = None

    def send(self, message: RequestMessage, version: int, now_ms: int) -> None:
        self._sent = (message, version)
        self.connection.receive(frame(message, version), now_ms)

    def receive(self, now_ms: int) -> Any:
        """Return the answer if it is there, else None."""
        assert self._sent is not None
        answer = self.connection.next_chunk(now_ms)
        return None if answer is None else decode(*self._sent, answer)

    def ask(self, message: RequestMessage, version: int, now_ms: int = 0) -> Any:
        """Return the answer to something that is answered at once."""
        self.send(message, version, now_ms)
        answer = self.receive(now_ms)
        assert answer is not None
        return answer


class Member(Client):
    """A member of a classic group.

    Attributes
    ----------
    member_id, generation : str, int
        What the last successful join gave it.
    """

    def __init__(
        self,
        cluster: FakeCluster,
        *protocols: str,
        instance_id: str | None = None,
        version: int = 9,
        rebalance_timeout_ms: int = 60_000,
        session_timeout_ms: int = 10_000,
    ) -> None:
        super().__init__(cluster)
        self.protocols = dict.fromkeys(protocols or ("range",), b"")
        self.instance_id = instance_id
        self.version = version
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.member_id = ""
        self.generation = -1
        self.joined: JoinGroupResponse | None = None

    def join(self, now_ms: int = 0) -> None:
        """Send JoinGroup, twice if the member needs an id first."""
        request = JoinGroupRequest(
            GROUP,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.member_id,
            self.instance_id if self.version >= 5 else None,
            "consumer",
            [JoinGroupRequestProtocol(name, data) for name, data in self.protocols.items()],
        )
        self.send(request, self.version, now_ms)
        answer = self.connection.next_chunk(now_ms) if not self.member_id else None
        if answer is not None:
            response = decode(request, self.version, answer)
            if response.error_code == 79:
                self.member_id = response.member_id
                self.join(now_ms)
                return
            self._take(response)

    def has_joined(self, now_ms: int) -> bool:
        """Return whether the join was answered; keep the answer."""
        response = self.receive(now_ms)
        if response is not None:
            self._take(response)
        return response is not None

    def _take(self, response: JoinGroupResponse) -> None:
        self.joined = response
        if response.error_code == 0:
            self.member_id, self.generation = response.member_id, response.generation_id

    def sync(self, now_ms: int = 0, assignments: dict[str, bytes] | None = None) -> None:
        """Send SyncGroup; assignments by member id from a leader."""
        request = SyncGroupRequest(
            GROUP,
            self.generation,
            self.member_id,
            self.instance_id,
            assignments=[
                SyncGroupRequestAssignment(member, data)
                for member, data in (assignments or {}).items()
            ],
        )
        self.send(request, 5, now_ms)

    def synced(self, now_ms: int = 0) -> tuple[int, bytes] | None:
        """Return error and assignment, None while SyncGroup is parked."""
        answer = self.receive(now_ms)
        return None if answer is None else (answer.error_code, answer.assignment)

    def heartbeat(self, now_ms: int = 0) -> int:
        request = HeartbeatRequest(GROUP, self.generation, self.member_id, self.instance_id)
        return int(self.ask(request, 4, now_ms).error_code)

    def leave(self, now_ms: int = 0) -> int:
        identity = MemberIdentity(self.member_id, self.instance_id)
        answer = self.ask(LeaveGroupRequest(GROUP, members=[identity]), 5, now_ms)
        return int(answer.error_code or answer.members[0].error_code)

    def commit(self, offset: int, now_ms: int = 0, topic: str = "t", version: int = 9) -> int:
        partition = OffsetCommitRequestPartition(0, offset)
        request = OffsetCommitRequest(
            GROUP,
            self.generation,
            self.member_id,
            self.instance_id,
            [OffsetCommitRequestTopic(topic, partitions=[partition])],
        )
        answer = self.ask(request, version, now_ms)
        return int(answer.topics[0].partitions[0].error_code)

    @property
    def is_leader(self) -> bool:
        return self.joined is not None and self.joined.leader == self.member_id


def settled(*members: Member, now_ms: int = 0) -> int:
    """Join and sync members into a stable group; return the time it is then."""
    for member in members:
        member.join(now_ms)
    now_ms += 1_000
    for member in members:
        assert member.has_joined(now_ms)
    leader = next(member for member in members if member.is_leader)
    leader.sync(now_ms, {member.member_id: member.member_id.encode() for member in members})
    for member in members:
        if member is not leader:
            member.sync(now_ms)
        assert member.synced(now_ms) == (0, member.member_id.encode())
    return now_ms
