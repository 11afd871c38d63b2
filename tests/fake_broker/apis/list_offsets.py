"""ListOffsets (key 2): offsets by timestamp, answered by the leader only.

======  ====================================  =====
stamp   answer                                since
======  ====================================  =====
-1      high watermark, or LSO                any
-2      log start                             any
-3      record with the highest timestamp     7
-4      earliest local offset (= log start)   8
-5      last tiered offset (none: -1)         9
-6      earliest pending upload (none: -1)    11
>= 0    first record not older                any
======  ====================================  =====

A special timestamp in a version before its own is error 35, a partition asked twice error 42.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kfast.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.fake_broker.context import Answer, RequestContext
from tests.fake_broker.log import UNDEFINED, PartitionLog

READ_COMMITTED: Final = 1
UNSUPPORTED_VERSION: Final = 35
INVALID_REQUEST: Final = 42

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4

_FIRST_VERSION: Final = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, -5: 9, -6: 11}


def handle_list_offsets(context: RequestContext, request: ListOffsetsRequest) -> Answer:
    """Answer one request."""
    asked = Counter(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    read_committed = request.isolation_level == READ_COMMITTED
    return ListOffsetsResponse(
        throttle_time_ms=context.plan.throttle_time_ms,
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [
                    ListOffsetsPartitionResponse(partition.partition_index, INVALID_REQUEST)
                    if asked[topic.name, partition.partition_index] > 1
                    else _answer(context, topic.name, partition, read_committed)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _answer(
    context: RequestContext, topic: str, asked: ListOffsetsPartition, read_committed: bool
) -> ListOffsetsPartitionResponse:
    number = asked.partition_index
    error, partition = context.find_partition(topic, number, asked.current_leader_epoch)
    error = error or context.plan.top_level_error
    if error or partition is None:
        return ListOffsetsPartitionResponse(number, error)
    if asked.timestamp < 0 and context.version < _FIRST_VERSION.get(asked.timestamp, 1 << 15):
        return ListOffsetsPartitionResponse(number, UNSUPPORTED_VERSION)
    offset, timestamp = _look_up(
        partition.log, asked.timestamp, partition.log.limit(read_committed=read_committed)
    )
    epoch = UNDEFINED
    if context.version >= 4 and offset >= 0:
        epoch = (
            partition.log.latest_epoch()
            if asked.timestamp == LATEST
            else partition.log.epoch_at(offset)
        )
    return ListOffsetsPartitionResponse(number, 0, timestamp, offset, epoch)


def _look_up(log: PartitionLog, timestamp: int, limit: int) -> tuple[int, int]:
    """Return (offset, timestamp), -1 where there is none."""
    if timestamp == LATEST:
        return limit, UNDEFINED
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return log.log_start_offset, UNDEFINED
    if timestamp == MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp(limit)
    elif timestamp >= 0:
        found = log.offset_for_timestamp(timestamp, limit)
    else:
        found = None
    return found or (UNDEFINED, UNDEFINED)
