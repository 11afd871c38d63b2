"""The offsets that the bounds of a read mean on a cluster: log ends, times, counts and offsets.

Owns their look-up, all at once, and what is refused: a start that is gone, and one that the log
does not have yet. An end is never behind that of the log, which is the last stable offset under
``read_committed``. Callers make `Range` values of what users write. Application thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from kfast.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kfast.settings.offset_reset import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

if TYPE_CHECKING:
    from kfast.types import OffsetAndTimestamp, TopicPartition


class Kind(Enum):
    """What a `Position` counts from."""

    START = "start of the log"
    END = "end of the log"
    OFFSET = "offset"
    AFTER_START = "offsets after the start of the log"
    BEFORE_END = "offsets before the end of the log"
    TIME = "ms since 1970"


@dataclass(slots=True, frozen=True)
class Position:
    """A place in every partition it is used for. ``value`` is in the unit of its ``kind``."""

    kind: Kind
    value: int = 0


START: Final = Position(Kind.START)
END: Final = Position(Kind.END)


@dataclass(slots=True, frozen=True)
class Range:
    """From ``start`` to ``end``, which is not included."""

    start: Position = START
    end: Position = END


EVERYTHING: Final = Range()

_WITHIN_THE_LOG: Final = frozenset({Kind.TIME, Kind.END})
"""What needs no first offset: brokers answer with offsets that are there."""

Ranges = dict["TopicPartition", tuple[int, int]]
"""First offset and end offset of each partition; of an empty range the end may be less."""

Topics = TypeVar("Topics", bound=Collection[str])
R = TypeVar("R")


class OffsetLookups(Protocol):
    """Look-ups of offsets, of a consumer or for an administrative command."""

    def log_offsets(
        self, *timestamps: dict[TopicPartition, int]
    ) -> list[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Look up offsets by timestamp, -2 for the start and -1 for the end; all at once."""
        ...

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each log, under ``isolation_level="read_committed"`` too."""
        ...


def resolve_ranges(
    lookups: OffsetLookups,
    ranges: Mapping[TopicPartition, Range],
    *,
    skips_lost: bool,
    gone_hint: str,
    beyond: Callable[[TopicPartition, int, Mapping[TopicPartition, int]], KafkaError],
    is_by_partition: bool,
) -> tuple[Ranges, dict[TopicPartition, int]]:
    """Return the offsets of each range, and how many of the offsets asked for are gone.

    Raises OffsetOutOfRangeError for offsets that are gone, unless ``skips_lost``, and the error of
    ``beyond`` for a start that its log does not have yet, which gets the ends of the logs: of that
    one if ``is_by_partition``; else of all, none of which has the start that they share.
    """
    positions = [
        (tp, position) for tp, bounds in ranges.items() for position in (bounds.start, bounds.end)
    ]
    asked: dict[int, list[TopicPartition]] = {LATEST_TIMESTAMP: [*ranges]}
    for tp, position in positions:
        if position.kind is Kind.TIME:
            asked.setdefault(max(position.value, 0), []).append(tp)
    has_starts = any(position.kind not in _WITHIN_THE_LOG for _, position in positions)
    if has_starts:
        asked[EARLIEST_TIMESTAMP] = [*ranges]
    listed = lookups.log_offsets(*(dict.fromkeys(tps, ms) for ms, tps in asked.items()))
    at = {
        ms: {tp: hit.offset for tp, hit in hits.items() if hit is not None}
        for ms, hits in zip(asked, listed, strict=True)
    }
    ends = at[LATEST_TIMESTAMP]
    resolved: Ranges = {}
    lost: dict[TopicPartition, int] = {}
    later: dict[TopicPartition, int] = {}
    """Starts behind the last stable offset, or behind the end of the log."""
    for tp, bounds in ranges.items():
        log_start, log_end = at[EARLIEST_TIMESTAMP][tp] if has_starts else 0, ends[tp]
        first, last = (
            at[max(position.value, 0)].get(tp, log_end)
            if position.kind is Kind.TIME
            else _offset(position, log_start, log_end)
            for position in (bounds.start, bounds.end)
        )
        resolved[tp] = min(max(first, log_start), log_end), min(last, log_end)
        if bounds.start.kind is Kind.OFFSET and first < log_start:
            lost[tp] = log_start - first
            if not skips_lost:
                raise _gone(tp, first, log_start, gone_hint)
        elif bounds.start.kind is Kind.OFFSET and first > log_end:
            later[tp] = first
    log_ends = lookups.high_watermarks(later) if later else {}
    missing = [tp for tp, first in later.items() if first > log_ends[tp]]
    if missing and (is_by_partition or len(missing) == len(ranges)):
        tp = min(missing)
        raise beyond(tp, later[tp], {tp: log_ends[tp]} if is_by_partition else log_ends)
    for tp in later.keys() - missing:  # behind an open transaction
        resolved[tp] = later[tp], resolved[tp][1]
    return resolved, lost


def resolve_existing(list_topics: Callable[[], Topics], resolve: Callable[[Topics], R]) -> R:
    """Resolve something for topics, of which some may be deleted meanwhile.

    ``list_topics`` says which topics they are, and is asked again after an unknown topic.
    """
    topics = list_topics()
    while True:
        try:
            return resolve(topics)
        except UnknownTopicOrPartitionError:
            left = list_topics()
            if {*left}.issuperset(topics):
                raise
            topics = left


def _offset(position: Position, log_start: int, log_end: int) -> int:
    value = position.value
    return {
        Kind.START: log_start,
        Kind.END: log_end,
        Kind.OFFSET: value,
        Kind.AFTER_START: log_start + value,
        Kind.BEFORE_END: max(log_start, log_end - value),
    }[position.kind]


def _gone(tp: TopicPartition, first: int, log_start: int, hint: str) -> KafkaError:
    return OffsetOutOfRangeError(
        f"offset {first} of {tp} is gone: the log now starts at {log_start} (retention)\n"
        f"lost: {log_start - first} records",
        hint=hint,
        topic=tp.topic,
        partition=tp.partition,
        offset=first,
        log_start_offset=log_start,
    )
