"""JoinGroup (key 11): join, or rejoin, a classic group.

The coordinator responds when all members have joined. ``members`` is not empty in the leader's
response only, which then runs the assignor (or not: ``skip_assignment``, KIP-814).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import BOOL, BYTES, I16, I32, STR, ArrayOf, wire

LONGEST_REASON: Final = 255
"""Most characters of ``reason`` that a broker accepts (KIP-800)."""


@dataclass(slots=True)
class JoinGroupResponseMember:
    """One member and its subscription, for the leader."""

    member_id: str = wire(STR)
    group_instance_id: str | None = wire(STR, "5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = wire(BYTES)


@dataclass(slots=True)
class JoinGroupResponse(Message):
    """The generation joined; ``member_id`` is also set with error 79 (KIP-394)."""

    API_KEY = ApiKey.JOIN_GROUP
    NAME = "JoinGroup"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.JOIN_GROUP]

    throttle_time_ms: int = wire(I32, "2+", ignorable=True)
    error_code: int = wire(I16)
    generation_id: int = wire(I32, default=-1)
    protocol_type: str | None = wire(STR, "7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = wire(STR, nullable="7+")
    leader: str = wire(STR)
    skip_assignment: bool = wire(BOOL, "9+")
    member_id: str = wire(STR)
    members: list[JoinGroupResponseMember] = wire(ArrayOf(JoinGroupResponseMember))


@dataclass(slots=True)
class JoinGroupRequestProtocol:
    """A supported assignor and the subscription for it (``consumer_protocol``)."""

    name: str = wire(STR)
    metadata: bytes = wire(BYTES)


@dataclass(slots=True)
class JoinGroupRequest(RequestMessage):
    """Request; ``protocols`` in order of preference."""

    API_KEY = ApiKey.JOIN_GROUP
    NAME = "JoinGroup"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.JOIN_GROUP]
    RESPONSE: ClassVar[type[Message]] = JoinGroupResponse

    group_id: str = wire(STR)
    session_timeout_ms: int = wire(I32)
    rebalance_timeout_ms: int = wire(I32, "1+", default=-1, ignorable=True)
    member_id: str = wire(STR)
    group_instance_id: str | None = wire(STR, "5+", nullable="5+", default=None)
    protocol_type: str = wire(STR)
    protocols: list[JoinGroupRequestProtocol] = wire(ArrayOf(JoinGroupRequestProtocol))
    reason: str | None = wire(STR, "8+", nullable="8+", default=None, ignorable=True)
