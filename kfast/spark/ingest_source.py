"""Source and sink of an ingest, as Spark calls them.

Owns three classes over ``parquet_files`` and ``publish``. What flows between them through Spark is
not records but one row per file (``FILES``): tasks write their records themselves. Offsets,
triggers and checkpoints are those of ``stream_reader``.

==========================  =====================================================================
where                       what runs there
==========================  =====================================================================
driver, one Python process  `IngestReader`'s offsets
workers                     `IngestReader.read`, `IngestWriter.write`, in the same task
driver, a Python process    `IngestWriter.commit` and `abort`: a new writer for each batch, which
per batch                   knows nothing but the plan
==========================  =====================================================================

Imports pyspark: nothing imports this module but ``ingest_query`` and Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)

from kfast._arrow import CapsulePair, optional_package
from kfast._arrow_arrays import integer_column
from kfast._column_bytes import BytesColumn
from kfast.spark.batch_reader import range_reader, ranges_of, read_settings
from kfast.spark.checkpoint import keep_batch
from kfast.spark.delta_register import register_for
from kfast.spark.fsspec_store import open_store
from kfast.spark.ingest_plan import IngestPlan, plan_of, source_options
from kfast.spark.manifest import DataFile
from kfast.spark.offset_ranges import OffsetRange
from kfast.spark.offsets_json import OffsetsByTopic, from_json_dict, to_json_dict
from kfast.spark.options import SourceOptions, parse_options
from kfast.spark.parquet_files import ParquetFiles, file_projection
from kfast.spark.publish import Publisher
from kfast.spark.range_reader import RangeReader
from kfast.spark.stream_reader import KafkaStreamReader
from kfast.spark.table_store import TableStore, is_local
from kfast.spark.worker_process import settle_process

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "kfast_ingest"
FILES: Final = (
    "staged string, path string, topic string, partition int, from_offset bigint, "
    "until_offset bigint, rows bigint, bytes bigint, min_timestamp_ms bigint, "
    "max_timestamp_ms bigint"
)
"""One row per file: the fields of `DataFile`, in order."""


class IngestSource(DataSource):
    """Kafka topics as files of a table; used by ``kfast.spark.ingest`` only."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` is called with."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns that describe a file."""
        return FILES

    def streamReader(self, schema: Any) -> IngestReader:  # noqa: ARG002 - Spark's
        """Return the reader, which writes the files."""
        options = parse_options(source_options(self.options), is_stream=True)
        return IngestReader(options, plan_of(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> IngestWriter:  # noqa: ARG002 - Spark's
        """Return the sink, which publishes them."""
        return IngestWriter(plan_of(self.options))


class IngestReader(KafkaStreamReader):
    """Reads a stream and writes it to the staging folder.

    Parameters
    ----------
    options : SourceOptions
        Of the source.
    plan : IngestPlan
        Of the ingest.
    """

    def __init__(self, options: SourceOptions, plan: IngestPlan) -> None:
        super().__init__(options, plan.projection)
        self._plan = plan

    def initialOffset(self) -> OffsetsByTopic:
        """Return where the first batch begins: not before the end of what the table has."""
        wanted = from_json_dict(super().initialOffset())
        begins = {tp: max(at, self._plan.ends.get(tp, 0)) for tp, at in wanted.items()}
        return to_json_dict(self._plan.log().first_offsets(self._plan.writer, begins))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write one task's records, on a worker, and yield a row per file."""
        store = open_store(self._plan.url, self._plan.storage_options)
        reader = range_reader(read_settings(self._options))
        written: list[DataFile] = []
        try:
            for wanted in ranges_of(partition):
                written += self._write(store, reader, wanted)
        except BaseException:
            for file in filter(lambda file: file.staged, written):
                store.remove(file.staged)
            raise
        if written:
            yield _rows(written)
        settle_process()

    def _write(self, store: TableStore, reader: RangeReader, wanted: OffsetRange) -> list[DataFile]:
        """Write the records of a range; return the files."""
        plan = self._plan
        files = ParquetFiles(
            store,
            file_projection(plan.projection, plan.shape.partition_by),
            wanted,
            plan.writer.id,
            partition_by=plan.shape.partition_by,
            compression=plan.compression,
        )
        try:
            for records in reader.read(wanted):
                files.write(records)
            return files.close()
        except BaseException:
            files.discard()
            raise


@dataclass
class TaskFiles(WriterCommitMessage):
    """What one task wrote; Spark takes it to the driver.

    Parameters
    ----------
    files : tuple of DataFile
        The files.
    """

    files: tuple[DataFile, ...]


class IngestWriter(DataSourceStreamWriter):
    """Publishes what the tasks wrote.

    Parameters
    ----------
    plan : IngestPlan
        Of the ingest.
    """

    def __init__(self, plan: IngestPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[Any]) -> TaskFiles:
        """Collect the rows of one task, on a worker."""
        return TaskFiles(tuple(DataFile(*row) for row in iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish a batch, on the driver."""
        plan = self._plan
        if is_local(plan.checkpoint):
            keep_batch(open_store(plan.checkpoint), batchId)
        self._publisher().publish(plan.writer, batchId, _files_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what is left of a batch that failed, on the driver."""
        self._publisher().abort(self._plan.writer, batchId, _files_of(messages))

    def _publisher(self) -> Publisher:
        log = self._plan.log()
        return Publisher(log, register_for(log.store, self._plan.shape))


def _files_of(messages: list[WriterCommitMessage | None]) -> list[DataFile]:
    return [
        file for message in messages if isinstance(message, TaskFiles) for file in message.files
    ]


def _rows(files: list[DataFile]) -> pa.RecordBatch:
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
