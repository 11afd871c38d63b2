"""DeadLetters: malformed keys, values and timestamps of one range, as Parquet beside the table.

Owns the columns of that file (`COLUMNS`), its writing, and whose folder it is. The manifest of the
batch lists the file with those of the table, so that each bad key or value is there exactly once,
when its record's range is in the table. Only bad records cost anything.

A folder belongs to one table, whose URL is in its file ``_kfast/table.json``: names of files say
topic and offsets only, and two tables may have the same.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kfast._base.optional import optional_package
from kfast.columns.record_errors import RecordError, error_message
from kfast.errors import ConfigurationError
from kfast.table.batches import DataFile
from kfast.table.file_formats import GROUP_BYTES, parquet_writer
from kfast.table.file_names import final_path, task_name
from kfast.table.fsspec_store import open_store
from kfast.table.store import storage_errors
from kfast.table.table_log import FOLDER, STAGING
from kfast.table.time_limits import MICROSECONDS, time_limits

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kfast.records.partition_records import PartitionRecords
    from kfast.table.offset_ranges import OffsetRange
    from kfast.table.projection import Projection
    from kfast.table.store import TableStore
    from kfast.table.time_limits import BadTimes
    from kfast.table.value_decoder import DecodedValues

COLUMNS: Final = (
    ("topic", "string"),
    ("partition", "int32"),
    ("offset", "int64"),
    ("timestamp", "timestamp"),
    ("column", "string"),
    ("code", "string"),
    ("path", "string"),
    ("message", "string"),
    ("raw", "binary"),
)
"""``column`` is ``key`` or ``value``, and ``raw`` its bytes as they came; or ``timestamp``, and
``raw`` its milliseconds as text."""
_OWNER: Final = f"{FOLDER}/table.json"
_ROW_BYTES: Final = 200


class DeadLetters:
    """The dead letters of a range, in the staging folder of a writer."""

    def __init__(self, store: TableStore, offset_range: OffsetRange, writer_id: str) -> None:
        self._store = store
        self._offset_range = offset_range
        self._staging = f"{STAGING}/{writer_id}"
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0
        self._count = 0
        self._staged = ""
        self._output: Any = None
        self._writer: Any = None

    def take(
        self, records: PartitionRecords, columns: Mapping[str, DecodedValues | BadTimes]
    ) -> None:
        """Take the keys, values and timestamps that could not be read."""
        for column, values in sorted(columns.items()):
            if values.is_bad is None:
                continue
            for row in np.flatnonzero(values.is_bad).tolist():
                error = record_error(records, row, column, values)
                is_held = abs(error.timestamp) <= MICROSECONDS.high_ms
                time_us = error.timestamp * 1000 if is_held else None
                self._rows.append(
                    (error.topic, error.partition, error.offset, time_us, column, error.code,
                     error.path, error.message, error.raw)
                )  # fmt: skip
                self._bytes += _ROW_BYTES + len(error.raw or b"") + len(error.message)
            if self._bytes >= GROUP_BYTES:
                self.spill()

    @property
    def waiting_bytes(self) -> int:
        """Bytes, about, that are not in the file yet."""
        return self._bytes

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return self._writer is not None

    def spill(self) -> None:
        """Write what is not in the file yet as a row group."""
        with storage_errors(f"cannot write dead letters to {self._store.url}"):
            if self._rows:
                self._flush()

    def _flush(self) -> None:
        arrow = optional_package("pyarrow", "a table of files")
        kinds = {
            "timestamp": arrow.timestamp("us", tz="UTC"),
            "string": arrow.string(),
            "binary": arrow.binary(),
            "int32": arrow.int32(),
            "int64": arrow.int64(),
        }
        schema = arrow.schema([(name, kinds[kind]) for name, kind in COLUMNS])
        if self._writer is None:
            if not self._staged:
                name = task_name(self._offset_range)
                self._staged = f"{self._staging}/{name}.{uuid.uuid4().hex}"
            self._output = self._store.open_output(self._staged)
            names = {name: name for name, _ in COLUMNS}
            self._writer = parquet_writer(
                self._output, schema, names, "zstd", repeating=("column", "code", "path")
            )
        columns = zip(*self._rows, strict=True)
        arrays = [
            arrow.array(values, field.type) for values, field in zip(columns, schema, strict=True)
        ]
        self._writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))
        self._count += len(self._rows)
        self._rows, self._bytes = [], 0

    def close(self, offset_range: OffsetRange) -> list[DataFile]:
        """Finish the file of the range; return it, or nothing if there were no dead letters."""
        self.spill()
        if self._writer is None:
            return []
        with storage_errors(f"cannot write dead letters to {self._store.url}"):
            self._writer.close()
            size = self._output.tell()
            self._output.close()
            self._store.fsync(self._staged)
        self._writer = None
        return [
            DataFile(
                self._staged,
                final_path(offset_range),
                rows=self._count,
                bytes=size,
                folder=self._store.url,
            )
        ]

    @property
    def produced(self) -> int:
        """None: all are in the file."""
        return 0

    def discard(self) -> None:
        """Remove what was written."""
        for stream in (self._writer, self._output):
            with contextlib.suppress(Exception):
                stream.close()
        self._writer = None
        if self._staged:
            self._store.remove(self._staged)

    def __repr__(self) -> str:
        return f"<DeadLetters of {self._offset_range}, {self._count + len(self._rows)}>"


def record_error(
    records: PartitionRecords, row: int, column: str, values: DecodedValues | BadTimes
) -> RecordError:
    """What could not be read of one record."""
    bad = values.bad_value(row)
    offset = int(records.offsets[row])
    where = f"{records.topic_partition} offset {offset}"
    return RecordError(
        *records.topic_partition,
        offset,
        int(records.timestamps[row]),
        column,
        bad.code,
        bad.path,
        -1,
        None,
        error_message(where, column, bad),
        values.raw_value(row),
    )


def check_dead_letters(url: str, table: str, options: Mapping[str, str]) -> str:
    """Return the URL of the folder of a table's dead letters, which it gets as its own.

    Raises ``ConfigurationError`` if it is in the table or the other way round, or is another's.
    """
    store = open_store(url, options)
    inner, outer = sorted((f"{store.url}/", f"{table}/"), key=len, reverse=True)
    if inner.startswith(outer):
        raise ConfigurationError(
            f"dead letters in {store.url} would be in the folder of the table {table}, or the "
            "table in theirs",
            cause="readers of the one would read the other",
            hint="give them a folder of their own",
        )
    body = json.dumps({"table": table}).encode()
    with storage_errors(f"cannot write to {store.url}"):
        if not store.create(_OWNER, body) and store.read(_OWNER) != body:
            owner = (store.read(_OWNER) or b"").decode(errors="replace")
            raise ConfigurationError(
                f"{store.url} has the dead letters of another table",
                found=owner,
                hint=f"give another folder; or remove {_OWNER} if the table was moved",
            )
    return store.url


def check_can_be_bad(projection: Projection, partition_by: Collection[str] = ()) -> None:
    """Check that there can be dead letters: something may be bad, and the first one is no error."""
    can_be_bad = projection.decodes("key") or projection.decodes("value")
    can_be_bad |= time_limits(projection, tuple(partition_by)) is not None
    if not can_be_bad or projection.mode == "FAILFAST":
        raise ConfigurationError(
            "dead letters are malformed keys, values and timestamps, which are left out or null",
            found="the first one is an error"
            if can_be_bad
            else "keys and values are not decoded, and there is no column timestamp",
            hint=projection.spelling.dead_letter_hint,
        )
