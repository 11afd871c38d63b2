"""Fetch (key 1): record batches with KIP-74 limits, KIP-227 sessions and the long poll.

The session rules turn the request into a list of partitions. While there are fewer bytes than
``min_bytes``, without an error or a redirect, the response is delayed for up to ``max_wait_ms``.
Then the partitions are read in session order under the byte limits, and the session decides which
of them the response lists.

Until one partition has given data, at least one whole batch is returned however large (KIP-74);
after that each gets at most what is left. A follower serves what it has, up to the high watermark
it knows (KIP-392).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kfast.errors import ErrorCode
from kfast.protocol.message import Message
from kfast.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kfast.testing.answers import Answer, DelayedAnswer
from kfast.testing.context import RequestContext
from kfast.testing.fetch_sessions import (
    PartitionKey,
    PartitionOutcome,
    RequestedPartition,
    SessionRequest,
    note_answer,
)
from kfast.testing.topology import FakePartition
from kfast.types import ZERO_UUID

FIRST_VERSION_WITH_RACK: Final = 11
FIRST_VERSION_WITH_IDS: Final = 13
FIRST_VERSION_WITH_HINTS: Final = 16
READ_COMMITTED: Final = 1

_HINTED_ERRORS: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def handle_fetch(context: RequestContext, request: FetchRequest) -> Answer:
    """Answer one request, at once or after a long poll."""
    if context.plan.top_level_error:
        return FetchResponse(error_code=context.plan.top_level_error)
    uses_ids = context.version >= FIRST_VERSION_WITH_IDS
    session = context.cluster.sessions(context.node_id).open_request(
        request.session_id,
        request.session_epoch,
        _requested(request, uses_ids),
        _forgotten(request, uses_ids),
        uses_topic_ids=uses_ids,
    )
    if session.error:
        return FetchResponse(error_code=session.error)
    if context.plan.is_quota_exceeded:
        return FetchResponse(session_id=session.session_id if session.is_incremental else 0)

    read = FetchRead(
        context=context,
        read_committed=request.isolation_level == READ_COMMITTED,
        max_bytes=min(request.max_bytes, context.cluster.fetch_max_bytes),
        rack_id=request.rack_id,
    )

    def complete(is_time_up: bool) -> Message | None:
        partitions = read_partitions(read, session.partitions)
        if not (
            is_time_up
            or request.max_wait_ms <= 0
            or not session.partitions
            or any(partition.ends_wait for partition in partitions)
            or sum(partition.available_bytes for partition in partitions) >= request.min_bytes
        ):
            return None
        return _response(context, session, partitions)

    return DelayedAnswer(complete, context.now_ms + request.max_wait_ms)


def _requested(request: FetchRequest, uses_ids: bool) -> dict[PartitionKey, RequestedPartition]:
    return {
        _key(topic.topic, topic.topic_id, partition.partition, uses_ids): RequestedPartition(
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
            partition.log_start_offset,
        )
        for topic in request.topics
        for partition in topic.partitions
    }


def _forgotten(request: FetchRequest, uses_ids: bool) -> list[PartitionKey]:
    return [
        _key(topic.topic, topic.topic_id, partition, uses_ids)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


def _key(topic: str, topic_id: bytes, partition: int, uses_ids: bool) -> PartitionKey:
    return ("", topic_id, partition) if uses_ids else (topic, ZERO_UUID, partition)


def _response(
    context: RequestContext, session: SessionRequest, partitions: list[PartitionRead]
) -> FetchResponse:
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    leaders: set[int] = set()
    for partition in partitions:
        data = partition.data
        outcome = PartitionOutcome(
            data.error_code,
            len(data.records or b""),
            data.high_watermark,
            data.log_start_offset,
            data.preferred_read_replica,
            data.diverging_epoch.epoch >= 0,
        )
        if not note_answer(session, partition.key, outcome):
            continue
        topic = topics.setdefault(
            (partition.topic, partition.topic_id),
            FetchableTopicResponse(partition.topic, partition.topic_id),
        )
        topic.partitions.append(data)
        if data.current_leader.leader_id >= 0:
            leaders.add(data.current_leader.leader_id)
    endpoints = []
    if context.version >= FIRST_VERSION_WITH_HINTS:
        for leader in sorted(leaders):
            node = context.cluster.nodes[leader]
            endpoints.append(NodeEndpoint(leader, *node.address, node.rack))
    return FetchResponse(
        session_id=session.session_id,
        responses=list(topics.values()),
        node_endpoints=endpoints,
    )


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchRead:
    """Limits of one request, and of the client that sent it."""

    context: RequestContext
    read_committed: bool
    max_bytes: int
    rack_id: str


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """One partition of the response.

    Attributes
    ----------
    available_bytes : int
        Those that count towards ``min_bytes``.
    """

    key: PartitionKey
    topic: str
    topic_id: bytes
    data: PartitionData
    available_bytes: int = 0

    @property
    def ends_wait(self) -> bool:
        """Return whether the answer must go out although too few bytes are there."""
        data = self.data
        return bool(
            data.error_code or data.preferred_read_replica >= 0 or data.diverging_epoch.epoch >= 0
        )


def read_partitions(
    read: FetchRead, requested: dict[PartitionKey, RequestedPartition]
) -> list[PartitionRead]:
    """Read all partitions in order under the byte limit."""
    partitions = []
    bytes_left = read.max_bytes
    at_least_one = True
    for key, request in requested.items():
        partition = _read_partition(read, key, request, bytes_left, at_least_one)
        size = len(partition.data.records or b"")
        bytes_left = max(0, bytes_left - size)
        at_least_one = at_least_one and size == 0
        partitions.append(partition)
    return partitions


def _read_partition(
    read: FetchRead,
    key: PartitionKey,
    request: RequestedPartition,
    bytes_left: int,
    at_least_one: bool,
) -> PartitionRead:
    context = read.context
    topic, topic_id, number = key
    if topic_id != ZERO_UUID:
        topic = context.cluster.topic_name(topic_id)
        if not topic:
            error = context.plan.error_for("", number) or ErrorCode.UNKNOWN_TOPIC_ID
            return PartitionRead(key, topic, topic_id, _error(number, error))
    else:
        topic_id = context.cluster.topic_id(topic)
    error, partition = context.find_partition(
        topic,
        number,
        request.current_leader_epoch,
        allows_follower=context.version >= FIRST_VERSION_WITH_RACK,
    )
    if error or partition is None:
        data = _error(number, error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition is not None:
            _add_hint(context, data, partition)
        return PartitionRead(key, topic, topic_id, data)

    data = _healthy(context, partition)
    log_start, log_end = partition.offsets(context.node_id)
    preferred = context.cluster.preferred_replica(
        partition, context.node_id, read.rack_id, request.fetch_offset
    )
    if preferred >= 0:
        data.preferred_read_replica = preferred
    elif request.last_fetched_epoch >= 0 and (diverging := _divergence(partition, request)):
        data.diverging_epoch = diverging
    elif not log_start <= request.fetch_offset <= log_end:
        data = _error(number, ErrorCode.OFFSET_OUT_OF_RANGE)
    else:
        available = _read_records(
            read, partition, request, data, min(bytes_left, request.max_bytes), at_least_one
        )
        return PartitionRead(key, topic, topic_id, data, available)
    return PartitionRead(key, topic, topic_id, data)


def _read_records(
    read: FetchRead,
    partition: FakePartition,
    request: RequestedPartition,
    data: PartitionData,
    max_bytes: int,
    at_least_one: bool,
) -> int:
    """Fill in records and aborted transactions; return the bytes that count as available."""
    limit = data.last_stable_offset if read.read_committed else data.high_watermark
    log = partition.log
    records = log.read(request.fetch_offset, max_bytes, limit, at_least_one=at_least_one)
    data.records = records.data
    if read.read_committed:
        data.aborted_transactions = [
            AbortedTransaction(entry.producer_id, entry.first_offset)
            for entry in log.aborted_between(request.fetch_offset, records.next_offset)
        ]
    return log.readable_bytes(request.fetch_offset, request.max_bytes, limit)


def _healthy(context: RequestContext, partition: FakePartition) -> PartitionData:
    return PartitionData(
        partition.partition,
        0,
        partition.high_watermark(context.node_id),
        partition.last_stable_offset(context.node_id),
        partition.offsets(context.node_id)[0],
        records=b"",
        aborted_transactions=None,
    )


def _error(number: int, error: int) -> PartitionData:
    return PartitionData(number, error, -1, -1, -1, records=b"", aborted_transactions=None)


def _add_hint(context: RequestContext, data: PartitionData, partition: FakePartition) -> None:
    """Name the leader with errors 6 and 74, if the cluster sends such hints (KIP-951)."""
    if (
        data.error_code in _HINTED_ERRORS
        and context.version >= FIRST_VERSION_WITH_HINTS
        and context.cluster.has_leader_hints
        and partition.leader >= 0
    ):
        data.current_leader = LeaderIdAndEpoch(partition.leader, partition.leader_epoch)


def _divergence(partition: FakePartition, request: RequestedPartition) -> EpochEndOffset | None:
    """Where the log of the client diverges from this one (KIP-595), None if it does not."""
    end = partition.log.end_of_epoch(request.last_fetched_epoch)
    if end.leader_epoch < request.last_fetched_epoch or end.end_offset < request.fetch_offset:
        return EpochEndOffset(end.leader_epoch, end.end_offset)
    return None
