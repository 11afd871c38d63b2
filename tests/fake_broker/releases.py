"""Version ranges per Kafka release, as each release's broker offers them.

Owns one table, and the numbers of the APIs in it, independently of the library under test. An API
missing from a release is not offered by it. Ranges are those of the published message schemas of
each release; the newest column was read from a live broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class Api(IntEnum):
    """Numbers of the APIs a consumer uses, as a broker knows them."""

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


VersionRange = tuple[int, int]

RELEASE_NAMES: Final = ("2.1", "2.8", "3.5", "3.9", "4.0", "4.1", "4.3")

LATEST: Final = RELEASE_NAMES[-1]

_NONE: Final[VersionRange] = (0, -1)

# One row per API, one column per release in the order of RELEASE_NAMES.
_TABLE: Final[Mapping[Api, tuple[VersionRange, ...]]] = {
    Api.FETCH: ((0, 10), (0, 12), (0, 15), (0, 17), (4, 17), (4, 18), (4, 18)),
    Api.LIST_OFFSETS: ((0, 4), (0, 6), (0, 8), (0, 9), (1, 10), (1, 10), (1, 11)),
    Api.METADATA: ((0, 7), (0, 11), (0, 12), (0, 12), (0, 13), (0, 13), (0, 13)),
    Api.OFFSET_COMMIT: ((0, 6), (0, 8), (0, 8), (0, 9), (2, 9), (2, 9), (2, 10)),
    Api.OFFSET_FETCH: ((0, 5), (0, 7), (0, 8), (0, 9), (1, 9), (1, 9), (1, 10)),
    Api.FIND_COORDINATOR: ((0, 2), (0, 3), (0, 4), (0, 6), (0, 6), (0, 6), (0, 6)),
    Api.JOIN_GROUP: ((0, 3), (0, 7), (0, 9), (0, 9), (2, 9), (0, 9), (0, 9)),
    Api.HEARTBEAT: ((0, 2), (0, 4), (0, 4), (0, 4), (0, 4), (0, 4), (0, 4)),
    Api.LEAVE_GROUP: ((0, 2), (0, 4), (0, 5), (0, 5), (0, 5), (0, 5), (0, 5)),
    Api.SYNC_GROUP: ((0, 2), (0, 5), (0, 5), (0, 5), (0, 5), (0, 5), (0, 5)),
    Api.DESCRIBE_GROUPS: ((0, 2), (0, 5), (0, 5), (0, 5), (0, 6), (0, 6), (0, 6)),
    Api.LIST_GROUPS: ((0, 2), (0, 4), (0, 4), (0, 5), (0, 5), (0, 5), (0, 5)),
    Api.SASL_HANDSHAKE: ((0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1)),
    Api.API_VERSIONS: ((0, 2), (0, 3), (0, 3), (0, 4), (0, 4), (0, 4), (0, 4)),
    Api.OFFSET_FOR_LEADER_EPOCH: ((0, 2), (0, 4), (0, 4), (0, 4), (2, 4), (2, 4), (2, 4)),
    Api.SASL_AUTHENTICATE: ((0, 0), (0, 2), (0, 2), (0, 2), (0, 2), (0, 2), (0, 2)),
    Api.CONSUMER_GROUP_HEARTBEAT: (_NONE, _NONE, _NONE, (0, 0), (0, 1), (0, 1), (0, 1)),
    Api.CONSUMER_GROUP_DESCRIBE: (_NONE, _NONE, _NONE, (0, 0), (0, 1), (0, 1), (0, 1)),
}

RELEASES: Final[Mapping[str, Mapping[int, VersionRange]]] = MappingProxyType(
    {
        release: MappingProxyType(
            {int(api): ranges[column] for api, ranges in _TABLE.items() if ranges[column] != _NONE}
        )
        for column, release in enumerate(RELEASE_NAMES)
    }
)
"""``RELEASES["3.5"][Api.FETCH] == (0, 15)``."""


def has_empty_version_refusal(release: str) -> bool:
    """Return whether this release refuses an ApiVersions version with an empty list.

    Brokers before 2.4 (KIP-511) say error 35 and nothing else; later ones add the range they
    accept for ApiVersions itself.
    """
    major, minor = (int(part) for part in release.split("."))
    return (major, minor) < (2, 4)
