"""The readers of a batch query, as Spark calls them.

Owns two classes over ``batch_plan`` and ``range_reader``. The second understands filters and is
used only with ``pushdown=true``: a class with ``pushFilters`` fails where
``spark.sql.python.filterPushdown.enabled`` is off, which it is unless set. Spark plans in one
process, pickles the reader, and reads in others: a reader holds values only.

Imports pyspark: nothing imports this module but what Spark has called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from kfast.errors import ConfigurationError
from kfast.spark.arrow_batches import ArrowBatches
from kfast.spark.batch_plan import plan_batch
from kfast.spark.driver import OffsetLookup
from kfast.spark.offset_filters import OffsetFilters
from kfast.spark.offset_ranges import OffsetRange
from kfast.spark.options import SourceOptions
from kfast.spark.range_reader import RangeReader, ReadSettings
from kfast.spark.schema import Projection
from kfast.spark.worker_process import settle_process
from kfast.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

PUSHDOWN_CONF: Final = "spark.sql.python.filterPushdown.enabled"


def read_settings(options: SourceOptions) -> ReadSettings:
    """Return what the workers need of the options."""
    return ReadSettings(options.kafka, options.fail_on_data_loss, options.poll_timeout_ms)


def input_partitions(bundles: Iterable[tuple[OffsetRange, ...]]) -> list[InputPartition]:
    """Return what travels to the tasks: the ranges each of them reads."""
    return [InputPartition(bundle) for bundle in bundles]


def ranges_of(partition: InputPartition) -> tuple[OffsetRange, ...]:
    """Return the ranges of a task; Spark gives a plan without tasks one without ranges."""
    ranges: tuple[OffsetRange, ...] = partition.value or ()
    return ranges


def range_reader(settings: ReadSettings) -> RangeReader:
    """Return the reader of this task, on a worker."""
    context = TaskContext.get()
    return RangeReader(settings, is_retry=context is not None and context.attemptNumber() > 0)


def read_partition(
    partition: InputPartition, settings: ReadSettings, projection: Projection
) -> Iterator[pa.RecordBatch]:
    """Read one task's ranges, on a worker."""
    reader = range_reader(settings)
    for wanted in ranges_of(partition):
        arrow = ArrowBatches(projection, wanted.topic, wanted.partition)
        for records in reader.read(wanted):
            yield from arrow.batches(records)
    settle_process()


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
        with OffsetLookup(self._options) as lookup:
            return input_partitions((part,) for part in plan_batch(self._options, lookup))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's records, on a worker."""
        return read_partition(partition, read_settings(self._options), self._projection)


class KafkaPushdownReader(KafkaBatchReader):
    """Reads a batch query, leaving out offsets that its filters exclude."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
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


def refuse_writing(*_: object) -> ConfigurationError:
    """Return the error for a query that writes."""
    return ConfigurationError(
        'format("kfast") only reads', hint='write with format("kafka") or a producer'
    )
