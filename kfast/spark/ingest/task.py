"""The task of an ingest, on a worker: reads its ranges and writes them to Parquet files.

Owns the loop from `RangeReader` to `RangeFiles`, and the rows that describe the ranges to the sink,
with their files and what was not read as it is in the log. A task that fails removes its files if
it can.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kfast._base.optional import optional_package
from kfast.columns.arrow import CapsulePair
from kfast.columns.bytes import BytesColumn
from kfast.spark.source.read_task import (
    freeze_modules,
    range_reader,
    report_counts,
    task_deserializers,
)
from kfast.table.batches import batch_part_dict, files_in
from kfast.table.fsspec_store import open_store
from kfast.table.range_files import RangeFiles
from kfast.table.read_counts import ReadCounts

if TYPE_CHECKING:
    import pyarrow as pa

    from kfast.deserializers import Deserializer
    from kfast.spark.ingest.plan import IngestPlan
    from kfast.spark.source.options import SourceOptions
    from kfast.spark.source.range_reader import RangeReader
    from kfast.table.batches import BatchPart, ReadRange
    from kfast.table.dead_letter_sink import DeadLetterSink
    from kfast.table.offset_ranges import OffsetRange
    from kfast.table.store import TableStore


def write_ranges(
    ranges: Iterable[OffsetRange],
    options: SourceOptions,
    plan: IngestPlan,
    accumulator: object = None,
) -> Iterator[pa.RecordBatch]:
    """Write the records of ranges to the staging folder; yield a row per range."""
    store = open_store(plan.url, plan.storage_options)
    reader = range_reader(options)
    deserializers = task_deserializers(options, plan.projection)
    written: list[ReadRange] = []
    total = ReadCounts()
    try:
        for offset_range in ranges:
            reader.counts = ReadCounts()
            files = range_files(store, offset_range, plan, deserializers, options.kafka)
            written.append(_write(files, reader, offset_range))
            total.add(reader.counts)
    except BaseException:
        for file in files_in(written):
            (plan.open_folder(file.folder) if file.folder else store).remove(file.staged)
        raise
    if written:
        yield part_rows(written)
    report_counts(total, accumulator)
    freeze_modules()


def _write(files: RangeFiles, reader: RangeReader, offset_range: OffsetRange) -> ReadRange:
    """Write the records of a range."""
    try:
        for records in reader.read(offset_range):
            files.write(records)
        return files.close(reader.counts)
    except BaseException:
        files.discard()
        raise


def range_files(
    store: TableStore,
    offset_range: OffsetRange,
    plan: IngestPlan,
    deserializers: Mapping[str, Deserializer],
    kafka: Mapping[str, str] | None = None,
) -> RangeFiles:
    """Return the files of a range, which are not opened yet.

    ``kafka`` are the settings of the cluster, for dead letters that go to a topic of it.
    """
    return RangeFiles(
        store,
        plan.shape.in_files(plan.projection),
        offset_range,
        plan.writer.id,
        table_format=plan.shape.format,
        partition_by=plan.shape.partition_by,
        compression=plan.compression,
        deserializers=deserializers,
        field_ids=plan.field_ids,
        partition_fields=plan.partition_fields,
        dead_letters=_dead_letters(offset_range, plan, kafka),
    )


def _dead_letters(
    offset_range: OffsetRange, plan: IngestPlan, kafka: Mapping[str, str] | None
) -> DeadLetterSink | None:
    topic = plan.letter_topic
    if not plan.dead_letters or (topic and kafka is None):
        return None
    if topic:
        from kfast.config import ConsumerConfig  # noqa: PLC0415 - rarely used
        from kfast.table.dead_letter_topic import DeadLetterTopic  # noqa: PLC0415

        config = ConsumerConfig(kafka)
        letters = DeadLetterTopic(topic, config, config.default_api_timeout_ms)
        return letters.of_range(offset_range, is_only=True)
    from kfast.table.dead_letters import DeadLetters  # noqa: PLC0415 - rarely used

    return DeadLetters(plan.open_folder(plan.dead_letters), offset_range, plan.writer.id)


def part_rows(parts: Sequence[BatchPart]) -> pa.RecordBatch:
    """Parts of a batch as one batch of rows with the column of `PARTS`."""
    return rows_of([json.dumps(batch_part_dict(batch_part)) for batch_part in parts])


def rows_of(texts: Sequence[str]) -> pa.RecordBatch:
    """Texts in JSON as one batch of rows with the column of `PARTS`."""
    arrow = optional_package("pyarrow", "kfast.spark.ingest")
    text = BytesColumn.from_values([row.encode() for row in texts])
    # Not from a list: pyarrow would import pandas to look at it, most of a small batch's time.
    array = arrow.array(CapsulePair(text.arrow_column("part"))).view(arrow.string())
    return arrow.RecordBatch.from_arrays([array], ["part"])
