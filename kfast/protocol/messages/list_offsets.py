"""ListOffsets (key 2): offsets by timestamp, and the ends of a log.

Negative timestamps have meanings of their own; offset -1 in a response means that there is no such
record and is never a position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import I8, I16, I32, I64, STR, ArrayOf, wire

LATEST_TIMESTAMP: Final = -1
"""The log end: the last stable offset with read_committed, else the high watermark."""
EARLIEST_TIMESTAMP: Final = -2
"""The log start offset."""
MAX_TIMESTAMP: Final = -3
"""The record with the highest timestamp (version 7+)."""


@dataclass(slots=True)
class ListOffsetsPartitionResponse:
    """Offset of one partition."""

    partition_index: int = wire(I32)
    error_code: int = wire(I16)
    timestamp: int = wire(I64, "1+", default=-1)
    offset: int = wire(I64, "1+", default=-1)
    leader_epoch: int = wire(I32, "4+", default=-1)


@dataclass(slots=True)
class ListOffsetsTopicResponse:
    """Offsets of one topic."""

    name: str = wire(STR)
    partitions: list[ListOffsetsPartitionResponse] = wire(ArrayOf(ListOffsetsPartitionResponse))


@dataclass(slots=True)
class ListOffsetsResponse(Message):
    """Offsets by topic and partition."""

    API_KEY = ApiKey.LIST_OFFSETS
    NAME = "ListOffsets"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.LIST_OFFSETS]

    throttle_time_ms: int = wire(I32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = wire(ArrayOf(ListOffsetsTopicResponse))


@dataclass(slots=True)
class ListOffsetsPartition:
    """Look-up in one partition: the first offset at or after ``timestamp``."""

    partition_index: int = wire(I32)
    current_leader_epoch: int = wire(I32, "4+", default=-1, ignorable=True)
    timestamp: int = wire(I64)


@dataclass(slots=True)
class ListOffsetsTopic:
    """Look-ups in one topic."""

    name: str = wire(STR)
    partitions: list[ListOffsetsPartition] = wire(ArrayOf(ListOffsetsPartition))


@dataclass(slots=True)
class ListOffsetsRequest(RequestMessage):
    """Request; ``replica_id`` is -1, as a consumer has to send, although Kafka's schema says 0."""

    API_KEY = ApiKey.LIST_OFFSETS
    NAME = "ListOffsets"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.LIST_OFFSETS]
    RESPONSE: ClassVar[type[Message]] = ListOffsetsResponse

    replica_id: int = wire(I32, default=-1)
    isolation_level: int = wire(I8, "2+")
    topics: list[ListOffsetsTopic] = wire(ArrayOf(ListOffsetsTopic))
    timeout_ms: int = wire(I32, "10+", ignorable=True)
