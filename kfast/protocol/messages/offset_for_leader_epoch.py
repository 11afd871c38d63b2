"""OffsetForLeaderEpoch (key 23): end offset of a leader epoch, to detect truncation (KIP-320).

Version 2 needs CLUSTER permission on the broker, so clients skip validation below version 3.
``end_offset`` or ``leader_epoch`` -1 in a response means undefined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import I16, I32, I64, STR, ArrayOf, wire


@dataclass(slots=True)
class EpochEndOffset:
    """End offset in one partition; the error code comes before the partition on the wire."""

    error_code: int = wire(I16)
    partition: int = wire(I32)
    leader_epoch: int = wire(I32, "1+", default=-1, ignorable=True)
    end_offset: int = wire(I64, default=-1)


@dataclass(slots=True)
class OffsetForLeaderTopicResult:
    """End offsets in one topic."""

    topic: str = wire(STR)
    partitions: list[EpochEndOffset] = wire(ArrayOf(EpochEndOffset))


@dataclass(slots=True)
class OffsetForLeaderEpochResponse(Message):
    """End offsets by topic and partition."""

    API_KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH
    NAME = "OffsetForLeaderEpoch"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.OFFSET_FOR_LEADER_EPOCH]

    throttle_time_ms: int = wire(I32, "2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = wire(ArrayOf(OffsetForLeaderTopicResult))


@dataclass(slots=True)
class OffsetForLeaderPartition:
    """Look-up of the end of ``leader_epoch`` in one partition."""

    partition: int = wire(I32)
    current_leader_epoch: int = wire(I32, "2+", default=-1, ignorable=True)
    leader_epoch: int = wire(I32)


@dataclass(slots=True)
class OffsetForLeaderTopic:
    """Look-ups in one topic."""

    topic: str = wire(STR)
    partitions: list[OffsetForLeaderPartition] = wire(ArrayOf(OffsetForLeaderPartition))


@dataclass(slots=True)
class OffsetForLeaderEpochRequest(RequestMessage):
    """Request; ``replica_id`` is -1, as a consumer has to send.

    The default of Kafka's schema, -2, is for debugging.
    """

    API_KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH
    NAME = "OffsetForLeaderEpoch"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.OFFSET_FOR_LEADER_EPOCH]
    RESPONSE: ClassVar[type[Message]] = OffsetForLeaderEpochResponse

    replica_id: int = wire(I32, "3+", default=-1, ignorable=True)
    topics: list[OffsetForLeaderTopic] = wire(ArrayOf(OffsetForLeaderTopic))
