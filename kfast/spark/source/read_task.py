"""The task of a query, on a worker: its offset ranges as Arrow batches.

A module of its own because of what it imports: the processes that plan a query need neither the
consumer's records nor Arrow, and the workers need no planning.
"""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kfast._base.logs import get_logger
from kfast.spark.source.range_reader import RangeReader, ReadSettings
from kfast.table.arrow_batches import ArrowBatches, deserializers_of

if TYPE_CHECKING:
    import pyarrow as pa

    from kfast.deserializers import Deserializer
    from kfast.spark.source.options import SourceOptions
    from kfast.table.offset_ranges import OffsetRange
    from kfast.table.projection import Projection
    from kfast.table.read_counts import ReadCounts

logger = get_logger(__name__)


def range_reader(options: SourceOptions) -> RangeReader:
    """Return the reader of this task."""
    from pyspark import TaskContext  # noqa: PLC0415 - workers have imported it

    settings = ReadSettings(
        options.kafka,
        options.fail_on_data_loss,
        options.poll_timeout_ms,
        options.skip_corrupt_batches,
    )
    context = TaskContext.get()
    return RangeReader(settings, is_retry=context is not None and context.attemptNumber() > 0)


def read_ranges(
    ranges: Iterable[OffsetRange],
    options: SourceOptions,
    projection: Projection,
    accumulator: Any = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of ranges, one range after another; report the counts at the end."""
    reader = range_reader(options)
    deserializers = task_deserializers(options, projection)
    for offset_range in ranges:
        arrow = ArrowBatches(projection, offset_range.topic, offset_range.partition, deserializers)
        for records in reader.read(offset_range):
            yield from arrow.batches(records)
        reader.counts.bad_records += arrow.bad_records
        reader.counts.unknown.add(arrow.unknown.fields, arrow.unknown.paths)
    report_counts(reader.counts, accumulator)
    freeze_modules()


def task_deserializers(
    options: SourceOptions, projection: Projection
) -> Mapping[str, Deserializer]:
    """Return the deserializers of key and value, with the registry of this process."""
    if not options.registry:
        return deserializers_of(projection)
    from kfast.spark.source.value_schemas import registry_of  # noqa: PLC0415 - seldom needed

    return deserializers_of(projection, registry_of(options.registry))


def report_counts(counts: ReadCounts, accumulator: Any) -> None:
    """Log what this task has not read as it is, and send its counts to the driver."""
    if not counts.is_complete:
        logger.warning("read %s", counts)
    if counts.unknown.fields:
        _warn_of_unknown(counts.unknown.text)
    if accumulator is None:
        return
    from pyspark import TaskContext  # noqa: PLC0415 - workers have imported it

    context = TaskContext.get()
    assert context is not None
    query_id = context.getLocalProperty("sql.streaming.queryId")
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    if query_id and batch_id:
        accumulator.add({(query_id, int(batch_id)): counts})


@functools.cache
def _warn_of_unknown(paths: str) -> None:
    """Log fields without a column once per process: each batch of a query may have the same."""
    logger.warning("fields of documents have no column and are left out, such as %s", paths)


def freeze_modules() -> None:
    """Take the objects of the imported modules out of garbage collection; once per process.

    Spark collects garbage after each task: some 40 ms over the objects of modules, which live as
    long as the process, and longer than a small task takes. After the first task all modules are
    imported.
    """
    _freeze_modules(os.getpid())


@functools.cache
def _freeze_modules(_: int) -> None:
    gc.collect()
    gc.freeze()
