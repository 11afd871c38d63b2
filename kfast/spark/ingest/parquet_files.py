"""ParquetFiles: writes the records of one task to Parquet files, on a worker.

Owns the open files of a task, one per folder its records belong to, and the Parquet encoding: row
groups of up to `GROUP_ROWS` rows or `GROUP_BYTES`, offsets and timestamps delta-encoded,
dictionaries only where values repeat (topic, partition, timestamp type), statistics only where they
help to skip (offset, timestamp, partition). Nothing is done per record in Python, and encoding
releases the GIL while the consumer's threads fetch and decode ahead.

Every file has a unique staging name. A task that fails removes its files if it can; those it cannot
remove are swept later.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kfast._optional import optional_package
from kfast.records.arrow.arrays import constant_column
from kfast.records.arrow.nodes import CapsulePair
from kfast.spark.source.arrow_batches import ArrowBatches
from kfast.spark.source.arrow_types import arrow_schema
from kfast.spark.source.read_counts import ReadCounts
from kfast.spark.source.schema import Projection
from kfast.table.file_names import Parts, final_path, split_records, task_name
from kfast.table.log import STAGING
from kfast.table.manifest import DataFile
from kfast.table.offset_ranges import OffsetRange
from kfast.table.store import TableStore, storage_errors
from kfast.threads.background_call import BackgroundCall

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from kfast.records.partition_records import PartitionRecords

GROUP_ROWS: Final = 1_000_000
GROUP_BYTES: Final = 32 << 20
"""Most rows and most bytes of a row group, give or take one batch."""

PAGE_BYTES: Final = 65_536
"""Size of a page, give or take a thousand rows.

Encoded data is still in the processor's caches when it is compressed: 5 % less of a worker's time
than with pages of 1 MiB.
"""

MOST_OPEN: Final = 16
"""Most files of a task that are open at a time."""

COMPRESSIONS: Final = ("zstd", "snappy", "lz4", "gzip", "none")

_REPEATING: Final = ("topic", "partition", "timestamptype")
_RISING: Final = ("offset", "timestamp")
_SKIPPABLE: Final = ("topic", "partition", "offset", "timestamp")


def file_projection(projection: Projection, partition_by: tuple[str, ...]) -> Projection:
    """Return the columns in the files: all but those of the partition folders."""
    kept = tuple(column for column in projection.columns if column.source not in partition_by)
    return replace(projection, columns=kept)


def _with_coded_topic(schema: pa.Schema, projection: Projection) -> tuple[int | None, pa.Schema]:
    """Return the index of the topic column, and the schema with a dictionary type for it."""
    arrow = optional_package("pyarrow", "kfast.spark.ingest")
    for at, column in enumerate(projection.columns):
        if column.source == "topic":
            kind = arrow.dictionary(arrow.int8(), arrow.string())
            return at, schema.set(at, schema.field(at).with_type(kind))
    return None, schema


def parquet_writer(
    output: Any, schema: pa.Schema, sources: Mapping[str, str], compression: str
) -> pq.ParquetWriter:
    """Return the writer of a file, to a path or an open file.

    ``sources`` has the columns' names by their source in lower case.
    """
    return optional_package("pyarrow.parquet", "kfast.spark.ingest").ParquetWriter(
        output,
        schema,
        compression=compression,
        use_dictionary=[sources[name] for name in _REPEATING if name in sources],
        column_encoding={
            sources[name]: "DELTA_BINARY_PACKED" for name in _RISING if name in sources
        },
        write_statistics=[sources[name] for name in _SKIPPABLE if name in sources] or False,
        store_schema=False,
        data_page_size=PAGE_BYTES,
    )


def coded_topics(topic: str, count: int) -> pa.DictionaryArray:
    """Return a topic ``count`` times as a dictionary array, so that Parquet compares no names."""
    arrow = optional_package("pyarrow", "kfast.spark.ingest")
    name = arrow.array(CapsulePair(constant_column("", topic, 1)))
    codes = arrow.py_buffer(np.zeros(count, np.int8))
    codes = arrow.Array.from_buffers(arrow.int8(), count, [None, codes], 0)
    return arrow.DictionaryArray.from_arrays(codes, name)


class BackgroundFsync:
    """Flushes one file to disk on a thread of its own while it is still being written.

    A task that ends with fsync of its file waits for the disk with nothing else to do; flushed
    piece by piece meanwhile, little is left at the end. The file is durable only after `finish`.
    Used by the thread that writes the file; no call outlives `finish` or `wait`.
    """

    def __init__(self, store: TableStore, path: str) -> None:
        self._store = store
        self._path = path
        self._call: BackgroundCall | None = None

    def begin(self) -> None:
        """Start to flush what was written so far, unless a flush is running.

        Raises ``OSError`` if the flush before failed.
        """
        if self._store.is_durable_on_write or (self._call is not None and self._call.is_running):
            return
        if self._call is not None:
            self._call.end()
        name = f"kfast-fsync-{self._path}"
        self._call = BackgroundCall(name, lambda: self._store.fsync(self._path))

    def finish(self) -> None:
        """Flush the whole file, which is closed now.

        Raises ``OSError`` if this flush or an earlier one failed: a system may report that only
        once.
        """
        if self._call is not None:
            self._call.end()
        self._store.fsync(self._path)

    def wait(self) -> None:
        """Wait for the end of a running flush; the file will be removed."""
        if self._call is not None:
            self._call.wait()

    def __repr__(self) -> str:
        return f"<BackgroundFsync {self._path}>"


@dataclass(slots=True, eq=False)
class _OpenFile:
    """A file that is being written."""

    staged: str
    path: str
    output: Any
    writer: Any
    fsync: BackgroundFsync
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    rows: int = 0
    min_timestamp_ms: int = 2**63 - 1
    max_timestamp_ms: int = -(2**63)


class ParquetFiles:
    """The files of one range of a task, in the staging folder of a writer.

    ``projection`` has the columns in the files, ``partition_by`` those of their folders.
    """

    def __init__(
        self,
        store: TableStore,
        projection: Projection,
        wanted: OffsetRange,
        writer_id: str,
        *,
        partition_by: tuple[str, ...] = (),
        compression: str = "zstd",
    ) -> None:
        self._store = store
        self._projection = projection
        self._wanted = wanted
        self._staging = f"{STAGING}/{writer_id}"
        self._partition_by = partition_by
        self._compression = compression
        self._arrow = optional_package("pyarrow", "kfast.spark.ingest")
        self._batches = ArrowBatches(projection, wanted.topic, wanted.partition)
        self._topic_at, self._schema = _with_coded_topic(arrow_schema(projection), projection)
        self._open: dict[Parts, _OpenFile] = {}
        self._numbers: dict[Parts, int] = {}
        self._done: list[DataFile] = []

    def write(self, records: PartitionRecords) -> None:
        """Write records; offsets rise from call to call."""
        for parts, part in split_records(records, self._partition_by):
            file: _OpenFile | None = None
            for batch in self._batches.batches(part):
                file = file or self._file(parts)
                file.waiting.append(batch)
                file.waiting_rows += batch.num_rows
                file.waiting_bytes += batch.nbytes
                if file.waiting_rows >= GROUP_ROWS or file.waiting_bytes >= GROUP_BYTES:
                    self._flush(file)
                    with self._writing(file.staged):
                        file.fsync.begin()
            if file is not None:
                times = part.timestamps
                file.min_timestamp_ms = min(file.min_timestamp_ms, int(times.min()))
                file.max_timestamp_ms = max(file.max_timestamp_ms, int(times.max()))

    def close(self, counts: ReadCounts | None = None) -> list[DataFile]:
        """Finish all files; return them, or one without a name if there was no record.

        The first has the counts of the range. ``counts`` are those of its reader; the malformed
        records are added to them.
        """
        while self._open:
            self._finish(next(iter(self._open)))
        counts = counts or ReadCounts()
        counts.bad_records += self._batches.bad_records
        first, *more = self._done or [DataFile("", "", *astuple(self._wanted))]
        skipped = (f"{each.base_offset}-{each.last_offset}" for each in counts.skipped_batches)
        first = replace(
            first,
            lost_offsets=counts.lost_offsets,
            bad_records=counts.bad_records,
            skipped_batches=" ".join(skipped),
        )
        return [first, *more]

    def discard(self) -> None:
        """Remove what was written."""
        staged = [file.staged for file in self._open.values()]
        staged += [file.staged for file in self._done]
        for file in self._open.values():
            with contextlib.suppress(Exception):  # the file is removed, complete or not
                file.writer.close()
            with contextlib.suppress(Exception):
                file.output.close()
            file.fsync.wait()
        self._open.clear()
        self._done.clear()
        for path in staged:
            self._store.remove(path)

    # --- files ------------------------------------------------------------------------------------

    def _file(self, parts: Parts) -> _OpenFile:
        """Return the open file of a folder; close the least recently used one at `MOST_OPEN`."""
        file = self._open.pop(parts, None)
        if file is None:
            if len(self._open) >= MOST_OPEN:
                self._finish(next(iter(self._open)))
            file = self._new_file(parts)
        self._open[parts] = file
        return file

    def _new_file(self, parts: Parts) -> _OpenFile:
        number = self._numbers.get(parts, 0)
        self._numbers[parts] = number + 1
        # Without the suffix .parquet: no reader may take it for data.
        staged = f"{self._staging}/{task_name(self._wanted)}.{uuid.uuid4().hex}"
        sources = {column.source: column.name for column in self._projection.columns}
        with self._writing(staged):
            output = self._store.open_output(staged)
            try:
                writer = parquet_writer(output, self._schema, sources, self._compression)
            except BaseException:
                with contextlib.suppress(Exception):
                    output.close()
                self._store.remove(staged)
                raise
        fsync = BackgroundFsync(self._store, staged)
        return _OpenFile(staged, final_path(self._wanted, parts, number), output, writer, fsync)

    def _flush(self, file: _OpenFile) -> None:
        table = self._arrow.Table.from_batches(file.waiting)
        if self._topic_at is not None:
            at, topics = self._topic_at, coded_topics(self._wanted.topic, table.num_rows)
            table = table.set_column(at, self._schema.field(at), topics)
        file.waiting = []
        file.rows += table.num_rows
        file.waiting_rows = file.waiting_bytes = 0
        with self._writing(file.staged):
            file.writer.write_table(table, row_group_size=max(1, table.num_rows))

    def _finish(self, parts: Parts) -> None:
        file = self._open[parts]
        if file.waiting:
            self._flush(file)
        with self._writing(file.staged):
            file.writer.close()
            size = file.output.tell()
            file.output.close()
            file.fsync.finish()
        del self._open[parts]
        self._done.append(
            DataFile(
                file.staged,
                file.path,
                *self._wanted.topic_partition,
                self._wanted.from_offset,
                self._wanted.until_offset,
                file.rows,
                size,
                file.min_timestamp_ms,
                file.max_timestamp_ms,
            )
        )

    def _writing(self, staged: str) -> AbstractContextManager[None]:
        """Name a file in the errors of its filesystem, such as that of a full disk."""
        return storage_errors(f"cannot write {self._store.url}/{staged}")

    def __repr__(self) -> str:
        return f"<ParquetFiles {self._wanted}, {len(self._open)} open, {len(self._done)} done>"
