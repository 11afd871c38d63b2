"""Checks of the arguments of public calls.

Owns nothing but the rules and their messages; every function either returns the argument in its
plain form or raises an error that names what was passed and what is expected.
"""

from __future__ import annotations

import inspect
import math
import operator
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn, cast, get_args

from kfast.config import sealed
from kfast.consumer.group.membership import CloseOperation
from kfast.errors import (
    ConfigurationError,
    IllegalStateError,
    InvalidTopicError,
)
from kfast.settings.kinds import INT32_MAX, INT64_MAX
from kfast.types import OffsetAndMetadata, SubscriptionPattern, TopicPartition

FOREVER_MS: Final = 1 << 40
"""Longer than any call will wait (some 34 years)."""

_TIME_HINT: Final = "pass milliseconds since 1970, or a datetime"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_FIRST_SECONDS: Final = 1_000_000_000  # in 2001; as ms 12 January 1970
_LAST_SECONDS: Final = 4_102_444_800  # the year 2100
_FIRST_DAY: Final = 1970_01_01
_LAST_DAY: Final = 2099_12_31

_LONGEST_TEXT: Final = 32_767
"""Bytes of a text that every version of the protocol can carry."""

_LONGEST_REASON: Final = 255
"""Characters, as in Java (KIP-800)."""

_LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


def check_timeout(timeout_ms: object) -> int:
    """Return a timeout in whole ms; infinity becomes `FOREVER_MS`."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float):
        raise ConfigurationError(
            f"timeout_ms = {timeout_ms!r}: not a number of milliseconds", hint="pass an int >= 0"
        )
    if timeout_ms < 0 or math.isnan(timeout_ms):
        raise ConfigurationError(
            f"timeout_ms = {timeout_ms!r}: must not be negative", hint="pass an int >= 0"
        )
    if isinstance(timeout_ms, int):
        return min(int(timeout_ms), FOREVER_MS)
    if math.isinf(timeout_ms):
        return FOREVER_MS
    raise ConfigurationError(
        f"timeout_ms = {timeout_ms!r}: a float, as clients take that wait in seconds",
        hint="pass an int in ms: poll(1000) waits a second",
    )


def sealed_arguments(
    arguments: tuple[str | Mapping[str, object], ...],
    config: Mapping[str, object] | None,
    configs: Mapping[str, object],
) -> tuple[tuple[str | Mapping[str, object], ...], Mapping[str, object] | None, Any]:
    """Return the arguments of a constructor with their secrets hidden; see `sealed`.

    They take the places of the caller's variables, so that no traceback shows those.
    """
    return (
        tuple(
            sealed(argument) if isinstance(argument, Mapping) else argument
            for argument in arguments
        ),
        sealed(config) if isinstance(config, Mapping) else config,
        sealed(configs),
    )


def split_config(
    arguments: tuple[str | Mapping[str, object], ...], config: Mapping[str, object] | None
) -> tuple[tuple[str, ...], Mapping[str, object] | None]:
    """Return the topics and the settings of a constructor that takes a mapping in either place."""
    first, rest = (arguments[0], arguments[1:]) if arguments else (None, ())
    if isinstance(first, Mapping):
        if config is not None:
            raise ConfigurationError(
                "config was given twice, as the first argument and by name", hint="give it once"
            )
        arguments, config = rest, first
    return tuple(check_topic(name) for name in arguments), config


def as_iterable(partitions: Any) -> Iterable[TopicPartition]:
    """Return the partitions, refusing what is no list of them."""
    is_one = isinstance(partitions, TopicPartition)
    if is_one or isinstance(partitions, str) or not isinstance(partitions, Iterable):
        one = partitions if is_one else TopicPartition("orders", 0)
        raise ConfigurationError(
            f"{partitions!r} where a list of partitions belongs", hint=f"pass [{one!r}]"
        )
    return partitions


def check_partition(tp: object) -> TopicPartition:
    """Return a plain `TopicPartition`, or raise if it is none."""
    number = None
    if isinstance(tp, tuple) and len(tp) == 2 and isinstance(tp[0], str):
        number = _integer(tp[1])
    if number is None or number < 0:
        raise ConfigurationError(
            f"{tp!r} is not a partition",
            hint='TopicPartition("orders", 0) is one; subscribe() takes names of topics',
        )
    topic = check_topic(cast("tuple[object, object]", tp)[0])
    if number > INT32_MAX:
        raise ConfigurationError(
            f"{tp!r} is not a partition: its number must be 0 to {INT32_MAX}",
            hint="partitions_for_topic() returns the numbers of a topic's partitions",
            topic=topic,
        )
    return TopicPartition(topic, number)


def _integer(value: object) -> int | None:
    """Return an integer of any type as a plain int, None for what is none; a bool is none."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(cast("int", value))
    except TypeError:
        return None


def _is_unreadable(text: str) -> bool:
    """Return whether a text cannot be sent, because it has half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def check_topic(name: object) -> str:
    """Return the name of a topic as a plain str, or raise if it can be none."""
    if not isinstance(name, str):
        raise ConfigurationError(f"{name!r} is not a topic name", hint="topic names are str")
    name = str.__str__(name)  # of a subclass, such as an Enum's member, the text itself
    if name in {"", ".", ".."} or not _LEGAL_TOPIC.fullmatch(name):
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise InvalidTopicError(
            f'"{shown}" cannot be the name of a topic',
            cause="names have 1 to 249 of the characters a-z A-Z 0-9 . _ - and are not . or ..",
            topic=name,
            hint="give the name of a topic; a regular expression is a pattern, not a name",
        )
    return name


def check_topics(topics: object, pattern: object) -> list[str]:
    """Return the topics to subscribe to, or raise what is wrong with them or the pattern."""
    if isinstance(topics, str):
        raise ConfigurationError(
            f'topics = "{topics}": a str where a list of topic names belongs',
            hint=f'subscribe(["{topics}"])',
        )
    if not isinstance(topics, Iterable):
        hint = "subscribe(pattern=...) takes a pattern"
        if not isinstance(topics, re.Pattern | SubscriptionPattern):
            hint = 'subscribe(["orders"]), or subscribe(pattern="orders-.*")'
        raise ConfigurationError(f"topics = {topics!r}: not a list of topic names", hint=hint)
    names = list(topics)
    if names and pattern is not None:
        raise IllegalStateError(
            "subscribe() was given both topics and a pattern", hint="choose one"
        )
    if isinstance(pattern, SubscriptionPattern) and _is_unreadable(pattern.pattern):
        raise ConfigurationError(
            f"pattern = {pattern.pattern!r}: not UTF-8, it has half a character",
            hint="pass a regular expression in RE2 syntax",
        )
    return [check_topic(name) for name in names]


def check_max_records(max_records: object) -> int:
    """Return the bound of one poll, or raise if it is none."""
    number = _integer(max_records)
    if number is None or number <= 0:
        raise ConfigurationError(
            f"max_records = {max_records!r}: must be an int > 0", hint="leave it out for no bound"
        )
    return min(number, INT64_MAX)


def check_seek(tp: TopicPartition, offset: object) -> tuple[int, int | None]:
    """Return the offset to seek to and its leader epoch, None if not given.

    A negative offset is left to the subscription state, which knows whether ``tp`` is assigned.
    """
    epoch: int | None = None
    call = f"seek({tp}, {offset!r})"
    if isinstance(offset, OffsetAndMetadata):
        epoch = _leader_epoch(offset.leader_epoch, call)
        offset = offset.offset
    number = _integer(offset)
    if number is None:
        raise ConfigurationError(
            f"{call}: the offset is not an int",
            hint="pass an int or an OffsetAndMetadata; seek_to_beginning() and seek_to_end() exist",
        )
    _check_width(number, call)
    return number, epoch if epoch is None or epoch >= 0 else None


def check_committable(tp: TopicPartition, offset: object) -> OffsetAndMetadata:
    """Return the offset to commit for a partition in plain form, or raise if it is none.

    A negative offset is left to the commit.
    """
    call = f"commit of {offset!r} for {tp}"
    fields = offset if isinstance(offset, tuple) else (offset,)
    try:
        position, metadata, leader_epoch = OffsetAndMetadata(*fields)
    except TypeError:  # too many
        position, metadata, leader_epoch = cast("Any", None), "", -1
    number = _integer(position)
    metadata = "" if metadata is None else metadata
    if number is None or not isinstance(metadata, str):
        raise ConfigurationError(
            f"{call}: not an offset", hint="pass an OffsetAndMetadata or an int"
        )
    _check_width(number, call)
    if _is_unreadable(metadata) or len(metadata.encode()) > _LONGEST_TEXT:
        raise ConfigurationError(
            f"commit for {tp}: metadata that cannot be stored",
            cause=f"metadata is UTF-8 text of at most {_LONGEST_TEXT} bytes; brokers allow "
            "offset.metadata.max.bytes of them, 4096 by default",
            hint="commit less metadata",
        )
    return OffsetAndMetadata(number, str.__str__(metadata), _leader_epoch(leader_epoch, call))


def _check_width(offset: int, call: str) -> None:
    if offset > INT64_MAX:
        raise ConfigurationError(
            f"{call}: the offset does not fit 64 bits",
            hint=f"offsets are 0 to {INT64_MAX}; end_offsets() returns those of the ends",
        )


def _leader_epoch(epoch: object, call: str) -> int:
    """Return the leader epoch of an offset, -1 for none.

    None is one that is unknown, such as that of a record in an old format.
    """
    number = -1 if epoch is None else _integer(epoch)
    if number is None or number > INT32_MAX:
        raise ConfigurationError(
            f"{call}: leader_epoch is {epoch!r}",
            cause=f"an epoch is an int of 0 to {INT32_MAX}, or -1 where it is unknown",
            hint="pass that of the record, or leave it out: OffsetAndMetadata(record.offset + 1)",
        )
    return max(-1, number)


def check_callback(callback: object) -> None:
    """Raise unless this can be the callback of a commit, or None."""
    if callback is not None and not callable(callback):
        raise ConfigurationError(
            f"callback = {callback!r}: not callable", hint="pass f(offsets, error)"
        )
    if inspect.iscoroutinefunction(callback):
        raise ConfigurationError(
            f"callback = {callback!r}: a coroutine",
            cause="callbacks are called on the application's thread, which does not await",
            hint="pass a plain function f(offsets, error)",
        )


def check_reason(reason: object) -> str | None:
    """Return the reason of a rebalance, or raise if it is no text that can be sent."""
    if reason is None:
        return None
    if not isinstance(reason, str) or _is_unreadable(reason):
        raise ConfigurationError(
            f"reason = {reason!r}: not a text", hint="pass a str for the log of the coordinator"
        )
    return str.__str__(reason)[:_LONGEST_REASON]


def check_times(timestamps: Mapping[TopicPartition, int | datetime]) -> dict[TopicPartition, int]:
    """Return the times to look offsets up by in ms, or raise for one that is none."""
    if not isinstance(timestamps, Mapping):
        raise ConfigurationError(
            f"timestamps = {timestamps!r}: not a mapping",
            hint="pass {TopicPartition: milliseconds since 1970, or a datetime}",
        )
    return {
        check_partition(tp): time_ms(time, f"offsets_for_times: {tp}")
        for tp, time in timestamps.items()
    }


def time_ms(time: object, name: str) -> int:
    """Return a time in ms since 1970, rounded up: an offset at or after it is looked up.

    A datetime without a zone is UTC, as the times of records are. An int that makes sense only in
    another unit is refused.
    """
    if isinstance(time, datetime):
        aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        ms = -((_EPOCH - aware) // _MS)
    elif (number := _integer(time)) is None:
        raise ConfigurationError(f"{name} = {time!r}: not a time", hint=_TIME_HINT)
    else:
        ms = number
        _check_unit(ms, name)
    if ms < 0:
        raise ConfigurationError(
            f"{name} = {time!r}: a time before 1970 finds nothing", hint=_TIME_HINT
        )
    if ms > INT64_MAX:
        raise ConfigurationError(f"{name} = {time!r}: does not fit 64 bits", hint=_TIME_HINT)
    return ms


def _check_unit(ms: int, name: str) -> None:
    """Raise for what would be a time in early 1970 in ms, and reads as seconds or as a day."""
    if _FIRST_SECONDS <= ms < _LAST_SECONDS:
        meant, unit = datetime.fromtimestamp(ms, UTC), "seconds"
    elif _FIRST_DAY <= ms <= _LAST_DAY:
        try:
            meant, unit = datetime.strptime(str(ms), "%Y%m%d").replace(tzinfo=UTC), "a day"
        except ValueError:
            return
    else:
        return
    raise ConfigurationError(
        f"{name} = {ms}: reads as {unit} where milliseconds since 1970 belong",
        hint=f"{int(meant.timestamp()) * 1000} is {meant:%Y-%m-%d %H:%M:%S} UTC; or a datetime",
    )


def close_arguments(timeout_ms: object, autocommit: object) -> tuple[int | None, bool]:
    """Return timeout and autocommit of ``close``, also if given in kafka-python's order."""
    if isinstance(timeout_ms, bool):  # kafka-python's close(autocommit, timeout_ms)
        timeout, autocommit = autocommit, timeout_ms
        timeout_ms = None if isinstance(timeout, bool) else timeout
    if not isinstance(autocommit, bool):
        raise ConfigurationError(
            f"autocommit = {autocommit!r}: neither True nor False",
            hint="close(autocommit=False) leaves the auto-commit out",
        )
    return None if timeout_ms is None else check_timeout(timeout_ms), autocommit


def refuse_copy(consumer: object) -> NoReturn:
    """Raise for ``copy``, ``deepcopy`` and ``pickle``: there is one owner of connections."""
    raise IllegalStateError(
        f"a {type(consumer).__name__} cannot be copied or pickled",
        cause="it owns connections and threads, and a member of a group is there once",
        hint="make another one from the same settings; a ConsumerConfig can be pickled",
    )


def check_operation(operation: object) -> None:
    """Raise unless this is a `CloseOperation`."""
    if not isinstance(operation, str) or operation not in get_args(CloseOperation):
        raise ConfigurationError(
            f"operation = {operation!r}: not understood",
            hint=f"one of {', '.join(get_args(CloseOperation))}",
        )


def compile_pattern(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """Return the compiled pattern, or raise why it is none."""
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ConfigurationError(
            f"pattern = {pattern!r}: {error}", hint="pass a Python regular expression"
        ) from error
    if not isinstance(compiled.pattern, str):
        raise ConfigurationError(
            f"pattern = {pattern!r}: of bytes, and names of topics are text",
            hint=f"pass {compiled.pattern.decode('utf-8', 'backslashreplace')!r}",
        )
    return compiled
