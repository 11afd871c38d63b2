"""OffsetFetch (key 9): read the committed offsets of a group.

From version 8 on a request may have several groups (KIP-709); the response then has no top-level
fields. Offset -1 means that there is no committed offset and is never a position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import BOOL, I16, I32, I64, STR, UUID, ArrayOf, wire


@dataclass(slots=True)
class OffsetFetchResponsePartition:
    """Committed offset of one partition (up to version 7)."""

    partition_index: int = wire(I32)
    committed_offset: int = wire(I64)
    committed_leader_epoch: int = wire(I32, "5-7", default=-1, ignorable=True)
    metadata: str | None = wire(STR, "0-7", nullable="0-7")
    error_code: int = wire(I16)


@dataclass(slots=True)
class OffsetFetchResponseTopic:
    """Committed offsets of one topic (up to version 7)."""

    name: str = wire(STR, "0-7")
    partitions: list[OffsetFetchResponsePartition] = wire(
        ArrayOf(OffsetFetchResponsePartition), "0-7"
    )


@dataclass(slots=True)
class OffsetFetchResponsePartitions:
    """Committed offset of one partition (version 8+)."""

    partition_index: int = wire(I32)
    committed_offset: int = wire(I64)
    committed_leader_epoch: int = wire(I32, "8+", default=-1, ignorable=True)
    metadata: str | None = wire(STR, "8+", nullable="8+")
    error_code: int = wire(I16)


@dataclass(slots=True)
class OffsetFetchResponseTopics:
    """Committed offsets of one topic (version 8+)."""

    name: str = wire(STR, "8-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = wire(ArrayOf(OffsetFetchResponsePartitions))


@dataclass(slots=True)
class OffsetFetchResponseGroup:
    """Committed offsets of one group (version 8+)."""

    group_id: str = wire(STR)
    topics: list[OffsetFetchResponseTopics] = wire(ArrayOf(OffsetFetchResponseTopics))
    error_code: int = wire(I16)


@dataclass(slots=True)
class OffsetFetchResponse(Message):
    """Committed offsets: ``topics`` up to version 7, ``groups`` from 8 on."""

    API_KEY = ApiKey.OFFSET_FETCH
    NAME = "OffsetFetch"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.OFFSET_FETCH]

    throttle_time_ms: int = wire(I32, "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = wire(ArrayOf(OffsetFetchResponseTopic), "0-7")
    error_code: int = wire(I16, "2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = wire(ArrayOf(OffsetFetchResponseGroup), "8+")


@dataclass(slots=True)
class OffsetFetchRequestTopic:
    """Requested partitions of one topic (up to version 7)."""

    name: str = wire(STR, "0-7")
    partition_indexes: list[int] = wire(ArrayOf(I32), "0-7")


@dataclass(slots=True)
class OffsetFetchRequestTopics:
    """Requested partitions of one topic (version 8+)."""

    name: str = wire(STR, "8-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    partition_indexes: list[int] = wire(ArrayOf(I32))


@dataclass(slots=True)
class OffsetFetchRequestGroup:
    """One group (version 8+); ``topics`` null means all committed offsets."""

    group_id: str = wire(STR)
    member_id: str | None = wire(STR, "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = wire(I32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = wire(
        ArrayOf(OffsetFetchRequestTopics), "8+", nullable="8+"
    )


@dataclass(slots=True)
class OffsetFetchRequest(RequestMessage):
    """Request; ``group_id`` and ``topics`` up to version 7, ``groups`` from 8 on.

    With ``require_stable`` pending transactional offset commits are an error (KIP-447).
    """

    API_KEY = ApiKey.OFFSET_FETCH
    NAME = "OffsetFetch"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.OFFSET_FETCH]
    RESPONSE: ClassVar[type[Message]] = OffsetFetchResponse

    group_id: str = wire(STR, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = wire(
        ArrayOf(OffsetFetchRequestTopic), "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = wire(ArrayOf(OffsetFetchRequestGroup), "8+")
    require_stable: bool = wire(BOOL, "7+")
