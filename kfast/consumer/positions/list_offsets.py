"""ListOffsets as the consumer uses it: one request per leader, and what its answers mean.

Owns the translation between partitions with timestamps and the message, and the table of error
codes. Values and functions only; network thread.

Offset -1 means that there is no such record. It is never a position, and neither is a partition
that the answer leaves out.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from kfast.consumer.error_actions import ErrorAction, ErrorActions
from kfast.errors import ErrorCode, error_info
from kfast.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.client.cluster import Cluster
    from kfast.protocol.messages.list_offsets import ListOffsetsResponse

logger = logging.getLogger(__name__)


LIST_OFFSETS_ACTIONS: Final = ErrorActions(
    {
        ErrorCode.NONE: ErrorAction.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.REFRESH_METADATA,
        ErrorCode.LEADER_NOT_AVAILABLE: ErrorAction.REFRESH_METADATA,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorAction.REFRESH_METADATA,
        ErrorCode.REPLICA_NOT_AVAILABLE: ErrorAction.REFRESH_METADATA,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorAction.REPORT,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: ErrorAction.NO_OFFSET,  # no timestamps
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorAction.REFRESH_METADATA,
        ErrorCode.FENCED_LEADER_EPOCH: ErrorAction.REFRESH_METADATA,
        ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorAction.RETRY,
        ErrorCode.OFFSET_NOT_AVAILABLE: ErrorAction.RETRY,
        ErrorCode.UNKNOWN_TOPIC_ID: ErrorAction.REFRESH_METADATA,
    },
    otherwise=ErrorAction.RETRY,
)
"""Codes without a row are logged."""


class OffsetAnswer(NamedTuple):
    """What a leader answered about one partition.

    Parameters
    ----------
    error_code : int
        Kafka's code.
    offset, timestamp : int
        -1 when there is no such record.
    leader_epoch : int or None
        Epoch of the record, if told.
    """

    error_code: int
    offset: int
    timestamp: int
    leader_epoch: int | None

    @property
    def action(self) -> ErrorAction:
        """What is to be done about it."""
        return LIST_OFFSETS_ACTIONS.of(self.error_code)


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int],
    cluster: Cluster,
    *,
    isolation_level: int,
    timeout_ms: int,
) -> ListOffsetsRequest:
    """Return the question for partitions of one leader.

    Parameters
    ----------
    timestamps : Mapping of TopicPartition to int
        ms since 1970, or -1 (latest), -2 (earliest).
    cluster : Cluster
        Gives the leader epochs, which fence a stale leader.
    isolation_level : int
        Under 1, read_committed, "latest" is the last stable offset.
    timeout_ms : int
        How long the broker may take.
    """
    topics: dict[str, ListOffsetsTopic] = {}
    for tp, timestamp in timestamps.items():
        if tp.topic not in topics:
            topics[tp.topic] = ListOffsetsTopic(name=tp.topic, partitions=[])
        epoch = cluster.leader_epoch_for(tp)
        topics[tp.topic].partitions.append(
            ListOffsetsPartition(
                partition_index=tp.partition,
                current_leader_epoch=-1 if epoch is None else epoch,
                timestamp=timestamp,
            )
        )
    return ListOffsetsRequest(
        isolation_level=isolation_level, topics=list(topics.values()), timeout_ms=timeout_ms
    )


def offset_answers(response: ListOffsetsResponse) -> dict[TopicPartition, OffsetAnswer]:
    """Return the answers by partition; those with unexpected codes are logged."""
    answers = {}
    for topic in response.topics:
        for part in topic.partitions:
            tp = TopicPartition(topic.name, part.partition_index)
            if part.error_code not in LIST_OFFSETS_ACTIONS.rows:
                name = error_info(part.error_code).name
                logger.warning("Looking up an offset of %s failed: %s, trying again", tp, name)
            answers[tp] = OffsetAnswer(
                part.error_code,
                part.offset,
                part.timestamp,
                part.leader_epoch if part.leader_epoch >= 0 else None,
            )
    return answers
