"""SyncGroup (key 14): the leader sends the assignments, every member receives its own.

A zero-length assignment means that nothing is assigned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import BYTES, I16, I32, STR, ArrayOf, wire


@dataclass(slots=True)
class SyncGroupResponse(Message):
    """The member's assignment (``consumer_protocol``)."""

    API_KEY = ApiKey.SYNC_GROUP
    NAME = "SyncGroup"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.SYNC_GROUP]

    throttle_time_ms: int = wire(I32, "1+", ignorable=True)
    error_code: int = wire(I16)
    protocol_type: str | None = wire(STR, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = wire(STR, "5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = wire(BYTES)


@dataclass(slots=True)
class SyncGroupRequestAssignment:
    """Assignment of one member."""

    member_id: str = wire(STR)
    assignment: bytes = wire(BYTES)


@dataclass(slots=True)
class SyncGroupRequest(RequestMessage):
    """Request; only the leader's ``assignments`` are not empty."""

    API_KEY = ApiKey.SYNC_GROUP
    NAME = "SyncGroup"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.SYNC_GROUP]
    RESPONSE: ClassVar[type[Message]] = SyncGroupResponse

    group_id: str = wire(STR)
    generation_id: int = wire(I32)
    member_id: str = wire(STR)
    group_instance_id: str | None = wire(STR, "3+", nullable="3+", default=None)
    protocol_type: str | None = wire(STR, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = wire(STR, "5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = wire(ArrayOf(SyncGroupRequestAssignment))
