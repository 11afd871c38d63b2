"""OffsetForLeaderEpoch (key 23): where an epoch ended, answered by the leader (KIP-320)."""

from __future__ import annotations

from kfast.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from tests.fake_broker.context import Answer, RequestContext


def handle_offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Answer:
    """Answer one request."""
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=context.plan.throttle_time_ms,
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic,
                [_answer(context, topic.topic, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _answer(context: RequestContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    error, partition = context.find_partition(topic, asked.partition, asked.current_leader_epoch)
    error = error or context.plan.top_level_error
    if error or partition is None:
        return EpochEndOffset(error, asked.partition)
    found = partition.log.end_of_epoch(asked.leader_epoch)
    return EpochEndOffset(0, asked.partition, found.leader_epoch, found.end_offset)
