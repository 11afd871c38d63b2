"""Offset ranges: what one task reads, and how the offsets of a query are shared out.

Owns the arithmetic of ``minPartitions``, ``maxRecordsPerPartition`` and ``maxOffsetsPerTrigger``.
Pure: nothing here asks a broker. A range counts offsets, not records: a compacted log has fewer.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kfast.types import TopicPartition

BUNDLE_OFFSETS: Final = 8_192
"""Most offsets of small ranges that one task reads: fewer take less time than a task of Spark's."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets of one partition.

    Parameters
    ----------
    topic, partition : str, int
        Whose.
    from_offset : int
        The first one.
    until_offset : int
        The one after the last.
    """

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
        """How many offsets."""
        return self.until_offset - self.from_offset

    def split(self, parts: int) -> list[OffsetRange]:
        """Cut into so many pieces of equal size, to within one; none is empty."""
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
    """Return what each task reads.

    Parameters
    ----------
    ranges : iterable of OffsetRange
        What is to be read; empty ones are left out.
    min_partitions : int, optional
        So many tasks at least, if there are as many offsets: large ranges are cut.
    max_records : int, optional
        Most offsets of a task.
    """
    planned = sorted(part for part in ranges if part.size > 0)
    if max_records is not None:
        planned = [piece for part in planned for piece in part.split(-(-part.size // max_records))]
    if min_partitions is None or len(planned) >= min_partitions:
        return planned
    pieces = _shares([part.size for part in planned], min_partitions)
    return [
        piece for part, count in zip(planned, pieces, strict=True) for piece in part.split(count)
    ]


def bundle_ranges(
    ranges: Iterable[OffsetRange], most: int = BUNDLE_OFFSETS
) -> list[tuple[OffsetRange, ...]]:
    """Return ranges in bundles, in order; those that have more offsets than ``most`` stay alone."""
    bundles: list[tuple[OffsetRange, ...]] = []
    size = most
    for part in ranges:
        size += part.size
        if size <= most:
            bundles[-1] += (part,)
        else:
            bundles.append((part,))
            size = part.size
    return bundles


def _shares(sizes: list[int], wanted: int) -> list[int]:
    """Return into how many pieces to cut each, the largest piece always next, to have so many."""
    counts = [1] * len(sizes)
    largest = [(float(-size), index) for index, size in enumerate(sizes)]
    heapq.heapify(largest)
    for _ in range(min(wanted, sum(sizes)) - len(sizes)):
        _, index = heapq.heappop(largest)
        counts[index] += 1
        heapq.heappush(largest, (-sizes[index] / counts[index], index))
    return counts


def limit_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, int]:
    """Return an end so near that about ``limit`` offsets lie before it.

    Every partition gets its share of the limit in proportion to what it has waiting, rounded down,
    but one offset at least, so that a small partition beside large ones moves on.

    Parameters
    ----------
    start, end : Mapping of TopicPartition to int
        From where, and how far at most; ``start`` has every partition of ``end``.
    limit : int
        Most offsets, apart from those of partitions with a share below one.
    """
    waiting = {tp: end[tp] - start[tp] for tp in end if end[tp] > start[tp]}
    total = sum(waiting.values())
    if total <= limit:
        return dict(end)
    return {
        tp: min(end[tp], start[tp] + max(1, limit * waiting[tp] // total))
        if tp in waiting
        else end[tp]
        for tp in end
    }


def count_offsets(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Return how many offsets lie between; partitions missing from ``start`` count from 0."""
    return sum(max(0, offset - start.get(tp, 0)) for tp, offset in end.items())
