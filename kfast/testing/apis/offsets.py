"""ListOffsets (key 2) and OffsetForLeaderEpoch (key 23, KIP-320), answered by the leader only.

=========  ====================================  =============
timestamp  offset                                since version
=========  ====================================  =============
-1         high watermark, or last stable        any
-2         log start                             any
-3         record with the highest timestamp     7
-4         earliest local offset (= log start)   8
-5         last tiered offset (none: -1)         9
-6         earliest pending upload (none: -1)    11
>= 0       first record that is not older        any
=========  ====================================  =============

A special timestamp in a version before its own is error 35, a partition listed twice error 42.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kfast.errors import ErrorCode
from kfast.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kfast.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from kfast.testing.answers import Answer
from kfast.testing.context import RequestContext
from kfast.testing.log import UNDEFINED, PartitionLog

READ_COMMITTED: Final = 1
EARLIEST_LOCAL: Final = -4
FIRST_VERSION_WITH_EPOCHS: Final = 4

_FIRST_VERSION: Final = {
    LATEST_TIMESTAMP: 0,
    EARLIEST_TIMESTAMP: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    -5: 9,
    -6: 11,
}
_NO_VERSION: Final = 1 << 15


def handle_list_offsets(context: RequestContext, request: ListOffsetsRequest) -> Answer:
    """Answer one request."""
    counts = Counter(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    read_committed = request.isolation_level == READ_COMMITTED
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [
                    ListOffsetsPartitionResponse(
                        partition.partition_index, ErrorCode.INVALID_REQUEST
                    )
                    if counts[topic.name, partition.partition_index] > 1
                    else _list_offset(context, topic.name, partition, read_committed)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _list_offset(
    context: RequestContext, topic: str, request: ListOffsetsPartition, read_committed: bool
) -> ListOffsetsPartitionResponse:
    number, timestamp = request.partition_index, request.timestamp
    error, partition = context.find_partition(topic, number, request.current_leader_epoch)
    error = error or context.plan.top_level_error
    if error or partition is None:
        return ListOffsetsPartitionResponse(number, error)
    if timestamp < 0 and context.version < _FIRST_VERSION.get(timestamp, _NO_VERSION):
        return ListOffsetsPartitionResponse(number, ErrorCode.UNSUPPORTED_VERSION)
    log = partition.log
    offset, record_timestamp = _look_up(log, timestamp, log.limit(read_committed=read_committed))
    epoch = UNDEFINED
    if context.version >= FIRST_VERSION_WITH_EPOCHS and offset >= 0:
        is_end = timestamp == LATEST_TIMESTAMP
        epoch = log.latest_epoch() if is_end else log.epoch_at(offset)
    return ListOffsetsPartitionResponse(number, 0, record_timestamp, offset, epoch)


def _look_up(log: PartitionLog, timestamp: int, limit: int) -> tuple[int, int]:
    """Offset and timestamp of a record, -1 where there is none."""
    record: tuple[int, int] | None = None
    if timestamp == LATEST_TIMESTAMP:
        record = limit, UNDEFINED
    elif timestamp in {EARLIEST_TIMESTAMP, EARLIEST_LOCAL}:
        record = log.log_start_offset, UNDEFINED
    elif timestamp == MAX_TIMESTAMP:
        record = log.offset_of_max_timestamp(limit)
    elif timestamp >= 0:
        record = log.offset_for_timestamp(timestamp, limit)
    return record or (UNDEFINED, UNDEFINED)


def handle_offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Answer:
    """Answer one request."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic,
                [_end_of_epoch(context, topic.topic, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _end_of_epoch(
    context: RequestContext, topic: str, request: OffsetForLeaderPartition
) -> EpochEndOffset:
    number = request.partition
    error, partition = context.find_partition(topic, number, request.current_leader_epoch)
    error = error or context.plan.top_level_error
    if error or partition is None:
        return EpochEndOffset(error, number)
    end = partition.log.end_of_epoch(request.leader_epoch)
    return EpochEndOffset(0, number, end.leader_epoch, end.end_offset)
