"""API keys and the versions kfast supports.

The ranges are those of brokers 2.1 to 4.3: each minimum is no higher than the newest version of a
2.1 broker, each maximum is the newest of a 4.3 broker. Owns the table and nothing else.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class ApiKey(IntEnum):
    """Number of an API on the wire."""

    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    OFFSET_FOR_LEADER_EPOCH = 23
    SASL_AUTHENTICATE = 36
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69


NEVER: Final = 0x7FFF
"""Where the first flexible version belongs, of an API without one."""


class ApiSpec(NamedTuple):
    """Versions of one API that kfast supports."""

    min_version: int
    max_version: int
    flexible_from: int
    """First version with compact types and tag sections (KIP-482)."""


API_SPECS: Final[Mapping[int, ApiSpec]] = MappingProxyType(
    {
        ApiKey.FETCH: ApiSpec(10, 18, 12),
        ApiKey.LIST_OFFSETS: ApiSpec(2, 11, 6),
        ApiKey.METADATA: ApiSpec(7, 13, 9),
        ApiKey.OFFSET_COMMIT: ApiSpec(6, 10, 8),
        ApiKey.OFFSET_FETCH: ApiSpec(5, 10, 6),
        ApiKey.FIND_COORDINATOR: ApiSpec(2, 6, 3),
        ApiKey.JOIN_GROUP: ApiSpec(3, 9, 6),
        ApiKey.HEARTBEAT: ApiSpec(2, 4, 4),
        ApiKey.LEAVE_GROUP: ApiSpec(2, 5, 4),
        ApiKey.SYNC_GROUP: ApiSpec(2, 5, 4),
        ApiKey.DESCRIBE_GROUPS: ApiSpec(2, 6, 5),
        ApiKey.LIST_GROUPS: ApiSpec(2, 5, 3),
        ApiKey.SASL_HANDSHAKE: ApiSpec(1, 1, NEVER),
        ApiKey.API_VERSIONS: ApiSpec(0, 4, 3),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiSpec(2, 4, 4),
        ApiKey.SASL_AUTHENTICATE: ApiSpec(0, 2, 2),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiSpec(0, 1, 0),
        ApiKey.CONSUMER_GROUP_DESCRIBE: ApiSpec(0, 1, 0),
    }
)

API_VERSIONS: Final[Mapping[ApiKey, tuple[int, int]]] = MappingProxyType(
    {ApiKey(key): (spec.min_version, spec.max_version) for key, spec in API_SPECS.items()}
)
"""Lowest and highest version kfast supports, by API."""
