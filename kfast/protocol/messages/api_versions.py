"""ApiVersions (key 18): the APIs and versions a broker offers (KIP-35, KIP-511, KIP-584).

The response to a version the broker does not know is error 35 in the layout of version 0, and the
response header is version 0 in all versions: see ``headers``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import BOOL, I16, I32, I64, STR, ArrayOf, wire


@dataclass(slots=True)
class ApiVersion:
    """The versions of one API."""

    api_key: int = wire(I16)
    min_version: int = wire(I16)
    max_version: int = wire(I16)


@dataclass(slots=True)
class SupportedFeatureKey:
    """The levels of one feature that the broker supports."""

    name: str = wire(STR, "3+")
    min_version: int = wire(I16, "3+")
    max_version: int = wire(I16, "3+")


@dataclass(slots=True)
class FinalizedFeatureKey:
    """The finalized level of one feature."""

    name: str = wire(STR, "3+")
    max_version_level: int = wire(I16, "3+")
    min_version_level: int = wire(I16, "3+")


@dataclass(slots=True)
class ApiVersionsResponse(Message):
    """APIs and features of the broker."""

    API_KEY = ApiKey.API_VERSIONS
    NAME = "ApiVersions"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.API_VERSIONS]

    error_code: int = wire(I16)
    api_keys: list[ApiVersion] = wire(ArrayOf(ApiVersion))
    throttle_time_ms: int = wire(I32, "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = wire(
        ArrayOf(SupportedFeatureKey), "3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = wire(I64, "3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = wire(
        ArrayOf(FinalizedFeatureKey), "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = wire(BOOL, "3+", tag=3, ignorable=True)


@dataclass(slots=True)
class ApiVersionsRequest(RequestMessage):
    """Request; client software name and version must match the broker's pattern (KIP-511)."""

    API_KEY = ApiKey.API_VERSIONS
    NAME = "ApiVersions"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.API_VERSIONS]
    RESPONSE: ClassVar[type[Message]] = ApiVersionsResponse

    client_software_name: str = wire(STR, "3+", ignorable=True)
    client_software_version: str = wire(STR, "3+", ignorable=True)
