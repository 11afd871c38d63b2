"""The task of an ingest, on a worker: reads its ranges and writes them to Parquet files.

Owns the loop from `RangeReader` to `RangeFiles`, and the rows that list the files for the sink,
with what was not read as it is in the log. A task that fails removes its files if it can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from kfast._optional import optional_package
from kfast.records.arrow.arrays import integer_column
from kfast.records.arrow.nodes import CapsulePair
from kfast.records.columns.bytes import BytesColumn
from kfast.spark.ingest.plan import FILES
from kfast.spark.source.read_task import (
    freeze_modules,
    range_reader,
    report_counts,
    task_deserializers,
)
from kfast.table.fsspec_store import open_store
from kfast.table.range_files import RangeFiles
from kfast.table.read_counts import ReadCounts

if TYPE_CHECKING:
    import pyarrow as pa

    from kfast.deserializers import Deserializer
    from kfast.spark.ingest.plan import IngestPlan
    from kfast.spark.source.options import SourceOptions
    from kfast.spark.source.range_reader import RangeReader
    from kfast.table.dead_letter_sink import DeadLetterSink
    from kfast.table.manifest import DataFile
    from kfast.table.offset_ranges import OffsetRange
    from kfast.table.store import TableStore


def write_ranges(
    ranges: Iterable[OffsetRange],
    options: SourceOptions,
    plan: IngestPlan,
    accumulator: object = None,
) -> Iterator[pa.RecordBatch]:
    """Write the records of ranges to the staging folder; yield a row per file."""
    store = open_store(plan.url, plan.storage_options)
    reader = range_reader(options)
    deserializers = task_deserializers(options, plan.projection)
    written: list[DataFile] = []
    total = ReadCounts()
    try:
        for wanted in ranges:
            reader.counts = ReadCounts()
            files = range_files(store, wanted, plan, deserializers, options.kafka)
            written += _write(files, reader, wanted)
            total.add(reader.counts)
    except BaseException:
        for file in filter(lambda file: file.staged, written):
            (plan.open_folder(file.folder) if file.folder else store).remove(file.staged)
        raise
    if written:
        yield file_rows(written)
    report_counts(total, accumulator)
    freeze_modules()


def _write(files: RangeFiles, reader: RangeReader, wanted: OffsetRange) -> list[DataFile]:
    """Write the records of a range; return the files."""
    try:
        for records in reader.read(wanted):
            files.write(records)
        return files.close(reader.counts)
    except BaseException:
        files.discard()
        raise


def range_files(
    store: TableStore,
    wanted: OffsetRange,
    plan: IngestPlan,
    deserializers: Mapping[str, Deserializer],
    kafka: Mapping[str, str] | None = None,
) -> RangeFiles:
    """Return the files of a range, which are not opened yet.

    ``kafka`` are the settings of the cluster, for dead letters that go to a topic of it.
    """
    return RangeFiles(
        store,
        plan.projection.without(plan.shape.partition_by),
        wanted,
        plan.writer.id,
        table_format=plan.shape.format,
        partition_by=plan.shape.partition_by,
        compression=plan.compression,
        deserializers=deserializers,
        dead_letters=_dead_letters(wanted, plan, kafka),
    )


def _dead_letters(
    wanted: OffsetRange, plan: IngestPlan, kafka: Mapping[str, str] | None
) -> DeadLetterSink | None:
    topic = plan.letter_topic
    if not plan.dead_letters or (topic and kafka is None):
        return None
    if topic:
        from kfast.config import ConsumerConfig  # noqa: PLC0415 - rarely used
        from kfast.table.dead_letter_topic import DeadLetterTopic  # noqa: PLC0415

        config = ConsumerConfig(kafka)
        letters = DeadLetterTopic(topic, config, config.default_api_timeout_ms)
        return letters.of_range(wanted, is_only=True)
    from kfast.table.dead_letters import DeadLetters  # noqa: PLC0415 - rarely used

    return DeadLetters(plan.open_folder(plan.dead_letters), wanted, plan.writer.id)


def file_rows(files: list[DataFile]) -> pa.RecordBatch:
    """Return files as one batch of rows with the columns `FILES`.

    pyarrow would import pandas to look at lists: most of the time of a small batch.
    """
    arrow = optional_package("pyarrow", "kfast.spark.ingest")
    arrays, names = [], []
    for name, kind in (column.split() for column in FILES.split(", ")):
        values = [getattr(file, name) for file in files]
        if kind == "string":
            text = BytesColumn.from_values([value.encode() for value in values])
            array = arrow.array(CapsulePair(text.arrow_column(name))).view(arrow.string())
        else:
            numbers = np.array(values, np.int32 if kind == "int" else np.int64)
            array = arrow.array(CapsulePair(integer_column(name, numbers)))
        arrays.append(array)
        names.append(name)
    return arrow.RecordBatch.from_arrays(arrays, names)
