"""The readers of a batch query, as Spark calls them.

Owns two classes over ``batch_plan`` and ``read_task``. The second understands filters and is used
only with ``pushdown=true``: a class with ``pushFilters`` fails where
``spark.sql.python.filterPushdown.enabled`` is off, which it is unless set. Spark plans in one
process, pickles the reader, and reads in others: a reader holds values only, and a method imports
what only its process needs.

Imports pyspark: nothing imports this module but what Spark has called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kfast.spark.source.options import SourceOptions
    from kfast.spark.source.schema import Projection
    from kfast.table.offset_ranges import OffsetRange
    from kfast.types import TopicPartition

PUSHDOWN_CONF: Final = "spark.sql.python.filterPushdown.enabled"


def input_partitions(bundles: Iterable[tuple[OffsetRange, ...]]) -> list[InputPartition]:
    """Return what travels to the tasks: the ranges each of them reads."""
    return [InputPartition(bundle) for bundle in bundles]


def ranges_of(partition: InputPartition) -> tuple[OffsetRange, ...]:
    """Return the ranges of a task; Spark gives a plan without tasks one without ranges."""
    ranges: tuple[OffsetRange, ...] = partition.value or ()
    return ranges


def read_partition(
    partition: InputPartition, options: SourceOptions, projection: Projection
) -> Iterator[pa.RecordBatch]:
    """Read one task's ranges, on a worker."""
    from kfast.spark.source.read_task import read_ranges  # noqa: PLC0415 - workers only

    return read_ranges(ranges_of(partition), options, projection)


class KafkaBatchReader(DataSourceReader):
    """Reads a batch query.

    Parameters
    ----------
    options : SourceOptions
        Of the query.
    projection : Projection
        Its columns.
    """

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection

    def partitions(self) -> list[InputPartition]:
        """Plan the query, on the driver."""
        from kfast.spark.source.batch_plan import plan_batch  # noqa: PLC0415 - driver only
        from kfast.spark.source.driver import OffsetLookup  # noqa: PLC0415 - driver only

        with OffsetLookup(self._options) as lookup:
            return input_partitions((part,) for part in plan_batch(self._options, lookup))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's records, on a worker."""
        return read_partition(partition, self._options, self._projection)


class KafkaPushdownReader(KafkaBatchReader):
    """Reads a batch query, leaving out offsets that its filters exclude."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        from kfast.spark.source.offset_filters import OffsetFilters  # noqa: PLC0415 - rarely used

        super().__init__(options, projection)
        self._filters = OffsetFilters()
        self._were_pushed = False

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take note of filters on topic, partition, offset and timestamp.

        All are given back: Spark applies them to what is left, which they need not describe fully.
        """
        self._were_pushed = True
        for item in filters:
            self._filters = self._filters.narrowed(
                type(item).__name__, getattr(item, "attribute", ()), getattr(item, "value", None)
            )
        return filters

    def partitions(self) -> list[InputPartition]:
        """Plan the query, on the driver."""
        from kfast.spark.source.batch_plan import plan_batch  # noqa: PLC0415 - driver only
        from kfast.spark.source.driver import OffsetLookup  # noqa: PLC0415 - driver only

        with OffsetLookup(self._options) as lookup:

            def narrow(
                ranges: Mapping[TopicPartition, OffsetRange],
            ) -> list[OffsetRange]:
                return self._filters.apply(ranges, lookup.at_times)

            return input_partitions((part,) for part in plan_batch(self._options, lookup, narrow))


def batch_reader(options: SourceOptions, projection: Projection) -> KafkaBatchReader:
    """Return the reader for these options."""
    if options.pushdown:
        return KafkaPushdownReader(options, projection)
    return KafkaBatchReader(options, projection)
