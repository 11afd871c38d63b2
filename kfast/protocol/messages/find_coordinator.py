"""FindCoordinator (key 10): the broker that is a group's coordinator.

From version 4 on a request may have several keys (KIP-699); the response then has one entry per key
and no top-level fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import I8, I16, I32, STR, ArrayOf, wire

GROUP_KEY_TYPE: Final = 0
"""``key_type`` of a consumer group."""


@dataclass(slots=True)
class Coordinator:
    """The coordinator of one key (version 4+)."""

    key: str = wire(STR)
    node_id: int = wire(I32)
    host: str = wire(STR)
    port: int = wire(I32)
    error_code: int = wire(I16)
    error_message: str | None = wire(STR, "4+", nullable="4+", ignorable=True)


@dataclass(slots=True)
class FindCoordinatorResponse(Message):
    """The coordinator: top-level fields up to version 3, ``coordinators`` from 4 on."""

    API_KEY = ApiKey.FIND_COORDINATOR
    NAME = "FindCoordinator"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.FIND_COORDINATOR]

    throttle_time_ms: int = wire(I32, "1+", ignorable=True)
    error_code: int = wire(I16, "0-3")
    error_message: str | None = wire(STR, "1-3", nullable="1-3", ignorable=True)
    node_id: int = wire(I32, "0-3")
    host: str = wire(STR, "0-3")
    port: int = wire(I32, "0-3")
    coordinators: list[Coordinator] = wire(ArrayOf(Coordinator), "4+")


@dataclass(slots=True)
class FindCoordinatorRequest(RequestMessage):
    """Request; ``key`` up to version 3, ``coordinator_keys`` from 4 on."""

    API_KEY = ApiKey.FIND_COORDINATOR
    NAME = "FindCoordinator"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.FIND_COORDINATOR]
    RESPONSE: ClassVar[type[Message]] = FindCoordinatorResponse

    key: str = wire(STR, "0-3")
    key_type: int = wire(I8, "1+")
    coordinator_keys: list[str] = wire(ArrayOf(STR), "4+")
