"""KafkaBatchReader and KafkaPushdownReader: pyspark's ``DataSourceReader`` for batch queries.

Owns a batch query's plan: partitions, start, end, then pushed-down filters, then ``minPartitions``
and ``maxRecordsPerPartition``. All limits are offsets afterwards, so a plan gives the same records
however often its tasks run. The tasks are ``read_task``'s.

`KafkaPushdownReader` is used only with ``pushdown=true``: a class with ``pushFilters`` fails where
``spark.sql.python.filterPushdown.enabled`` is off, the default. Spark plans in one process, pickles
the reader, and reads in others: a reader has values only, and a method imports what its process
needs.

Imports pyspark: only modules that Spark's processes load import this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from kfast.spark.source.process_logs import log_to_stderr
from kfast.spark.source.worker_check import checked_reduce
from kfast.table.offset_ranges import OffsetRange, bundle_ranges, plan_ranges

if TYPE_CHECKING:
    import pyarrow as pa

    from kfast.spark.source.driver import OffsetLookup
    from kfast.spark.source.options import SourceOptions
    from kfast.table.projection import Projection
    from kfast.types import TopicPartition

PUSHDOWN_CONF: Final = "spark.sql.python.filterPushdown.enabled"


BUNDLED_TASKS: Final = 64
"""Ranges have a task of their own up to this number; of more, small ones share tasks.

Users count on one task per partition as with ``format("kafka")``, for what they do with the records
of few partitions. Of many, starting tasks would take most of the time.
"""


def bundled_offsets(ranges: list[OffsetRange], options: SourceOptions) -> int:
    """Return how many offsets of small ranges may share a task, 0 for none."""
    if len(ranges) <= BUNDLED_TASKS:
        return 0
    return min(
        options.bundle_offsets, sum(offset_range.size for offset_range in ranges) // BUNDLED_TASKS
    )


def input_partitions(bundles: Iterable[tuple[OffsetRange, ...]]) -> list[InputPartition]:
    """Return one partition of Spark's per task, with the ranges it reads."""
    return [InputPartition(bundle) for bundle in bundles]


def ranges_of(partition: InputPartition) -> tuple[OffsetRange, ...]:
    """Return the ranges of a task; Spark runs a plan without tasks as one task without ranges."""
    ranges: tuple[OffsetRange, ...] = partition.value or ()
    return ranges


def read_partition(
    partition: InputPartition,
    options: SourceOptions,
    projection: Projection,
    accumulator: object = None,
) -> Iterator[pa.RecordBatch]:
    """Read one task's ranges, on a worker."""
    from kfast.spark.source.read_task import read_ranges  # noqa: PLC0415 - workers only

    log_to_stderr()
    return read_ranges(ranges_of(partition), options, projection, accumulator)


class KafkaBatchReader(DataSourceReader):
    """Reads a batch query."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return checked_reduce(self, protocol)

    def partitions(self) -> list[InputPartition]:
        """Plan the query, on the driver."""
        from kfast.spark.source.driver import (  # noqa: PLC0415 - driver only
            OffsetLookup,
            starts_instead,
        )

        log_to_stderr()
        options = self._options
        with OffsetLookup(options) as lookup:
            partitions = lookup.partitions(must_exist=True)
            start = lookup.resolve(options.start, partitions)
            end = lookup.resolve(options.end, partitions)
            existing = partitions & start.keys() & end.keys()
            if existing < partitions:  # deleted meanwhile: an error, unless a pattern selects them
                lookup.partitions(must_exist=True)
                start = {tp: start[tp] for tp in existing}
                end = {tp: end[tp] for tp in existing}
            start |= starts_instead(options, lookup, start, end)
            ranges = {tp: OffsetRange(*tp, start[tp], end[tp]) for tp in sorted(existing)}
            kept = self._filtered(ranges, lookup)
        plan = plan_ranges(
            kept,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        return input_partitions(bundle_ranges(plan, bundled_offsets(plan, options)))

    def _filtered(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        lookup: OffsetLookup,  # noqa: ARG002 - a subclass's
    ) -> list[OffsetRange]:
        return list(ranges.values())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's records, on a worker."""
        return read_partition(partition, self._options, self._projection)


class KafkaPushdownReader(KafkaBatchReader):
    """Reads a batch query without the offsets that its filters exclude."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        from kfast.spark.source.offset_filters import OffsetFilters  # noqa: PLC0415 - rarely used

        super().__init__(options, projection)
        self._filters = OffsetFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Add filters on topic, partition, offset and timestamp.

        All are returned: Spark applies them again, as the plan may keep too much.
        """
        for item in filters:
            self._filters = self._filters.narrowed(
                type(item).__name__, getattr(item, "attribute", ()), getattr(item, "value", None)
            )
        return filters

    def _filtered(
        self, ranges: Mapping[TopicPartition, OffsetRange], lookup: OffsetLookup
    ) -> list[OffsetRange]:
        return self._filters.apply(ranges, lookup.at_times)


def batch_reader(options: SourceOptions, projection: Projection) -> KafkaBatchReader:
    """Return the reader for these options."""
    if options.pushdown:
        return KafkaPushdownReader(options, projection)
    return KafkaBatchReader(options, projection)
