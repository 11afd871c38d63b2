"""Checks of the arguments of public calls.

Owns nothing but the rules and their messages; every function either returns the argument in its
plain form or raises an error that names what was passed and what is expected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast, get_args

from kfast.consumer.group.membership import CloseOperation
from kfast.errors import (
    ConfigurationError,
    IllegalStateError,
    InvalidTopicError,
)
from kfast.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

FOREVER_MS: Final = 1 << 40
"""Longer than any call will wait (some 34 years)."""

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
        return timeout_ms
    if math.isinf(timeout_ms):
        return FOREVER_MS
    raise ConfigurationError(
        f"timeout_ms = {timeout_ms!r}: a float, as clients take that wait in seconds",
        hint="pass an int in ms: poll(1000) waits a second",
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


def as_iterable(partitions: Iterable[TopicPartition]) -> Iterable[TopicPartition]:
    """Return the partitions, refusing a single one where a list belongs."""
    if isinstance(partitions, TopicPartition):
        raise ConfigurationError(
            f"{partitions!r} where a list of partitions belongs", hint=f"pass [{partitions!r}]"
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
        raise ConfigurationError(f"seek({tp}, {offset!r}): the offset is not an int")
    return offset.__index__(), epoch


def check_times(timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the times to look offsets up by, or raise for one that is none."""
    wanted: dict[TopicPartition, int] = {}
    for tp, timestamp in timestamps.items():
        if isinstance(timestamp, bool) or not isinstance(timestamp, int) or timestamp < 0:
            raise ConfigurationError(
                f"offsets_for_times: {timestamp!r} for {tp} is not a time",
                hint="pass milliseconds since 1970 as an int >= 0",
            )
        wanted[check_partition(tp)] = timestamp
    return wanted


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
