"""LeaveGroup (key 13): members leave a classic group.

From version 3 on the request has a list of members, and each has an error code (KIP-345).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import I16, I32, STR, ArrayOf, wire


@dataclass(slots=True)
class MemberResponse:
    """The outcome for one member (version 3+)."""

    member_id: str = wire(STR)
    group_instance_id: str | None = wire(STR, "3+", nullable="3+")
    error_code: int = wire(I16)


@dataclass(slots=True)
class LeaveGroupResponse(Message):
    """Error codes, of the request and of each member."""

    API_KEY = ApiKey.LEAVE_GROUP
    NAME = "LeaveGroup"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.LEAVE_GROUP]

    throttle_time_ms: int = wire(I32, "1+", ignorable=True)
    error_code: int = wire(I16)
    members: list[MemberResponse] = wire(ArrayOf(MemberResponse), "3+")


@dataclass(slots=True)
class MemberIdentity:
    """One member that leaves (version 3+)."""

    member_id: str = wire(STR)
    group_instance_id: str | None = wire(STR, "3+", nullable="3+", default=None)
    reason: str | None = wire(STR, "5+", nullable="5+", default=None, ignorable=True)


@dataclass(slots=True)
class LeaveGroupRequest(RequestMessage):
    """Request; ``member_id`` in version 2, ``members`` from 3 on."""

    API_KEY = ApiKey.LEAVE_GROUP
    NAME = "LeaveGroup"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.LEAVE_GROUP]
    RESPONSE: ClassVar[type[Message]] = LeaveGroupResponse

    group_id: str = wire(STR)
    member_id: str = wire(STR, "0-2")
    members: list[MemberIdentity] = wire(ArrayOf(MemberIdentity), "3+")
