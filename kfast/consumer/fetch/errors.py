"""Errors of Fetch: the table of actions by error code, and the errors raised to the user.

Owns the table for the error code of one partition of a response, and the wording of the errors. No
state.

No action moves the position but RESET_POSITION. On an error from a follower the partition is
fetched from its leader again at once, whatever the code (KIP-392).
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
        ErrorCode.CORRUPT_MESSAGE: ErrorAction.REPORT,  # in the log of the broker
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.REFRESH_METADATA,
        ErrorCode.LEADER_NOT_AVAILABLE: ErrorAction.REFRESH_METADATA,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorAction.NEW_LEADER,
        ErrorCode.REPLICA_NOT_AVAILABLE: ErrorAction.REFRESH_METADATA,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorAction.REPORT,
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorAction.REFRESH_METADATA,
        ErrorCode.FENCED_LEADER_EPOCH: ErrorAction.NEW_LEADER,
        ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorAction.RETRY,  # the broker is behind
        ErrorCode.OFFSET_NOT_AVAILABLE: ErrorAction.RETRY,  # a new leader, or a follower's tail
        ErrorCode.UNKNOWN_TOPIC_ID: ErrorAction.REFRESH_METADATA,  # deleted, or created again
        ErrorCode.INCONSISTENT_TOPIC_ID: ErrorAction.REFRESH_METADATA,
    },
    to_leader=True,
    otherwise=ErrorAction.REPORT,
)
"""The codes a Fetch response is known to carry for a partition, and the rule for others."""


LARGEST_BATCH: Final = 1 << 30
"""A larger size is damage: brokers accept no such batch from a producer."""


def partition_error(code: int, tp: TopicPartition, offset: int, node_id: int) -> KafkaError:
    """Return the error of a partition's error code; one of authorization names the topic only."""
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
    """Return the error of a response with records, but without one whole batch.

    ``needed_bytes`` is the size of the first batch, 0 or less if unknown; ``nbytes`` that of the
    records; ``limits`` are the settings that limit a response.
    """
    is_known = needed_bytes > 0
    size = max(needed_bytes, nbytes + 1)
    low = [name for name, limit in limits.items() if limit < size]
    if size > LARGEST_BATCH:
        hint = "the length is most likely damaged: seek() past the batch"
    elif low:
        hint = f"raise {' and '.join(low)} to {size}"
    else:  # old brokers only: with KIP-74 the first batch is whole, whatever the limits
        hint = "raise fetch.max.bytes of the broker: this consumer allows more"
    return RecordTooLargeError(
        f"the batch at offset {offset} of {tp} does not fit in a Fetch response",
        cause=f"it has {'' if is_known else 'at least '}{size} bytes, the response {nbytes}",
        hint=hint,
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        size_needed=size if is_known else None,
    )


def refused_size(error: KafkaError) -> int | None:
    """Return the size for which a response was refused, None for another error."""
    if not isinstance(error, ProtocolError):
        return None
    size: int | None = getattr(error, "size_needed", None)
    return size


def response_too_large(size: int, cause: KafkaError, node_id: int) -> RecordTooLargeError:
    """Return the error of responses that are larger than the consumer accepts."""
    hint = f"raise receive_message_max_bytes to {size}"
    if size > LARGEST_BATCH:
        hint = (
            f"check broker {node_id} and the network between: no batch is that large, "
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


def unreadable_response(error: KafkaError) -> ProtocolError | None:
    """Return the protocol error for which a connection was closed, None if there is none."""
    return error.__cause__ if isinstance(error.__cause__, ProtocolError) else None


def responses_unreadable(cause: ProtocolError, node_id: int) -> ProtocolError:
    """Return the error of a broker whose responses are repeatedly not Kafka's protocol."""
    error = ProtocolError(
        f"broker {node_id} sends responses that cannot be read",
        cause=cause.message,
        found=cause.found,
        hint="check the broker, and the network between it and this machine",
        node=node_id,
    )
    error.__cause__ = cause
    return error
