"""What the fetcher does about errors, and how it tells the user.

Owns the table of actions per error code of one partition in a Fetch reply, the rule for codes the
table does not name, and the wording of the errors that reach the user. No state.

| action | meaning |
|---|---|
| RETRY | ask again after a backoff |
| REFRESH | as RETRY, and renew the metadata |
| NEW_LEADER | apply the reply's hint (KIP-951) and go on there at once; else as REFRESH |
| OUT_OF_RANGE | the log does not hold the offset: reset by policy |
| RAISE | tell the user at every poll, ask again after a backoff: it may be mended meanwhile |

None of them moves the position but OUT_OF_RANGE. An error from a follower sends the partition back
to its leader at once, whatever the code (KIP-392).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from kfast.errors import (
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


class FetchErrorAction(Enum):
    """See the module's table."""

    RETRY = "retry"
    REFRESH = "refresh"
    NEW_LEADER = "new_leader"
    OUT_OF_RANGE = "out_of_range"
    RAISE = "raise"


FETCH_ERROR_ACTIONS: Final[Mapping[int, FetchErrorAction]] = {
    -1: FetchErrorAction.RETRY,  # UNKNOWN_SERVER_ERROR
    1: FetchErrorAction.OUT_OF_RANGE,  # OFFSET_OUT_OF_RANGE
    2: FetchErrorAction.RAISE,  # CORRUPT_MESSAGE: the broker's own copy is damaged
    3: FetchErrorAction.REFRESH,  # UNKNOWN_TOPIC_OR_PARTITION
    5: FetchErrorAction.REFRESH,  # LEADER_NOT_AVAILABLE
    6: FetchErrorAction.NEW_LEADER,  # NOT_LEADER_OR_FOLLOWER
    9: FetchErrorAction.REFRESH,  # REPLICA_NOT_AVAILABLE
    29: FetchErrorAction.RAISE,  # TOPIC_AUTHORIZATION_FAILED
    56: FetchErrorAction.REFRESH,  # KAFKA_STORAGE_ERROR
    74: FetchErrorAction.NEW_LEADER,  # FENCED_LEADER_EPOCH
    75: FetchErrorAction.RETRY,  # UNKNOWN_LEADER_EPOCH: the broker is behind
    78: FetchErrorAction.RETRY,  # OFFSET_NOT_AVAILABLE: a new leader, or a follower's tail
    100: FetchErrorAction.REFRESH,  # UNKNOWN_TOPIC_ID: deleted or created anew
    103: FetchErrorAction.REFRESH,  # INCONSISTENT_TOPIC_ID
}
"""The codes a Fetch reply is known to carry."""


LARGEST_BATCH: Final = 1 << 30
"""A larger size is damage: brokers take no such request from a producer."""


def fetch_error_action(code: int) -> FetchErrorAction:
    """Return what to do about a partition's error code (not 0)."""
    action = FETCH_ERROR_ACTIONS.get(code)
    if action is not None:
        return action
    info = error_info(code)
    if info.refresh_metadata:
        return FetchErrorAction.REFRESH
    return FetchErrorAction.RETRY if info.retriable else FetchErrorAction.RAISE


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
