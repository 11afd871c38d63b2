"""The versions of requests that brokers offer, by Kafka release.

An API missing from a release is not offered by it. Ranges are those of the published message
schemas of each release; the newest column was read from a live broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from kfast.protocol.api_keys import ApiKey

VersionRange: TypeAlias = tuple[int, int]

RELEASE_NAMES: Final = ("2.1", "2.8", "3.5", "3.9", "4.0", "4.1", "4.3")

LATEST: Final = RELEASE_NAMES[-1]

_NONE: Final[VersionRange] = (0, -1)

_PRODUCE: Final = 0
"""Offered and refused: without it librdkafka takes a broker for one of the old formats."""

# One row per API, one column per release in the order of RELEASE_NAMES.
_TABLE: Final[Mapping[int, tuple[VersionRange, ...]]] = {
    _PRODUCE: ((0, 7), (0, 9), (0, 9), (0, 11), (0, 12), (0, 13), (0, 13)),
    ApiKey.FETCH: ((0, 10), (0, 12), (0, 15), (0, 17), (4, 17), (4, 18), (4, 18)),
    ApiKey.LIST_OFFSETS: ((0, 4), (0, 6), (0, 8), (0, 9), (1, 10), (1, 10), (1, 11)),
    ApiKey.METADATA: ((0, 7), (0, 11), (0, 12), (0, 12), (0, 13), (0, 13), (0, 13)),
    ApiKey.OFFSET_COMMIT: ((0, 6), (0, 8), (0, 8), (0, 9), (2, 9), (2, 9), (2, 10)),
    ApiKey.OFFSET_FETCH: ((0, 5), (0, 7), (0, 8), (0, 9), (1, 9), (1, 9), (1, 10)),
    ApiKey.FIND_COORDINATOR: ((0, 2), (0, 3), (0, 4), (0, 6), (0, 6), (0, 6), (0, 6)),
    ApiKey.JOIN_GROUP: ((0, 3), (0, 7), (0, 9), (0, 9), (2, 9), (0, 9), (0, 9)),
    ApiKey.HEARTBEAT: ((0, 2), (0, 4), (0, 4), (0, 4), (0, 4), (0, 4), (0, 4)),
    ApiKey.LEAVE_GROUP: ((0, 2), (0, 4), (0, 5), (0, 5), (0, 5), (0, 5), (0, 5)),
    ApiKey.SYNC_GROUP: ((0, 2), (0, 5), (0, 5), (0, 5), (0, 5), (0, 5), (0, 5)),
    ApiKey.DESCRIBE_GROUPS: ((0, 2), (0, 5), (0, 5), (0, 5), (0, 6), (0, 6), (0, 6)),
    ApiKey.LIST_GROUPS: ((0, 2), (0, 4), (0, 4), (0, 5), (0, 5), (0, 5), (0, 5)),
    ApiKey.SASL_HANDSHAKE: ((0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1)),
    ApiKey.API_VERSIONS: ((0, 2), (0, 3), (0, 3), (0, 4), (0, 4), (0, 4), (0, 4)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ((0, 2), (0, 4), (0, 4), (0, 4), (2, 4), (2, 4), (2, 4)),
    ApiKey.SASL_AUTHENTICATE: ((0, 0), (0, 2), (0, 2), (0, 2), (0, 2), (0, 2), (0, 2)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (_NONE, _NONE, _NONE, (0, 0), (0, 1), (0, 1), (0, 1)),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (_NONE, _NONE, _NONE, (0, 0), (0, 1), (0, 1), (0, 1)),
}

RELEASES: Final[Mapping[str, Mapping[int, VersionRange]]] = MappingProxyType(
    {
        release: MappingProxyType(
            {int(api): ranges[column] for api, ranges in _TABLE.items() if ranges[column] != _NONE}
        )
        for column, release in enumerate(RELEASE_NAMES)
    }
)
"""``RELEASES["3.5"][ApiKey.FETCH] == (0, 15)``."""


def has_empty_version_refusal(release: str) -> bool:
    """Return whether this release refuses an ApiVersions version with an empty list.

    Brokers before 2.4 (KIP-511) say error 35 and nothing else; later ones add the range they
    accept for ApiVersions itself.
    """
    major, minor = (int(number) for number in release.split("."))
    return (major, minor) < (2, 4)
