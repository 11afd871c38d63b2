"""Checks of the arguments of public calls.

Owns nothing but the rules and their messages; every function either returns the argument in its
plain form or raises an error that names what was passed and what is expected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast, get_args

from kfast._lazy_pattern import lazy_pattern
from kfast.config import sealed
from kfast.consumer.group.membership import CloseOperation
from kfast.errors import (
    ConfigurationError,
    IllegalStateError,
    InvalidTopicError,
)
from kfast.types import OffsetAndMetadata, TopicPartition

FOREVER_MS: Final = 1 << 40
"""Longer than any call will wait (some 34 years)."""

_TIME_HINT: Final = "pass milliseconds since 1970, or a datetime"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_FIRST_SECONDS: Final = 1_000_000_000  # in 2001; as ms 12 January 1970
_LAST_SECONDS: Final = 4_102_444_800  # the year 2100
_FIRST_DAY: Final = 1970_01_01
_LAST_DAY: Final = 2099_12_31

_LEGAL_TOPIC: Final = lazy_pattern(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


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
        return timeout_ms
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
        tuple(sealed(each) if isinstance(each, Mapping) else each for each in arguments),
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
    for name in arguments:
        check_topic(name)
    return cast("tuple[str, ...]", arguments), config


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
    if (
        not isinstance(tp, tuple)
        or len(tp) != 2
        or not isinstance(tp[0], str)
        or isinstance(tp[1], bool)
        or not hasattr(tp[1], "__index__")
        or tp[1] < 0
    ):
        raise ConfigurationError(
            f"{tp!r} is not a partition",
            hint='TopicPartition("orders", 0) is one; subscribe() takes names of topics',
        )
    check_topic(tp[0])
    return TopicPartition(tp[0], tp[1].__index__())


def check_topic(name: object) -> None:
    """Raise unless this can be the name of a topic."""
    if not isinstance(name, str):
        raise ConfigurationError(f"{name!r} is not a topic name", hint="topic names are str")
    if name in {"", ".", ".."} or not _LEGAL_TOPIC.fullmatch(name):
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise InvalidTopicError(
            f'"{shown}" cannot be the name of a topic',
            cause="names have 1 to 249 of the characters a-z A-Z 0-9 . _ - and are not . or ..",
            topic=name,
            hint="give the name of a topic; a regular expression is a pattern, not a name",
        )


def check_topics(topics: Iterable[str], pattern: object) -> list[str]:
    """Return the topics to subscribe to, or raise what is wrong with them."""
    if isinstance(topics, str):
        raise ConfigurationError(
            f'topics = "{topics}": a str where a list of topic names belongs',
            hint=f'subscribe(["{topics}"])',
        )
    names = list(topics)
    if names and pattern is not None:
        raise IllegalStateError(
            "subscribe() was given both topics and a pattern", hint="choose one"
        )
    for name in names:
        check_topic(name)
    return names


def check_max_records(max_records: object) -> int:
    """Return the bound of one poll, or raise if it is none."""
    if isinstance(max_records, bool) or not isinstance(max_records, int) or max_records <= 0:
        raise ConfigurationError(
            f"max_records = {max_records!r}: must be an int > 0", hint="leave it out for no bound"
        )
    return max_records


def check_seek(tp: TopicPartition, offset: object) -> tuple[int, int | None]:
    """Return the offset to seek to and its leader epoch, None if not given."""
    epoch: int | None = None
    if isinstance(offset, OffsetAndMetadata):
        epoch = offset.leader_epoch if offset.leader_epoch >= 0 else None
        offset = offset.offset
    if isinstance(offset, bool) or not hasattr(offset, "__index__"):
        raise ConfigurationError(
            f"seek({tp}, {offset!r}): the offset is not an int",
            hint="pass an int or an OffsetAndMetadata; seek_to_beginning() and seek_to_end() exist",
        )
    return offset.__index__(), epoch


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
    elif isinstance(time, bool) or not hasattr(time, "__index__"):
        raise ConfigurationError(f"{name} = {time!r}: not a time", hint=_TIME_HINT)
    else:
        ms = time.__index__()
        _check_unit(ms, name)
    if ms < 0:
        raise ConfigurationError(
            f"{name} = {time!r}: a time before 1970 finds nothing", hint=_TIME_HINT
        )
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


def check_operation(operation: str) -> None:
    """Raise unless this is a `CloseOperation`."""
    if operation not in get_args(CloseOperation):
        raise ConfigurationError(
            f"operation = {operation!r}: not understood",
            hint=f"one of {', '.join(get_args(CloseOperation))}",
        )


def compile_pattern(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """Return the compiled pattern, or raise why it is none."""
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ConfigurationError(
            f"pattern = {pattern!r}: {error}", hint="pass a Python regular expression"
        ) from error
