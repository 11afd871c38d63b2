"""RangeFiles: writes the records of one range of offsets to files in the staging folder.

Owns the open files of a range, one per place its records belong to (`partitioning`), and when their
row groups are written: up to `GROUP_ROWS` rows or `GROUP_BYTES`. A file is opened when its first
row group is written. Nothing is done per record in Python, and encoding releases the GIL while the
consumer's threads fetch and decode ahead.

Every file has a unique staging name. Files of a range that fails are removed if that is possible;
the others are swept later.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kfast._base.threads import BackgroundCall
from kfast.table.arrow_batches import ArrowBatches
from kfast.table.batches import DataFile, ReadRange
from kfast.table.entries import CATALOG_FORMATS
from kfast.table.file_formats import GROUP_BYTES, GROUP_ROWS, FileEncoder
from kfast.table.file_names import Parts, final_path, range_name, task_name, time_bounds
from kfast.table.offset_ranges import OffsetRange
from kfast.table.partitioning import Place, divider
from kfast.table.projection import Projection
from kfast.table.read_counts import ReadCounts
from kfast.table.store import TableStore, storage_errors
from kfast.table.table_log import STAGING
from kfast.table.time_limits import time_limits

if TYPE_CHECKING:
    import pyarrow as pa

    from kfast.deserializers import Deserializer
    from kfast.records.partition_records import PartitionRecords
    from kfast.table.dead_letter_sink import DeadLetterSink
    from kfast.table.iceberg_partitions import IcebergField

MOST_OPEN: Final = 16
"""Most files of a range that are written at a time."""


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
    """A file that is being written; it has no ``output`` before its first row group."""

    staged: str
    place: Place
    number: int
    fsync: BackgroundFsync
    output: Any = None
    writer: Any = None
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    rows: int = 0
    """In row groups that were written."""
    min_timestamp_ms: int = 2**63 - 1
    max_timestamp_ms: int = -(2**63)

    @property
    def time_bounds(self) -> tuple[int, int]:
        """The least and the greatest timestamp, -1 if no row has one."""
        if self.min_timestamp_ms > self.max_timestamp_ms:
            return -1, -1
        return self.min_timestamp_ms, self.max_timestamp_ms


@dataclass(slots=True, frozen=True)
class _DoneFile:
    """A file whose bytes are on disk, and the folders and the number that its name will have."""

    file: DataFile
    folders: Parts
    number: int


class RangeFiles:
    """The files of one range, in the staging folder of a writer.

    ``projection`` has the columns in the files, ``partition_by`` those of their folders. The end of
    ``offset_range`` may be unknown until `close`: then it is its beginning. ``waiting_bytes`` are
    those of records that are in no file yet. ``deserializers`` are those of key and value, by
    default those of the projection. ``field_ids`` are those of the columns in an Iceberg table, by
    path, and ``partition_fields`` those that it is partitioned by.
    """

    def __init__(
        self,
        store: TableStore,
        projection: Projection,
        offset_range: OffsetRange,
        writer_id: str,
        *,
        table_format: str = "parquet",
        partition_by: tuple[str, ...] = (),
        compression: str = "zstd",
        group_bytes: int | None = None,
        deserializers: Mapping[str, Deserializer] | None = None,
        field_ids: Mapping[str, int] | None = None,
        partition_fields: Sequence[IcebergField] = (),
        dead_letters: DeadLetterSink | None = None,
    ) -> None:
        self._store = store
        self._offset_range = offset_range
        self._staging = f"{STAGING}/{writer_id}"
        self._dead_letters = dead_letters
        self._limits = time_limits(projection, partition_by)
        self._divider = divider(
            table_format, partition_by, partition_fields, projection, self._limits
        )
        self._group_bytes = GROUP_BYTES if group_bytes is None else min(group_bytes, GROUP_BYTES)
        self._batches = ArrowBatches(
            projection,
            offset_range.topic,
            offset_range.partition,
            deserializers,
            dead_letters,
            self._limits,
        )
        self._encoder = FileEncoder(
            table_format, projection, self._batches.schema, compression, field_ids or {}
        )
        self._has_unique_names = table_format in CATALOG_FORMATS
        self._open: dict[Place, _OpenFile] = {}
        self._numbers: dict[Place, int] = {}
        self._done: list[_DoneFile] = []
        self._waiting_bytes = 0

    @property
    def most_rows(self) -> int:
        """Rows of the file that has the most, of those being written."""
        return max((file.rows + file.waiting_rows for file in self._open.values()), default=0)

    @property
    def most_bytes(self) -> int:
        """Bytes of the largest file being written, as far as they are written."""
        return max((file.output.tell() for file in self._outputs), default=0)

    @property
    def open_outputs(self) -> int:
        """Number of open files."""
        letters = self._dead_letters
        return len(self._outputs) + (letters is not None and letters.is_open)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of records, and of dead letters, that are in no file yet."""
        letters = self._dead_letters
        return self._waiting_bytes + (0 if letters is None else letters.waiting_bytes)

    @property
    def _outputs(self) -> list[_OpenFile]:
        return [file for file in self._open.values() if file.output is not None]

    def write(self, records: PartitionRecords) -> None:
        """Write records; offsets rise from call to call."""
        for place, batch, some in self._divider.divide(records, self._batches.batches):
            self._add(place, batch, time_bounds(some, self._limits))

    def _add(self, place: Place, batch: pa.RecordBatch, times: tuple[int, int]) -> None:
        """Add rows to the file of their place; all their timestamps are between ``times``."""
        file = self._file(place)
        nbytes = batch.nbytes
        file.waiting.append(batch)
        file.waiting_rows += batch.num_rows
        file.waiting_bytes += nbytes
        self._waiting_bytes += nbytes
        file.min_timestamp_ms = min(file.min_timestamp_ms, times[0])
        file.max_timestamp_ms = max(file.max_timestamp_ms, times[1])
        if file.waiting_rows >= GROUP_ROWS or file.waiting_bytes >= self._group_bytes:
            self._flush(file)
            with self._writing(file.staged):
                file.fsync.begin()

    def close_without_rows(self, now_ms: int) -> ReadRange:
        """Write and finish a file with the columns only, in the folders of the present time."""
        offset_range = self._offset_range
        file = self._file(
            self._divider.place_at(offset_range.topic, offset_range.partition, now_ms)
        )
        try:
            with self._writing(file.staged):
                self._open_output(file)
            return self.close()
        except BaseException:
            self.discard()
            raise

    def spill(self) -> None:
        """Write what is in no file yet as a row group."""
        for file in self._open.values():
            if file.waiting:
                self._flush(file)
        if self._dead_letters is not None:
            self._dead_letters.spill()

    def close(self, counts: ReadCounts | None = None, until_offset: int | None = None) -> ReadRange:
        """Finish all files; return the range with them.

        ``counts`` are those of its reader; the malformed records are added to them.
        ``until_offset`` is the end of the range if it was unknown.
        """
        while self._open:
            self._finish(next(iter(self._open)))
        offset_range = self._offset_range
        if until_offset is not None:
            offset_range = replace(offset_range, until_offset=until_offset)
        counts = counts or ReadCounts()
        skipped = (f"{batch.base_offset}-{batch.last_offset}" for batch in counts.skipped_batches)
        counts.bad_records += self._batches.bad_records
        unknown = self._batches.unknown
        counts.unknown.add(unknown.fields, unknown.paths)
        files = [
            replace(done.file, path=self._final_path(offset_range, done)) for done in self._done
        ]
        if self._dead_letters is not None:
            files += self._dead_letters.close(offset_range)
        return ReadRange(
            *offset_range.topic_partition,
            offset_range.from_offset,
            offset_range.until_offset,
            tuple(files),
            counts.lost_offsets,
            counts.bad_records,
            " ".join(skipped),
            counts.unknown.fields,
            counts.unknown.text,
            0 if self._dead_letters is None else self._dead_letters.produced,
        )

    def _final_path(self, offset_range: OffsetRange, done: _DoneFile) -> str:
        """The name of a file in the table.

        In a table with a catalog no name is used twice, as older versions of it have their files.
        """
        unique = done.file.staged.rpartition(".")[2] if self._has_unique_names else ""
        return final_path(offset_range, done.folders, done.number, self._encoder.ending, unique)

    def discard(self) -> None:
        """Remove what was written."""
        if self._dead_letters is not None:
            self._dead_letters.discard()
        staged = [file.staged for file in self._outputs]
        staged += [done.file.staged for done in self._done]
        for file in self._outputs:
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

    def _file(self, place: Place) -> _OpenFile:
        """The file of a place; the least recently used one is finished at `MOST_OPEN`."""
        file = self._open.pop(place, None)
        if file is None:
            if len(self._open) >= MOST_OPEN:
                self._finish(next(iter(self._open)))
            file = self._new_file(place)
        self._open[place] = file
        return file

    def _new_file(self, place: Place) -> _OpenFile:
        number = self._numbers.get(place, 0)
        self._numbers[place] = number + 1
        # Without the ending of the format: no reader may take it for data.
        name = (
            task_name(self._offset_range)
            if self._offset_range.size
            else range_name(self._offset_range)
        )
        staged = f"{self._staging}/{name}.{uuid.uuid4().hex}"
        return _OpenFile(staged, place, number, BackgroundFsync(self._store, staged))

    def _flush(self, file: _OpenFile) -> None:
        with self._writing(file.staged):
            if file.output is None:
                self._open_output(file)
            batches, file.waiting = file.waiting, []
            self._waiting_bytes -= file.waiting_bytes
            file.waiting_rows = file.waiting_bytes = 0
            file.rows += self._encoder.write(file.writer, batches, self._offset_range.topic)

    def _open_output(self, file: _OpenFile) -> None:
        file.output = self._store.open_output(file.staged)
        try:
            file.writer = self._encoder.open(file.output)
        except BaseException:
            with contextlib.suppress(Exception):
                file.output.close()
            file.output = None
            self._store.remove(file.staged)
            raise

    def _finish(self, place: Place) -> None:
        file = self._open[place]
        if file.waiting:
            self._flush(file)
        with self._writing(file.staged):
            file.writer.close()
            size = file.output.tell()
            file.output.close()
            file.fsync.finish()
        del self._open[place]
        written = DataFile(
            file.staged,
            "",
            file.rows,
            size,
            *file.time_bounds,
            stats=self._encoder.statistics(file.writer),
            partition_values=place.values,
        )
        self._done.append(_DoneFile(written, place.folders, file.number))

    def _writing(self, staged: str) -> AbstractContextManager[None]:
        """Name a file in the errors of its filesystem, such as that of a full disk."""
        return storage_errors(f"cannot write {self._store.url}/{staged}")

    def __repr__(self) -> str:
        return f"<RangeFiles {self._offset_range}, {len(self._open)} open, {len(self._done)} done>"
