"""Fetch (key 1): record batches with KIP-74 limits, KIP-227 sessions and the long poll.

Order of work: the session rules turn the request into a list of partitions; as long as no
``min_bytes`` are there, nothing failed and nothing redirects, the answer waits for ``max_wait_ms``;
then the partitions are read in session order under the byte limits, and the session decides which
of them the answer lists. Reads are the business of ``fetch_read``.
"""

from __future__ import annotations

from typing import Final

from kfast.protocol.message import Message
from kfast.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
)
from kfast.types import ZERO_UUID
from tests.fake_broker.apis.fetch_read import FetchRead, PartitionRead, read_partitions
from tests.fake_broker.context import Answer, DelayedAnswer, RequestContext
from tests.fake_broker.fetch_sessions import (
    FetchWish,
    PartitionKey,
    PartitionOutcome,
    SessionRequest,
    note_answer,
)

FIRST_VERSION_WITH_IDS: Final = 13
FIRST_VERSION_WITH_ENDPOINTS: Final = 16
READ_COMMITTED: Final = 1


def handle_fetch(context: RequestContext, request: FetchRequest) -> Answer:
    """Answer one request, at once or after a long poll."""
    if context.plan.top_level_error:
        return FetchResponse(error_code=context.plan.top_level_error)
    uses_ids = context.version >= FIRST_VERSION_WITH_IDS
    session = context.cluster.sessions(context.node_id).open_request(
        request.session_id,
        request.session_epoch,
        _wishes(request, uses_ids),
        _forgotten(request, uses_ids),
        uses_topic_ids=uses_ids,
    )
    throttle = context.plan.throttle_time_ms
    if session.error:
        return FetchResponse(throttle_time_ms=throttle, error_code=session.error)
    if context.plan.is_quota_exceeded:
        session_id = session.session_id if session.is_incremental else 0
        return FetchResponse(throttle_time_ms=throttle, session_id=session_id)

    read = FetchRead(
        context=context,
        read_committed=request.isolation_level == READ_COMMITTED,
        max_bytes=min(request.max_bytes, context.cluster.fetch_max_bytes),
        rack_id=request.rack_id,
    )

    def complete(is_time_up: bool) -> Message | None:
        found = read_partitions(read, session.wishes)
        if not (
            is_time_up
            or request.max_wait_ms <= 0
            or not session.wishes
            or any(partition.ends_wait for partition in found)
            or sum(partition.available_bytes for partition in found) >= request.min_bytes
        ):
            return None
        return _response(context, session, found)

    return DelayedAnswer(complete, context.now_ms + request.max_wait_ms)


def _wishes(request: FetchRequest, uses_ids: bool) -> dict[PartitionKey, FetchWish]:
    return {
        _key(topic.topic, topic.topic_id, partition.partition, uses_ids): FetchWish(
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
    context: RequestContext, session: SessionRequest, found: list[PartitionRead]
) -> FetchResponse:
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    leaders: set[int] = set()
    for partition in found:
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
    if context.version >= FIRST_VERSION_WITH_ENDPOINTS:
        for leader in sorted(leaders):
            node = context.cluster.nodes[leader]
            endpoints.append(NodeEndpoint(leader, *node.address, node.rack))
    return FetchResponse(
        throttle_time_ms=context.plan.throttle_time_ms,
        session_id=session.session_id,
        responses=list(topics.values()),
        node_endpoints=endpoints,
    )
