"""ListOffsets as the consumer uses it: one request per leader, and what its answers mean.

Owns the translation between partitions with timestamps and the message, and the table of error
codes. Values and functions only; network thread.

| code | action |
|---|---|
| 3, 5, 6, 9, 56, 74, 100 | REFRESH: ask again after a pause, with fresh metadata |
| 75, 78 | RETRY: ask again after a pause |
| 43 | NO_OFFSET: the topic's format has no timestamps |
| 29 | RAISE |
| any other | RETRY, logged |

Offset -1 means that there is no such record. It is never a position, and neither is a partition
that the answer leaves out.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kfast.errors import error_info
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


class ListOffsetsAction(Enum):
    """What an answer about one partition asks for."""

    DONE = "done"
    REFRESH = "refresh"
    RETRY = "retry"
    NO_OFFSET = "no_offset"
    RAISE = "raise"


LIST_OFFSETS_ACTIONS: Final[Mapping[int, ListOffsetsAction]] = {
    0: ListOffsetsAction.DONE,
    3: ListOffsetsAction.REFRESH,  # UNKNOWN_TOPIC_OR_PARTITION
    5: ListOffsetsAction.REFRESH,  # LEADER_NOT_AVAILABLE
    6: ListOffsetsAction.REFRESH,  # NOT_LEADER_OR_FOLLOWER
    9: ListOffsetsAction.REFRESH,  # REPLICA_NOT_AVAILABLE
    29: ListOffsetsAction.RAISE,  # TOPIC_AUTHORIZATION_FAILED
    43: ListOffsetsAction.NO_OFFSET,  # UNSUPPORTED_FOR_MESSAGE_FORMAT
    56: ListOffsetsAction.REFRESH,  # KAFKA_STORAGE_ERROR
    74: ListOffsetsAction.REFRESH,  # FENCED_LEADER_EPOCH
    75: ListOffsetsAction.RETRY,  # UNKNOWN_LEADER_EPOCH
    78: ListOffsetsAction.RETRY,  # OFFSET_NOT_AVAILABLE
    100: ListOffsetsAction.REFRESH,  # UNKNOWN_TOPIC_ID
}


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
    def action(self) -> ListOffsetsAction:
        """What is to be done about it."""
        return LIST_OFFSETS_ACTIONS.get(self.error_code, ListOffsetsAction.RETRY)


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
            if part.error_code not in LIST_OFFSETS_ACTIONS:
                name = error_info(part.error_code).name
                logger.warning("Looking up an offset of %s failed: %s, trying again", tp, name)
            answers[tp] = OffsetAnswer(
                part.error_code,
                part.offset,
                part.timestamp,
                part.leader_epoch if part.leader_epoch >= 0 else None,
            )
    return answers
