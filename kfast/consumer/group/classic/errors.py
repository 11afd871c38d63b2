"""Error codes of the classic group protocol: table of actions, and the errors raised.

The messages name the setting at fault. Stateless; any thread.

A retriable code without a row is retried after a back-off, any other ends the membership with an
error.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from kfast.consumer.error_actions import ErrorAction, ErrorActions
from kfast.errors import ErrorCode, KafkaError, exception_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.config import ConsumerConfig
    from kfast.consumer.group.assignors.assignor import ConsumerPartitionAssignor


class Exchange(Enum):
    """Request whose response has an error code."""

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    COMMIT = "a commit"


_LOST: Final = {
    ErrorCode.ILLEGAL_GENERATION: ErrorAction.RESET_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: ErrorAction.RESET_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS: ErrorAction.REJOIN,
}
_ANY: Final = {**_LOST, ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorAction.REPORT}

ACTIONS: Final[Mapping[Exchange, ErrorActions]] = {
    Exchange.JOIN: ErrorActions(
        {**_ANY, ErrorCode.MEMBER_ID_REQUIRED: ErrorAction.TAKE_MEMBER_ID}, to_coordinator=True
    ),
    Exchange.SYNC: ErrorActions(_ANY, to_coordinator=True),
    Exchange.HEARTBEAT: ErrorActions(_ANY, to_coordinator=True),
    # The commit manager itself finds the coordinator and retries.
    Exchange.COMMIT: ErrorActions(
        {**_LOST, ErrorCode.FENCED_INSTANCE_ID: ErrorAction.FAIL},
        retriable=ErrorAction.IGNORE,
        otherwise=ErrorAction.IGNORE,
    ),
}

_AGAIN: Final = frozenset({ErrorAction.RETRY, ErrorAction.FIND_COORDINATOR})
_JOINED_AGAIN: Final = _AGAIN | {
    ErrorAction.RESET_GENERATION,
    ErrorAction.RESET_MEMBER_ID,
    ErrorAction.REJOIN,
}
RETRIED: Final[Mapping[Exchange, frozenset[ErrorAction]]] = {
    Exchange.JOIN: _JOINED_AGAIN,
    Exchange.SYNC: _JOINED_AGAIN,
    Exchange.HEARTBEAT: _AGAIN,
    Exchange.COMMIT: frozenset(),
}
"""After these actions the group is not joined, or the membership not confirmed, yet."""


_MESSAGES: Final[Mapping[int, tuple[str, str]]] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        'cannot join group "{group_id}": it has no assignor in common with '
        "partition_assignment_strategy={assignors}",
        "give all members of the group one common partition_assignment_strategy",
    ),
    ErrorCode.INVALID_GROUP_ID: (
        'group_id "{group_id}" is not allowed',
        "choose another group_id",
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        'cannot join group "{group_id}": session_timeout_ms={session_timeout_ms} is outside the '
        "broker's limits",
        "set session_timeout_ms between group.min.session.timeout.ms and "
        "group.max.session.timeout.ms of the broker (6000 and 1800000 by default)",
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        'not allowed to use group "{group_id}"',
        "grant READ on the group to this user, or set another group_id",
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        'the coordinator of group "{group_id}" does not support this version of {exchange}',
        "upgrade the broker, or leave out what needs this version",
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        'cannot join group "{group_id}": it has as many members as the broker allows',
        "raise group.max.size on the broker, or set another group_id",
    ),
    ErrorCode.FENCED_INSTANCE_ID: (
        'group_instance_id "{group_instance_id}" of group "{group_id}" was taken over by another '
        "consumer",
        "close this consumer, and set a different group_instance_id for each",
    ),
}


def membership_error(
    exchange: Exchange, code: int, config: ConsumerConfig, assignors: tuple[str, ...]
) -> KafkaError:
    """Return the error to raise for a code; ``assignors`` are the names of the member's."""
    message, hint = _MESSAGES.get(
        code, ('{exchange} of group "{group_id}" was refused', "see the broker's log for why")
    )
    text = message.format(
        exchange=exchange.value,
        group_id=config.group_id,
        group_instance_id=config.group_instance_id,
        session_timeout_ms=config.session_timeout_ms,
        assignors=list(assignors),
    )
    return exception_for(code, text, hint=hint)


def assignor_failed(
    assignor: ConsumerPartitionAssignor, method: str, group_id: str | None, error: BaseException
) -> KafkaError:
    """Return the error for an exception of a user's assignor."""
    return KafkaError(
        f'assignor "{assignor.name}" failed for group "{group_id}"',
        cause=f"{method}: {type(error).__name__}: {error}",
        hint="fix the assignor, or use a built-in one",
    )
