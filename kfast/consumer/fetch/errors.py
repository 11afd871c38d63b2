"""What the fetcher does about errors, and how it tells the user.

Owns the table of actions per error code of one partition in a Fetch reply, the rule for codes the
table does not name, and the wording of the errors that reach the user. No state.

No action moves the position but RESET_POSITION. An error from a follower sends the partition back
to its leader at once, whatever the code (KIP-392).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast.consumer.error_actions import ErrorAction, ErrorActions
from kfast.errors import (
    ErrorCode,
    KafkaError,
    ProtocolError,
    RecordTooLargeError,
    TopicAuthorizationError,
    error_info,
    exception_for,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.types import TopicPartition


FETCH_ACTIONS: Final = ErrorActions(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR: ErrorAction.RETRY,
        ErrorCode.OFFSET_OUT_OF_RANGE: ErrorAction.RESET_POSITION,
        ErrorCode.CORRUPT_MESSAGE: ErrorAction.REPORT,  # the broker's own copy is damaged
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.REFRESH_METADATA,
        ErrorCode.LEADER_NOT_AVAILABLE: ErrorAction.REFRESH_METADATA,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorAction.NEW_LEADER,
        ErrorCode.REPLICA_NOT_AVAILABLE: ErrorAction.REFRESH_METADATA,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorAction.REPORT,
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorAction.REFRESH_METADATA,
        ErrorCode.FENCED_LEADER_EPOCH: ErrorAction.NEW_LEADER,
        ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorAction.RETRY,  # the broker is behind
        ErrorCode.OFFSET_NOT_AVAILABLE: ErrorAction.RETRY,  # a new leader, or a follower's tail
        ErrorCode.UNKNOWN_TOPIC_ID: ErrorAction.REFRESH_METADATA,  # deleted or created anew
        ErrorCode.INCONSISTENT_TOPIC_ID: ErrorAction.REFRESH_METADATA,
    },
    to_leader=True,
    otherwise=ErrorAction.REPORT,
)
"""The codes a Fetch response is known to carry for a partition, and what is done about others."""


LARGEST_BATCH: Final = 1 << 30
"""A larger size is damage: brokers take no such request from a producer."""


def partition_error(code: int, tp: TopicPartition, offset: int, node_id: int) -> KafkaError:
    """Return what is raised for a partition's error code: RAISE in the table.

    A missing permission concerns the whole topic, so that error names no partition.
    """
    if error_info(code).exception is TopicAuthorizationError:
        return exception_for(
            code, f'not allowed to read topic "{tp.topic}"', topic=tp.topic, node=node_id
        )
    return exception_for(
        code,
        f"broker {node_id} cannot read {tp} at offset {offset}",
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        node=node_id,
    )


def batch_too_large(
    tp: TopicPartition, offset: int, needed_bytes: int, nbytes: int, limits: Mapping[str, int]
) -> RecordTooLargeError:
    """Return what is raised when an answer brought records, but not one whole batch.

    Parameters
    ----------
    tp, offset : TopicPartition, int
        Where.
    needed_bytes : int
        Size of the first batch; 0 or less when not even that came.
    nbytes : int
        What came.
    limits : Mapping of str to int
        The settings that limit an answer.
    """
    is_known = needed_bytes > 0
    size = max(needed_bytes, nbytes + 1)
    low = [name for name, limit in limits.items() if limit < size]
    if size > LARGEST_BATCH:
        hint = "the length is most likely damaged: seek() past the batch"
    elif low:
        hint = f"raise {' and '.join(low)} to {size}"
    else:  # old brokers only: KIP-74 has the first batch come whole, whatever the limits
        hint = "raise fetch.max.bytes of the broker: this consumer allows more"
    return RecordTooLargeError(
        f"the batch at offset {offset} of {tp} does not fit in a Fetch answer",
        cause=f"it has {'' if is_known else 'at least '}{size} bytes, the answer brought {nbytes}",
        hint=hint,
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        size_needed=size if is_known else None,
    )


def refused_size(error: KafkaError) -> int | None:
    """Return the size an answer was refused for, None if the request failed for another reason."""
    if not isinstance(error, ProtocolError):
        return None
    size: int | None = getattr(error, "size_needed", None)
    return size


def answer_too_large(size: int, cause: KafkaError, node_id: int) -> RecordTooLargeError:
    """Return what is raised when a broker cannot but answer more than is accepted."""
    hint = f"raise receive_message_max_bytes to {size}"
    if size > LARGEST_BATCH:
        hint = (
            f"check broker {node_id} and what lies between: no batch is that large, "
            "the size is damaged"
        )
    error = RecordTooLargeError(
        f"broker {node_id} holds a batch that is larger than this consumer accepts",
        cause=cause.message,
        hint=hint,
        node=node_id,
        size_needed=size,
    )
    error.__cause__ = cause
    return error


def unreadable_answer(error: KafkaError) -> ProtocolError | None:
    """Return what was wrong with the answer a connection was given up for, None if nothing was."""
    return error.__cause__ if isinstance(error.__cause__, ProtocolError) else None


def answers_unreadable(cause: ProtocolError, node_id: int) -> ProtocolError:
    """Return what is raised when a broker's answers are no Kafka answers again and again."""
    error = ProtocolError(
        f"broker {node_id} sends answers that cannot be read",
        cause=cause.message,
        found=cause.found,
        hint="check the broker, and what lies between it and this machine",
        node=node_id,
    )
    error.__cause__ = cause
    return error
