"""OffsetRange: the offsets of one partition that a task reads, and how ranges are split into tasks.

Owns the arithmetic of ``minPartitions``, ``maxRecordsPerPartition`` and ``maxOffsetsPerTrigger``.
Pure. A range counts offsets, not records: a compacted log has fewer.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kfast.types import TopicPartition

BUNDLE_OFFSETS: Final = 8_192
"""Most offsets of small ranges that share a task: they are read faster than Spark starts a task."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets of one partition, from the first to the one after the last."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.until_offset - self.from_offset

    def split(self, parts: int) -> list[OffsetRange]:
        """Split into at most ``parts`` ranges whose sizes differ by one at most; none is empty."""
        parts = max(1, min(parts, self.size))
        cuts = [self.from_offset + self.size * number // parts for number in range(parts + 1)]
        return [
            replace(self, from_offset=start, until_offset=stop)
            for start, stop in itertools.pairwise(cuts)
        ]

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.from_offset}, {self.until_offset})"


def plan_ranges(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Return the range of each task; empty ranges are left out.

    Large ranges are split, so that there are ``min_partitions`` tasks at least, if there are as
    many offsets, and no task has more than ``max_records`` offsets.
    """
    planned = sorted(offset_range for offset_range in ranges if offset_range.size > 0)
    if max_records is not None:
        planned = [
            piece
            for offset_range in planned
            for piece in offset_range.split(-(-offset_range.size // max_records))
        ]
    if min_partitions is None or len(planned) >= min_partitions:
        return planned
    pieces = _shares([offset_range.size for offset_range in planned], min_partitions)
    return [
        piece
        for offset_range, count in zip(planned, pieces, strict=True)
        for piece in offset_range.split(count)
    ]


def bundle_ranges(
    ranges: Iterable[OffsetRange], most: int = BUNDLE_OFFSETS
) -> list[tuple[OffsetRange, ...]]:
    """Return ranges in order, bundled up to ``most`` offsets; a larger range stays alone."""
    bundles: list[tuple[OffsetRange, ...]] = []
    size = most
    for offset_range in ranges:
        size += offset_range.size
        if size <= most:
            bundles[-1] += (offset_range,)
        else:
            bundles.append((offset_range,))
            size = offset_range.size
    return bundles


def _shares(sizes: list[int], number: int) -> list[int]:
    """Return into how many pieces to split each size, to have ``number`` about equal pieces."""
    counts = [1] * len(sizes)
    largest = [(float(-size), index) for index, size in enumerate(sizes)]
    heapq.heapify(largest)
    for _ in range(min(number, sum(sizes)) - len(sizes)):
        _, index = heapq.heappop(largest)
        counts[index] += 1
        heapq.heappush(largest, (-sizes[index] / counts[index], index))
    return counts


def limit_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, int]:
    """Return end offsets so that about ``limit`` offsets lie between ``start`` and them.

    Every partition gets a share of the limit in proportion to its lag, rounded down, but one offset
    at least, so that a small partition beside large ones progresses. ``start`` has every partition
    of ``end``.
    """
    lag = {tp: end[tp] - start[tp] for tp in end if end[tp] > start[tp]}
    total = sum(lag.values())
    if total <= limit:
        return dict(end)
    return {
        tp: min(end[tp], start[tp] + max(1, limit * lag[tp] // total)) if tp in lag else end[tp]
        for tp in end
    }


def count_offsets(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets between; partitions missing from ``start`` count from 0."""
    return sum(max(0, offset - start.get(tp, 0)) for tp, offset in end.items())
