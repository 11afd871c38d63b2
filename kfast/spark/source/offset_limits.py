"""OffsetLimit: where a query starts or ends, as given by its options.

Owns the seven options and their precedence: a time for all partitions (``startingTimestamp``)
before times by partition (``startingOffsetsByTimestamp``) before offsets (``startingOffsets``); the
same for the end. ``driver`` resolves them to offsets. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kfast.errors import ConfigurationError
from kfast.internals import time_ms
from kfast.table.offsets_json import EARLIEST, LATEST, format_partitions, parse_offsets
from kfast.types import TopicPartition

_TIMES_EXAMPLE: Final = '{"topicA":{"0":1767225600000,"1":1767225600000}}'


class LimitKind(Enum):
    """How a limit is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMPS = "timestamps"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class OffsetLimit:
    """Where a query starts or ends."""

    kind: LimitKind
    option: str
    """The option it was given by."""
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Offsets (-2 earliest, -1 latest) or milliseconds since 1970, as ``kind`` says."""
    timestamp_ms: int = -1
    """For all partitions."""
    is_miss_latest: bool = False
    """Whether a time after the last record means the end of the log rather than an error."""

    def check_names_all(self, partitions: set[TopicPartition]) -> None:
        """Check that a limit by partition names exactly the partitions that are read."""
        if self.kind not in (LimitKind.OFFSETS, LimitKind.TIMESTAMPS):
            return
        named = set(self.by_partition)
        if named == partitions:
            return
        missing, unread = partitions - named, named - partitions
        problems = []
        if missing:
            problems.append(f"{format_partitions(missing)} not named")
        if unread:
            problems.append(f"{format_partitions(unread)} not read by this query")
        raise ConfigurationError(
            f"{self.option} must name all partitions of the topics, and no others",
            found="; ".join(problems),
            hint="give partitions without a known offset -2 (earliest) or -1 (latest)"
            if self.kind is LimitKind.OFFSETS
            else "use one time for all partitions",
        )

    def explicit_partitions(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions for which this limit has an offset, whatever the log has."""
        if self.kind is not LimitKind.OFFSETS:
            return set()
        return {tp for tp in partitions if self.by_partition[tp] >= 0}

    def growing(self, partitions: set[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions for which this limit may resolve to the end of a growing log.

        Resolved again, it may give a later offset for them; for others it gives the same one, as
        long as retention has removed nothing.
        """
        if self.kind is LimitKind.OFFSETS:
            return {tp for tp in partitions if self.by_partition[tp] == LATEST}
        if self.kind is LimitKind.LATEST or self.is_miss_latest:
            return set(partitions)
        return set()


@dataclass(frozen=True, slots=True)
class _Names:
    timestamp: str
    times: str
    offsets: str


_START: Final = _Names("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_END: Final = _Names("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


def starting_limit(
    texts: Mapping[str, str], *, is_stream: bool, is_miss_latest: bool
) -> OffsetLimit:
    """Return where a query starts: by default a stream at the latest, a batch at the earliest.

    Raises ``ConfigurationError`` if the option is malformed, or a batch would start at the end.
    """
    limit = _limit(texts, _START, "latest" if is_stream else "earliest", is_miss_latest)
    if not is_stream:
        _refuse(limit, LimitKind.LATEST, LATEST, "a batch query cannot start at the latest offset")
    return limit


def ending_limit(texts: Mapping[str, str]) -> OffsetLimit:
    """Return where a batch query ends: by default at the latest offset.

    Raises ``ConfigurationError`` if the option is malformed, or the end is the earliest offset.
    """
    limit = _limit(texts, _END, "latest", is_miss_latest=True)
    _refuse(limit, LimitKind.EARLIEST, EARLIEST, "a query cannot end at the earliest offset")
    return limit


def _limit(
    texts: Mapping[str, str], names: _Names, default: str, is_miss_latest: bool
) -> OffsetLimit:
    if names.timestamp in texts:
        option = names.timestamp
        at = _time(texts[option], option)
        return OffsetLimit(
            LimitKind.TIMESTAMP, option, timestamp_ms=at, is_miss_latest=is_miss_latest
        )
    if names.times in texts:
        option = names.times
        times = parse_offsets(texts[option], option, _TIMES_EXAMPLE)
        for tp, time in times.items():
            _time(str(time), f"{option} of {tp}")
        return OffsetLimit(LimitKind.TIMESTAMPS, option, times, is_miss_latest=is_miss_latest)
    option = names.offsets
    text = texts.get(option, default).strip()
    if text.lower() in ("earliest", "latest"):
        return OffsetLimit(LimitKind(text.lower()), option)
    if not text.startswith("{"):
        raise ConfigurationError(
            f"option {option} = {text}: not understood",
            hint='earliest, latest, or JSON such as {"topicA":{"0":23,"1":-2}}',
        )
    offsets = parse_offsets(text, option)
    for tp, offset in offsets.items():
        if offset < EARLIEST:
            raise ConfigurationError(
                f"option {option} gives {tp} the offset {offset}",
                hint="-2 is the earliest, -1 the latest; all others are 0 or more",
            )
    return OffsetLimit(LimitKind.OFFSETS, option, offsets)


def _time(text: str, option: str) -> int:
    try:
        at = int(text)
    except ValueError:
        at = -1
    if at < 0:
        raise ConfigurationError(
            f"option {option} = {text}: not a time", hint="milliseconds since 1970, 0 or more"
        )
    try:
        return time_ms(at, f"option {option}")
    except ConfigurationError as error:  # options have no datetimes
        raise ConfigurationError(error.message, hint=str(error.hint).partition(";")[0]) from None


def _refuse(limit: OffsetLimit, kind: LimitKind, mark: int, why: str) -> None:
    if limit.kind is kind:
        raise ConfigurationError(
            f"{why} ({limit.option} = {kind.value})", hint="give an offset or a time"
        )
    marked = [tp for tp, offset in limit.by_partition.items() if offset == mark]
    if limit.kind is LimitKind.OFFSETS and marked:
        raise ConfigurationError(
            f"{why} ({limit.option} gives {format_partitions(marked)} {mark})",
            hint="give an offset of 0 or more",
        )
