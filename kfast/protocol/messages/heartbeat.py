"""Heartbeat (key 12): a member of a classic group is alive.

The answer is also how a member hears of a rebalance (27).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import I16, I32, STR, wire


@dataclass(slots=True)
class HeartbeatResponse(Message):
    """Whether the member may go on."""

    API_KEY = ApiKey.HEARTBEAT
    NAME = "Heartbeat"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.HEARTBEAT]

    throttle_time_ms: int = wire(I32, "1+", ignorable=True)
    error_code: int = wire(I16)


@dataclass(slots=True)
class HeartbeatRequest(RequestMessage):
    """Keep the session alive."""

    API_KEY = ApiKey.HEARTBEAT
    NAME = "Heartbeat"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.HEARTBEAT]
    RESPONSE: ClassVar[type[Message]] = HeartbeatResponse

    group_id: str = wire(STR)
    generation_id: int = wire(I32)
    member_id: str = wire(STR)
    group_instance_id: str | None = wire(STR, "3+", nullable="3+", default=None)
