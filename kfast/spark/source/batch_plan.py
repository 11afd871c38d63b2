"""Batch plan: from options to the ranges a batch query reads.

Owns the order of things: partitions, start, end, then what pushed-down filters leave, then
``minPartitions`` and ``maxRecordsPerPartition``. All offsets are numbers afterwards, so that a plan
gives the same records however often its tasks run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kfast.spark.source.driver import Lookup
from kfast.spark.source.options import SourceOptions
from kfast.table.offset_ranges import OffsetRange, plan_ranges
from kfast.types import TopicPartition

Narrow = Callable[[Mapping[TopicPartition, OffsetRange]], list[OffsetRange]]


def plan_batch(
    options: SourceOptions, lookup: Lookup, narrow: Narrow | None = None
) -> list[OffsetRange]:
    """Return what each task of a batch query reads.

    Parameters
    ----------
    options : SourceOptions
        Of the query.
    lookup : Lookup
        Answers questions.
    narrow : callable, optional
        Leaves out what filters exclude.

    Raises
    ------
    KafkaError
        A topic does not exist, a limit cannot be resolved, or no broker answers.
    """
    partitions = lookup.partitions(must_exist=True)
    start = lookup.resolve(options.start, partitions)
    end = lookup.resolve(options.end, partitions)
    ranges = {tp: OffsetRange(*tp, start[tp], end[tp]) for tp in sorted(partitions)}
    kept = list(ranges.values()) if narrow is None else narrow(ranges)
    return plan_ranges(
        kept,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
