"""What a task of a query does, on a worker: it reads its ranges.

Owns nothing but the way from what Spark sent to `RangeReader` and `ArrowBatches`. It is a module of
its own because of what it imports: the processes that plan a query do without the consumer's
records and Arrow, and the workers without the planning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kfast.spark.source.arrow_batches import ArrowBatches
from kfast.spark.source.range_reader import RangeReader, ReadSettings
from kfast.spark.source.worker_process import settle_process

if TYPE_CHECKING:
    import pyarrow as pa

    from kfast.spark.source.options import SourceOptions
    from kfast.spark.source.schema import Projection
    from kfast.table.offset_ranges import OffsetRange


def range_reader(options: SourceOptions) -> RangeReader:
    """Return the reader of this task."""
    from pyspark import TaskContext  # noqa: PLC0415 - there on a worker

    settings = ReadSettings(options.kafka, options.fail_on_data_loss, options.poll_timeout_ms)
    context = TaskContext.get()
    return RangeReader(settings, is_retry=context is not None and context.attemptNumber() > 0)


def read_ranges(
    ranges: Iterable[OffsetRange], options: SourceOptions, projection: Projection
) -> Iterator[pa.RecordBatch]:
    """Read ranges one after another; yield their records."""
    reader = range_reader(options)
    for wanted in ranges:
        arrow = ArrowBatches(projection, wanted.topic, wanted.partition)
        for records in reader.read(wanted):
            yield from arrow.batches(records)
    settle_process()
