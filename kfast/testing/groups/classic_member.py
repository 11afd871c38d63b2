"""One member of a classic group, and the answers parked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kfast.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kfast.protocol.messages.sync_group import SyncGroupResponse
from kfast.testing.answers import Parked

FIRST_VERSION_WITH_NULL_PROTOCOL: Final = 7


@dataclass(slots=True, eq=False)
class ClassicMember:
    """One member.

    Attributes
    ----------
    protocols : dict
        Assignor name to metadata, in order of preference.
    join, sync : Parked or None
        The answers it waits for.
    deadline_ms : int or None
        When its session ends; None while an answer is parked for it.
    is_new : bool
        It has not been in any generation.
    """

    member_id: str
    instance_id: str | None
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]
    assignment: bytes = b""
    join: Parked | None = None
    sync: Parked | None = None
    deadline_ms: int | None = None
    is_new: bool = True

    def take(self, request: JoinGroupRequest) -> None:
        """Take over the timeouts and protocols of a JoinGroup request."""
        self.rebalance_timeout_ms = rebalance_timeout_of(request)
        self.session_timeout_ms = request.session_timeout_ms
        self.protocols = protocols_of(request)

    def answer_parked(self, error: int) -> None:
        """Answer everything parked for the member with an error."""
        if self.join is not None:
            self.join.answer = join_error(error, self.member_id, self.join.version)
            self.join = None
        if self.sync is not None:
            self.sync.answer = SyncGroupResponse(error_code=error)
            self.sync = None

    def session_passed(self) -> bool:
        """Note that its session is over; return whether that ends its membership."""
        self.deadline_ms = None
        return self.is_new or (self.join is None and self.sync is None)

    def __repr__(self) -> str:
        return f"<ClassicMember {self.member_id} until {self.deadline_ms}>"


def join_error(error: int, member_id: str, version: int) -> JoinGroupResponse:
    """Return the answer to a join that failed."""
    return JoinGroupResponse(
        error_code=error,
        protocol_name=None if version >= FIRST_VERSION_WITH_NULL_PROTOCOL else "",
        member_id=member_id,
    )


def protocols_of(request: JoinGroupRequest) -> dict[str, bytes]:
    """Return the assignors a member offers, in order of preference."""
    return {protocol.name: protocol.metadata for protocol in request.protocols}


def rebalance_timeout_of(request: JoinGroupRequest) -> int:
    """Return a member's rebalance timeout; without one it is the session timeout."""
    if request.rebalance_timeout_ms < 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms
