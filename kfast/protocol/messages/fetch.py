"""Fetch (key 1): record batches (KIP-74 limits, KIP-227 sessions, KIP-516 ids, KIP-951 hints).

The response class is for tests and the fake broker: a consumer reads responses with the compiled
``kfast._native.fetch_response``, from the frame and without copying the records. Tests compare
both.

Version 12 is the last with topic names and the first flexible one; 13 has topic ids instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import I8, I16, I32, I64, RECORDS, STR, UUID, ArrayOf, wire

LAST_VERSION_WITH_TOPIC_NAMES: Final = 12
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
NO_LIMIT: Final = 0x7FFFFFFF
FEATURE_NOT_SUPPORTED: Final = 0x7FFFFFFFFFFFFFFF


@dataclass(slots=True)
class AbortedTransaction:
    """A transaction whose records read_committed consumers drop from ``first_offset`` on."""

    producer_id: int = wire(I64, "4+")
    first_offset: int = wire(I64, "4+")


@dataclass(slots=True)
class EpochEndOffset:
    """Where the logs of fetcher and leader diverge."""

    epoch: int = wire(I32, "12+", default=-1)
    end_offset: int = wire(I64, "12+", default=-1)


@dataclass(slots=True)
class LeaderIdAndEpoch:
    """The current leader, sent with errors 6 and 74 (KIP-951)."""

    leader_id: int = wire(I32, "12+", default=-1)
    leader_epoch: int = wire(I32, "12+", default=-1)


@dataclass(slots=True)
class SnapshotId:
    """For replicas only."""

    end_offset: int = wire(I64, default=-1)
    epoch: int = wire(I32, default=-1)


@dataclass(slots=True)
class PartitionData:
    """Records and offsets of one partition; offsets are -1 with an error."""

    partition_index: int = wire(I32)
    error_code: int = wire(I16)
    high_watermark: int = wire(I64)
    last_stable_offset: int = wire(I64, "4+", default=-1, ignorable=True)
    log_start_offset: int = wire(I64, "5+", default=-1, ignorable=True)
    aborted_transactions: list[AbortedTransaction] | None = wire(
        ArrayOf(AbortedTransaction), "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = wire(I32, "11+", default=-1)
    records: bytes | None = wire(RECORDS, nullable="0+")
    diverging_epoch: EpochEndOffset = wire(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = wire(SnapshotId, "12+", tag=2)


@dataclass(slots=True)
class FetchableTopicResponse:
    """The partitions of one topic."""

    topic: str = wire(STR, "0-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)
    partitions: list[PartitionData] = wire(ArrayOf(PartitionData))


@dataclass(slots=True)
class NodeEndpoint:
    """Address of a leader named in a ``current_leader`` (KIP-951)."""

    node_id: int = wire(I32, "16+")
    host: str = wire(STR, "16+")
    port: int = wire(I32, "16+")
    rack: str | None = wire(STR, "16+", nullable="16+", default=None)


@dataclass(slots=True)
class FetchResponse(Message):
    """Record batches and offsets of the fetched partitions."""

    API_KEY = ApiKey.FETCH
    NAME = "Fetch"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.FETCH]

    throttle_time_ms: int = wire(I32, "1+", ignorable=True)
    error_code: int = wire(I16, "7+", ignorable=True)
    session_id: int = wire(I32, "7+")
    responses: list[FetchableTopicResponse] = wire(ArrayOf(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = wire(ArrayOf(NodeEndpoint), "16+", tag=0)


@dataclass(slots=True)
class FetchPartition:
    """Fetch offset and limits of one partition; the last two fields are for replicas only."""

    partition: int = wire(I32)
    current_leader_epoch: int = wire(I32, "9+", default=-1, ignorable=True)
    fetch_offset: int = wire(I64)
    last_fetched_epoch: int = wire(I32, "12+", default=-1)
    log_start_offset: int = wire(I64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = wire(I32)
    replica_directory_id: bytes = wire(UUID, "17+", tag=0, ignorable=True)
    high_watermark: int = wire(I64, "18+", tag=1, default=FEATURE_NOT_SUPPORTED, ignorable=True)


@dataclass(slots=True)
class FetchTopic:
    """Partitions of one topic; by name up to version 12, by id from 13."""

    topic: str = wire(STR, "0-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)
    partitions: list[FetchPartition] = wire(ArrayOf(FetchPartition))


@dataclass(slots=True)
class ForgottenTopic:
    """Partitions to remove from the fetch session."""

    topic: str = wire(STR, "7-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)
    partitions: list[int] = wire(ArrayOf(I32), "7+")


@dataclass(slots=True)
class ReplicaState:
    """For replicas only."""

    replica_id: int = wire(I32, "15+", default=-1)
    replica_epoch: int = wire(I64, "15+", default=-1)


@dataclass(slots=True)
class FetchRequest(RequestMessage):
    """Request; consumers use the defaults of ``replica_id`` and ``replica_state``."""

    API_KEY = ApiKey.FETCH
    NAME = "Fetch"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.FETCH]
    RESPONSE: ClassVar[type[Message]] = FetchResponse

    replica_id: int = wire(I32, "0-14", default=-1)
    max_wait_ms: int = wire(I32)
    min_bytes: int = wire(I32)
    max_bytes: int = wire(I32, "3+", default=NO_LIMIT, ignorable=True)
    isolation_level: int = wire(I8, "4+", ignorable=True)
    session_id: int = wire(I32, "7+", ignorable=True)
    session_epoch: int = wire(I32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = wire(ArrayOf(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = wire(ArrayOf(ForgottenTopic), "7+")
    rack_id: str = wire(STR, "11+", ignorable=True)
    cluster_id: str | None = wire(STR, "12+", tag=0, nullable="12+", default=None, ignorable=True)
    replica_state: ReplicaState = wire(ReplicaState, "15+", tag=1)
