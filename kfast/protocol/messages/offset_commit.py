"""OffsetCommit (key 8): store the committed offsets of a group.

Version 9 is the first that members of KIP-848 groups may use, version 10 names topics by id only.
Errors are per partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import I16, I32, I64, STR, UUID, ArrayOf, wire


@dataclass(slots=True)
class OffsetCommitResponsePartition:
    """Error code of one partition."""

    partition_index: int = wire(I32)
    error_code: int = wire(I16)


@dataclass(slots=True)
class OffsetCommitResponseTopic:
    """Error codes of one topic."""

    name: str = wire(STR, "0-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = wire(ArrayOf(OffsetCommitResponsePartition))


@dataclass(slots=True)
class OffsetCommitResponse(Message):
    """Error codes by topic and partition."""

    API_KEY = ApiKey.OFFSET_COMMIT
    NAME = "OffsetCommit"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.OFFSET_COMMIT]

    throttle_time_ms: int = wire(I32, "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = wire(ArrayOf(OffsetCommitResponseTopic))


@dataclass(slots=True)
class OffsetCommitRequestPartition:
    """Offset to commit in one partition: the next one to read."""

    partition_index: int = wire(I32)
    committed_offset: int = wire(I64)
    committed_leader_epoch: int = wire(I32, "6+", default=-1, ignorable=True)
    committed_metadata: str | None = wire(STR, nullable="0+")


@dataclass(slots=True)
class OffsetCommitRequestTopic:
    """Offsets to commit in one topic."""

    name: str = wire(STR, "0-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = wire(ArrayOf(OffsetCommitRequestPartition))


@dataclass(slots=True)
class OffsetCommitRequest(RequestMessage):
    """Request; without membership generation is -1 and the member id empty."""

    API_KEY = ApiKey.OFFSET_COMMIT
    NAME = "OffsetCommit"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.OFFSET_COMMIT]
    RESPONSE: ClassVar[type[Message]] = OffsetCommitResponse

    group_id: str = wire(STR)
    generation_id_or_member_epoch: int = wire(I32, "1+", default=-1, ignorable=True)
    member_id: str = wire(STR, "1+", ignorable=True)
    group_instance_id: str | None = wire(STR, "7+", nullable="7+", default=None)
    topics: list[OffsetCommitRequestTopic] = wire(ArrayOf(OffsetCommitRequestTopic))
