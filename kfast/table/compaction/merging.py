"""Merger: files of equal columns become one, row by row.

Owns the reading and writing. Row groups are as large as those of an ingest, and settings of the
columns are the same; nothing larger than a row group is in memory. The columns of a file are those
that its footer has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kfast._base.optional import optional_package
from kfast.errors import TableError
from kfast.table.file_formats import GROUP_BYTES, GROUP_ROWS, parquet_writer, typed_leaves
from kfast.table.store import TableStore, storage_errors

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS: Final = 65_536
_KEPT_SCHEMA: Final = b"ARROW:schema"


class Merger:
    """Merges the files of one table; ``ending`` is that of their names."""

    def __init__(self, store: TableStore, ending: str, compression: str) -> None:
        self._store = store
        self.ending = ending
        self._is_parquet = ending == ".parquet"
        self._compression = compression
        self._arrow = optional_package("pyarrow", "a compaction")

    def columns(self, path: str) -> bytes:
        """Return the columns of a file; rows of files with equal ones can be in one file.

        Raises ``TableError`` if it is no such file.
        """
        with self._opened(path) as file:
            schema = file.schema_arrow if self._is_parquet else file.schema
            kept = self._is_parquet and _KEPT_SCHEMA in (file.metadata.metadata or {})
            text: bytes = schema.serialize().to_pybytes()
            return bytes([kept]) + text

    def merge(self, paths: Sequence[str], target: str) -> tuple[int, int]:
        """Write the rows of files to a new one, which is flushed; return its rows and bytes."""
        with storage_errors(f"cannot write {self._store.url}/{target}"):
            output = self._store.open_output(target)
            try:
                rows = self._merge(paths, output)
                size = int(output.tell())
                output.close()
            except BaseException:
                with contextlib.suppress(Exception):  # it is removed, complete or not
                    output.close()
                self._store.remove(target)
                raise
            self._store.fsync(target)
        return rows, size

    def rows(self, path: str) -> int:
        """Return the number of rows that a file has."""
        with self._opened(path) as file:
            if self._is_parquet:
                return int(file.metadata.num_rows)
            return sum(file.get_batch(number).num_rows for number in range(file.num_record_batches))

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[Any]:
        with contextlib.closing(self._store.open_input(path)) as source:
            try:
                if self._is_parquet:
                    parquet = optional_package("pyarrow.parquet", "a compaction")
                    file = parquet.ParquetFile(source)
                else:
                    file = self._arrow.ipc.open_file(source)
            except self._arrow.ArrowInvalid as error:
                raise TableError(
                    f"{self._store.url}/{path} cannot be read",
                    cause=str(error),
                    hint="move it out of the table's folder, or restore it",
                ) from error
            yield file

    def _merge(self, paths: Sequence[str], output: Any) -> int:
        writer: Any = None
        waiting: list[pa.RecordBatch] = []
        rows = waiting_rows = waiting_bytes = 0
        for path in paths:
            with self._opened(path) as file:
                if writer is None:
                    writer = self._writer(file, output)
                for batch in self._batches(file):
                    waiting.append(batch)
                    waiting_rows += batch.num_rows
                    waiting_bytes += batch.nbytes
                    if waiting_rows >= GROUP_ROWS or waiting_bytes >= GROUP_BYTES:
                        rows += self._write(writer, waiting)
                        waiting, waiting_rows, waiting_bytes = [], 0, 0
        if waiting:
            rows += self._write(writer, waiting)
        writer.close()
        return rows

    def _batches(self, file: Any) -> Iterator[pa.RecordBatch]:
        if self._is_parquet:
            yield from file.iter_batches(batch_size=_BATCH_ROWS)
            return
        for number in range(file.num_record_batches):
            yield file.get_batch(number)

    def _writer(self, file: Any, output: Any) -> Any:
        if not self._is_parquet:
            codec = None if self._compression == "none" else self._compression
            options = self._arrow.ipc.IpcWriteOptions(compression=codec)
            return self._arrow.ipc.new_file(output, file.schema, options=options)
        schema = file.schema_arrow
        sources = {name.lower(): name for name in schema.names}
        texts, numbers = typed_leaves(schema, sources)
        return parquet_writer(
            output,
            schema,
            sources,
            self._compression,
            store_schema=_KEPT_SCHEMA in (file.metadata.metadata or {}),
            repeating=texts,
            skippable=numbers,
        )

    def _write(self, writer: Any, batches: list[pa.RecordBatch]) -> int:
        table = self._arrow.Table.from_batches(batches)
        if self._is_parquet:
            writer.write_table(table, row_group_size=max(1, table.num_rows))
        else:
            writer.write_table(table)
        return int(table.num_rows)

    def __repr__(self) -> str:
        return f"<Merger {self._store.url}>"
