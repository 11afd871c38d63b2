"""The APIs kfast speaks, their numbers and their versions.

Ranges cover what brokers 2.1 to 4.3 can require: each floor is no higher than the newest version
of a 2.1 broker, each ceiling is the newest of a 4.3 broker. Owns the table and nothing else.
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
    API_VERSIONS = 18
    OFFSET_FOR_LEADER_EPOCH = 23


class ApiSpec(NamedTuple):
    """What kfast speaks of one API.

    Attributes
    ----------
    min_version, max_version : int
        Lowest and highest version.
    flexible_from : int
        First version with compact types and tag sections (KIP-482).
    """

    min_version: int
    max_version: int
    flexible_from: int


API_SPECS: Final[Mapping[int, ApiSpec]] = MappingProxyType(
    {
        ApiKey.FETCH: ApiSpec(10, 18, 12),
        ApiKey.LIST_OFFSETS: ApiSpec(2, 11, 6),
        ApiKey.METADATA: ApiSpec(7, 13, 9),
        ApiKey.API_VERSIONS: ApiSpec(0, 4, 3),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiSpec(2, 4, 4),
    }
)

API_VERSIONS: Final[Mapping[ApiKey, tuple[int, int]]] = MappingProxyType(
    {ApiKey(key): (spec.min_version, spec.max_version) for key, spec in API_SPECS.items()}
)
"""Lowest and highest version kfast speaks, by API."""
