"""Heartbeat (key 12): keeps the session of a member of a classic group alive.

Error 27 in the response notifies the member of a rebalance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import I16, I32, STR, wire


@dataclass(slots=True)
class HeartbeatResponse(Message):
    """Error code, if the member has to rejoin or is fenced."""

    API_KEY = ApiKey.HEARTBEAT
    NAME = "Heartbeat"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.HEARTBEAT]

    throttle_time_ms: int = wire(I32, "1+", ignorable=True)
    error_code: int = wire(I16)


@dataclass(slots=True)
class HeartbeatRequest(RequestMessage):
    """Request of a member in a generation."""

    API_KEY = ApiKey.HEARTBEAT
    NAME = "Heartbeat"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.HEARTBEAT]
    RESPONSE: ClassVar[type[Message]] = HeartbeatResponse

    group_id: str = wire(STR)
    generation_id: int = wire(I32)
    member_id: str = wire(STR)
    group_instance_id: str | None = wire(STR, "3+", nullable="3+", default=None)
