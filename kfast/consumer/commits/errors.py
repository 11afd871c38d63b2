"""Error codes of OffsetCommit and OffsetFetch: tables of actions, and the errors raised.

A code without a row goes by its flags in Kafka's error table. Stateless; any thread.
"""

from __future__ import annotations

from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kfast.consumer.error_actions import ErrorAction, ErrorActions
from kfast.errors import (
    CommitFailedError,
    ErrorCode,
    FencedInstanceIdError,
    KafkaError,
    RebalanceInProgressError,
    error_info,
    exception_for,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kfast.types import OffsetAndMetadata, TopicPartition

MAX_NAMED: Final = 10
"""How many partitions a message lists."""


RETRIED: Final = frozenset(
    {ErrorAction.RETRY, ErrorAction.FIND_COORDINATOR, ErrorAction.REFRESH_METADATA}
)
"""After these the same offsets may be sent again without a change of membership."""

MEMBERSHIP: Final = frozenset(
    {
        ErrorAction.REJOIN,
        ErrorAction.FENCE_MEMBER,
        ErrorAction.STALE_EPOCH,
        ErrorAction.FENCE_INSTANCE,
    }
)
"""These concern the membership, which is informed of the code."""

UNKNOWN_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""The coordinator does not know the topic, or not yet."""

_COMMON: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorAction.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: ErrorAction.FIND_COORDINATOR,
    ErrorCode.UNKNOWN_MEMBER_ID: ErrorAction.FENCE_MEMBER,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorAction.FAIL,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorAction.FAIL,
    ErrorCode.UNKNOWN_TOPIC_ID: ErrorAction.REFRESH_METADATA,
    ErrorCode.INCONSISTENT_TOPIC_ID: ErrorAction.REFRESH_METADATA,
    ErrorCode.FENCED_MEMBER_EPOCH: ErrorAction.FENCE_MEMBER,
    ErrorCode.STALE_MEMBER_EPOCH: ErrorAction.STALE_EPOCH,
}

COMMIT_ACTIONS: Final = ErrorActions(
    {
        **_COMMON,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.REFRESH_METADATA,
        ErrorCode.REQUEST_TIMED_OUT: ErrorAction.FIND_COORDINATOR,
        ErrorCode.OFFSET_METADATA_TOO_LARGE: ErrorAction.FAIL,
        ErrorCode.ILLEGAL_GENERATION: ErrorAction.FENCE_MEMBER,
        ErrorCode.REBALANCE_IN_PROGRESS: ErrorAction.REJOIN,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorAction.FAIL,
        ErrorCode.GROUP_ID_NOT_FOUND: ErrorAction.FENCE_MEMBER,
        ErrorCode.FENCED_INSTANCE_ID: ErrorAction.FENCE_INSTANCE,
    },
    to_coordinator=True,
    to_leader=True,
)
"""OffsetCommit, per partition."""

FETCH_ACTIONS: Final = ErrorActions(
    {
        **_COMMON,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.FAIL,
        ErrorCode.UNSTABLE_OFFSET_COMMIT: ErrorAction.RETRY,
    },
    to_coordinator=True,
    to_leader=True,
)
"""OffsetFetch, of the group and per partition."""

_SEVERITY: Final = (
    ErrorAction.FENCE_INSTANCE,
    ErrorAction.FENCE_MEMBER,
    ErrorAction.STALE_EPOCH,
    ErrorAction.REJOIN,
    ErrorAction.FAIL,
)
"""Which of several errors that end a commit is raised: the first of these."""


def most_severe(codes: Mapping[TopicPartition, int]) -> int | None:
    """Return the code that ends a commit, None if it may be retried."""
    by_action = {COMMIT_ACTIONS.of(code): code for code in reversed(list(codes.values()))}
    return next((by_action[action] for action in _SEVERITY if action in by_action), None)


def names(partitions: Collection[TopicPartition]) -> str:
    """Return partitions as text, the first few of many."""
    text = ", ".join(str(tp) for tp in islice(partitions, MAX_NAMED))
    rest = len(partitions) - MAX_NAMED
    return f"{text} and {rest} more" if rest > 0 else text


def described(code: int) -> str:
    """Return an error code as text: what it means and Kafka's name of it."""
    info = error_info(code)
    return f"{info.meaning} ({info.name})" if info.meaning else info.name


# --- errors raised --------------------------------------------------------------------------------


def rebalance_in_progress(
    group_id: str, partitions: Iterable[TopicPartition], *, has_ended: bool = False
) -> RebalanceInProgressError:
    """Return the error for offsets committed during, or after, a rebalance."""
    tps = list(partitions)
    cause = "the group has rebalanced since they were read" if has_ended else None
    return RebalanceInProgressError(
        f'offsets of {names(tps)} were not committed: group "{group_id}" is rebalancing',
        cause=cause,
        hint="call poll() until the partitions are assigned, then commit again",
        code=ErrorCode.REBALANCE_IN_PROGRESS.code,
        **_location(tps),
    )


def not_a_member(
    group_id: str, partitions: Iterable[TopicPartition], max_poll_interval_ms: int
) -> CommitFailedError:
    """Return the error for a consumer that subscribes and is in no generation of the group."""
    tps = list(partitions)
    return CommitFailedError(
        f"offsets of {names(tps)} were not committed: this consumer is not a member of "
        f'group "{group_id}"',
        cause="it has not joined yet, or left the group because poll() was not called for "
        f"max_poll_interval_ms ({max_poll_interval_ms} ms)",
        hint="call poll() to join; poll fewer records (max_poll_records) or raise "
        "max_poll_interval_ms if it happens again",
        **_location(tps),
    )


def commit_error(
    code: int,
    failed: Mapping[TopicPartition, OffsetAndMetadata],
    group_id: str,
    *,
    is_member: bool,
    max_poll_interval_ms: int,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
) -> KafkaError:
    """Return the error a commit fails with.

    ``failed`` are the offsets with this code, ``committed`` those that the same call has stored.
    ``is_member`` is False for partitions assigned by hand.
    """
    text = f'offsets of {names(failed)} were not committed for group "{group_id}"'
    if committed:
        text += f" ({names(committed)} were)"
    extra = {**_location(failed), "committed": dict(committed)}
    place = next(iter(failed.items()), None)
    if place is not None:
        extra["offset"] = place[1].offset
    info = error_info(code)
    answer = f"{info.meaning}: {info.name} (error {code})"
    match COMMIT_ACTIONS.of(code):
        case ErrorAction.REJOIN:
            return RebalanceInProgressError(
                text,
                cause=answer,
                hint="call poll() until the partitions are assigned, then commit again",
                code=code,
                **extra,
            )
        case ErrorAction.FENCE_INSTANCE:
            return FencedInstanceIdError(
                text,
                cause=answer,
                hint="give every consumer a group_instance_id of its own",
                code=code,
                **extra,
            )
        case ErrorAction.FENCE_MEMBER | ErrorAction.STALE_EPOCH if is_member:
            return CommitFailedError(
                text,
                cause=f"{answer}; usually poll() was not called for max_poll_interval_ms "
                f"({max_poll_interval_ms} ms) and other members have the partitions now",
                hint="poll fewer records (max_poll_records) or raise max_poll_interval_ms; then "
                "call poll() and go on",
                code=code,
                **extra,
            )
        case ErrorAction.FENCE_MEMBER | ErrorAction.STALE_EPOCH:
            return CommitFailedError(
                text,
                cause=f"{answer}; the group has members that subscribe, and this consumer assigns "
                "its partitions by hand",
                hint="use another group_id for consumers that call assign()",
                code=code,
                **extra,
            )
    return exception_for(code, text, hint=_HINTS.get(code), **extra)


_HINTS: Final = MappingProxyType(
    {
        ErrorCode.OFFSET_METADATA_TOO_LARGE.code: "commit a shorter text "
        "(offset.metadata.max.bytes of the broker, 4096 by default)",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code: "commit for topics and partitions that exist",
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE.code: "commit fewer partitions, or shorter "
        "texts, at a time",
    }
)


def fetch_error(
    codes: Mapping[TopicPartition, int], group_id: str, asked: Collection[TopicPartition]
) -> KafkaError:
    """Return the error a fetch of committed offsets fails with.

    ``codes`` by partition, empty for an error of the whole group; ``asked`` are all partitions of
    the request.
    """
    code = next(iter(codes.values()))
    same = [tp for tp, other in codes.items() if other == code]
    text = f'committed offsets of {names(same or asked)} of group "{group_id}" could not be read'
    return exception_for(code, text, **_location(same or asked))


def _location(partitions: Collection[TopicPartition]) -> dict[str, Any]:
    first = next(iter(partitions), None)
    return {} if first is None else {"topic": first.topic, "partition": first.partition}
