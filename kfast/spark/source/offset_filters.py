"""OffsetFilters: pushed-down filters as bounds of topics, partitions and offsets.

Owns the translation of simple filters on ``topic``, ``partition``, ``offset`` and ``timestamp``
into smaller offset ranges. It may keep too much, never too little: Spark applies every filter
again. Only a lower bound of ``timestamp`` helps, since timestamps need not rise with offsets: no
record before the first offset at or after a time is as new, but older ones may follow. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from kfast.table.offset_ranges import OffsetRange
from kfast.types import OffsetAndTimestamp, TopicPartition

_LOWER: Final = {"EqualTo": 0, "EqualNullSafe": 0, "GreaterThanOrEqual": 0, "GreaterThan": 1}
"""Filters with a lower bound, and what to add to it for the first value that passes."""

_UPPER: Final = {"EqualTo": 1, "EqualNullSafe": 1, "LessThanOrEqual": 1, "LessThan": 0}
"""Filters with an upper bound, and what to add to it for the first value that does not pass."""

_EQUAL: Final = ("EqualTo", "EqualNullSafe")

TimesLookup = Callable[
    [Mapping[TopicPartition, int]], Mapping[TopicPartition, OffsetAndTimestamp | None]
]


@dataclass(frozen=True, slots=True)
class OffsetFilters:
    """The bounds of the records that may pass all filters; None means no bound.

    ``until_offset`` is exclusive; ``from_ms`` is in milliseconds since 1970.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    from_offset: int | None = None
    until_offset: int | None = None
    from_ms: int | None = None

    def narrowed(self, kind: str, attribute: Collection[str], value: Any) -> OffsetFilters:
        """Return the bounds with one more filter; those of other kinds or columns are ignored.

        ``kind`` is the name of the filter's class in pyspark, ``attribute`` the path of its column.
        """
        if len(attribute) != 1:
            return self
        (column,) = attribute
        return getattr(self, f"_by_{column.lower()}", self._by_nothing)(kind, value)

    def _by_nothing(self, _kind: str, _value: Any) -> OffsetFilters:
        return self

    def _by_topic(self, kind: str, value: Any) -> OffsetFilters:
        chosen = _members(kind, value, str)
        if chosen is None:
            return self
        return replace(self, topics=chosen if self.topics is None else self.topics & chosen)

    def _by_partition(self, kind: str, value: Any) -> OffsetFilters:
        chosen = _members(kind, value, int)
        if chosen is None:
            return self
        current = self.partitions
        return replace(self, partitions=chosen if current is None else current & chosen)

    def _by_offset(self, kind: str, value: Any) -> OffsetFilters:
        if kind == "In":
            members = _members(kind, value, int)
            if not members:
                return self
            narrowed = self._by_offset("GreaterThanOrEqual", min(members))
            return narrowed._by_offset("LessThanOrEqual", max(members))
        if isinstance(value, bool) or not isinstance(value, int):
            return self
        narrowed = self
        if kind in _LOWER:
            low = value + _LOWER[kind]
            narrowed = replace(narrowed, from_offset=max(low, narrowed.from_offset or 0))
        if kind in _UPPER:
            high = value + _UPPER[kind]
            current = narrowed.until_offset
            narrowed = replace(
                narrowed, until_offset=high if current is None else min(high, current)
            )
        return narrowed

    def _by_timestamp(self, kind: str, value: Any) -> OffsetFilters:
        if kind not in _LOWER or not isinstance(value, datetime):
            return self
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        ms = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND
        return self if ms < 0 else replace(self, from_ms=max(ms, self.from_ms or 0))

    def apply(
        self, ranges: Mapping[TopicPartition, OffsetRange], at_times: TimesLookup
    ) -> list[OffsetRange]:
        """Return the ranges cut to the bounds, some of them empty."""
        kept = {
            tp: offset_range
            for tp, offset_range in ranges.items()
            if (self.topics is None or tp.topic in self.topics)
            and (self.partitions is None or tp.partition in self.partitions)
        }
        firsts: dict[TopicPartition, int] = {}
        if self.from_ms is not None:
            hits = at_times(
                {tp: self.from_ms for tp, offset_range in kept.items() if offset_range.size > 0}
            )
            firsts = {
                tp: kept[tp].until_offset if hit is None else hit.offset for tp, hit in hits.items()
            }
        return [self._cut(offset_range, firsts.get(tp, 0)) for tp, offset_range in kept.items()]

    def _cut(self, offset_range: OffsetRange, first: int) -> OffsetRange:
        start = max(offset_range.from_offset, self.from_offset or 0, first)
        until = offset_range.until_offset
        if self.until_offset is not None:
            until = min(until, self.until_offset)
        return replace(offset_range, from_offset=min(start, until), until_offset=until)


_MILLISECOND: Final = datetime(1970, 1, 1, 0, 0, 0, 1000) - datetime(1970, 1, 1)


def _members(kind: str, value: Any, of: type) -> frozenset[Any] | None:
    """Return the values that pass an equality or ``In`` filter, None for other filters."""
    if kind in _EQUAL:
        values: tuple[Any, ...] = (value,)
    elif kind == "In" and isinstance(value, list | tuple | set | frozenset):
        values = tuple(value)
    else:
        return None
    if any(isinstance(item, bool) or not isinstance(item, of) for item in values):
        return None
    return frozenset(values)
