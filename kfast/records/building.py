"""Building of PartitionRecords from a decoded chunk, with deserialization and its errors.

Owns the ``on_deserialization_error`` rules (E-08):

========  ==========================================================================================
raise     the rows before the first bad record are returned with an error that names topic,
          partition, offset, column and the record's bytes; ``next_offset`` is the bad record's
null      a bad key or value becomes null and is counted
skip      a record with a bad key or value is dropped and counted
========  ==========================================================================================

Errors are never rows (E-07). Keys are deserialized before values, as in the Java client, and values
of rows after a bad key are not deserialized.

Thread: the caller's, which also runs a user's callable.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from kfast.deserializers import as_deserializer, describe, needs_headers
from kfast.errors import DeserializationError
from kfast.records.chunk_rows import ChunkRows, RecordIndexLike
from kfast.records.columns.bytes import BytesColumn
from kfast.records.columns.headers import HeadersColumn
from kfast.records.columns.spans import ColumnOrigin, read_only, take
from kfast.records.errors import NO_ERRORS, ErrorPart, RecordErrors, error_message
from kfast.records.partition_records import PartitionRecords
from kfast.records.row_columns import RowColumns, selected_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kfast.deserializers import DecodedColumn, Deserializer
    from kfast.records.columns.operations import Values

OnError: TypeAlias = Literal["raise", "null", "skip"]


@dataclass(slots=True)
class BuildResult:
    """The records of a chunk, or those before the first bad record and its error."""

    records: PartitionRecords
    error: DeserializationError | None = None
    """Of the record at ``records.next_offset``."""


def build_partition_records(
    topic: str,
    partition: int,
    index: RecordIndexLike,
    *,
    key_deserializer: object = None,
    value_deserializer: object = None,
    on_error: OnError = "raise",
    high_watermark: int = -1,
    log_start_offset: int = -1,
    columns: Collection[str] | None = None,
) -> BuildResult:
    """Make the columns of a decoded chunk.

    Parameters
    ----------
    topic, partition : str, int
        The chunk's partition.
    index : RecordIndex
        The decoded chunk.
    key_deserializer, value_deserializer : see `as_deserializer`
        None leaves the column a BytesColumn.
    on_error : {"raise", "null", "skip"}
        Handling of keys and values that cannot be deserialized.
    high_watermark, log_start_offset : int
        Bounds of the log at the time of the fetch, -1 if unknown.
    columns : collection of str, optional
        Names from ``COLUMN_NAMES``. Others are not exported; keys, values or headers that are not
        selected are neither deserialized nor parsed.

    Raises
    ------
    ConfigurationError
        An unknown column or an invalid deserializer.
    """
    return build_chunk(
        topic,
        partition,
        index,
        as_deserializer(key_deserializer),
        as_deserializer(value_deserializer),
        selected=selected_columns(columns),
        on_error=on_error,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
    )


def build_chunk(
    topic: str,
    partition: int,
    index: RecordIndexLike,
    key_deserializer: Deserializer | None,
    value_deserializer: Deserializer | None,
    *,
    selected: frozenset[str],
    on_error: OnError,
    high_watermark: int,
    log_start_offset: int,
) -> BuildResult:
    """Same as `build_partition_records`, with arguments that have been checked."""
    chunk = ChunkRows(topic, partition, index, selected)
    rows: RowColumns = chunk
    next_offset = index.next_offset
    error: DeserializationError | None = None
    errors = NO_ERRORS
    if key_deserializer is not None or value_deserializer is not None:
        decoding = _Decoding(chunk, on_error)
        for name, deserializer in (("key", key_deserializer), ("value", value_deserializer)):
            if deserializer is not None and name in selected:
                decoding.decode(name, deserializer)
        rows, errors, error = decoding.rows(), decoding.errors(), decoding.error
        if error is not None:
            next_offset = int(chunk.offsets[decoding.count])
    records = PartitionRecords(
        topic,
        partition,
        rows,
        next_offset=next_offset,
        high_watermark=high_watermark,
        leader_epoch=index.leader_epoch,
        log_start_offset=log_start_offset,
        errors=errors,
    )
    return BuildResult(records, error)


class _Decoding:
    """Runs the deserializers of one chunk.

    ``count`` rows precede the first bad one, whose ``error`` it has if errors are raised.
    """

    __slots__ = (
        "_bad",
        "_chunk",
        "_decoded",
        "_on_error",
        "_parts",
        "_row_errors",
        "count",
        "error",
    )

    def __init__(self, chunk: ChunkRows, on_error: OnError) -> None:
        self._chunk = chunk
        self._on_error = on_error
        self._decoded: dict[str, Values] = {}
        self._bad: NDArray[np.bool_] | None = None
        self._row_errors: NDArray[np.int32] | None = None
        self._parts: list[tuple[NDArray[np.intp], ErrorPart]] = []
        self.count = len(chunk)
        self.error: DeserializationError | None = None

    def decode(self, name: str, deserializer: Deserializer) -> None:
        """Decode ``"key"`` or ``"value"``, up to the first bad row if errors are raised."""
        stop_at_first = self._on_error == "raise"
        column = self._chunk.bytes_of(name)
        if self.error is not None:
            column = column[: self.count]
        headers = self._chunk.all_headers() if needs_headers(deserializer) else None
        result = deserializer.deserialize_column(column, headers, stop_at_first=stop_at_first)
        self._decoded[name] = result.values
        if stop_at_first:
            if result.first_bad >= 0:
                self.count = result.first_bad
                self.error = self._error_of(deserializer, result, column)
        elif result.is_bad is not None:
            self._note_errors(deserializer, result, column)
            self._bad = result.is_bad if self._bad is None else self._bad | result.is_bad
            errors = result.is_bad.astype(np.int32)
            self._row_errors = errors if self._row_errors is None else self._row_errors + errors

    def rows(self) -> RowColumns:
        """Return the rows without bad ones, with their decoded columns."""
        chunk = self._chunk
        chunk.take_decoded(self._decoded.get("key"), self._decoded.get("value"))
        if self.error is not None:
            return chunk.select(slice(0, self.count))
        if self._bad is not None and self._on_error == "skip":
            kept = np.flatnonzero(~self._bad)
            rows = chunk.select(kept)
            if len(kept):
                rows.errors = _skipped_before(self._bad, kept)
            return rows
        if self._row_errors is not None:
            chunk.errors = read_only(self._row_errors)
        return chunk

    def errors(self) -> RecordErrors:
        """Return the bad values in the order of their rows, a record's key first."""
        if not self._parts:
            return NO_ERRORS
        rows = [rows for rows, _part in self._parts]
        order = np.argsort(np.concatenate(rows), kind="stable") if len(rows) > 1 else None
        return RecordErrors([part for _rows, part in self._parts], [len(r) for r in rows], order)

    def _note_errors(
        self, deserializer: Deserializer, result: DecodedColumn, column: BytesColumn
    ) -> None:
        is_bad, found = result.is_bad, result.errors
        assert is_bad is not None
        assert column.origin is not None  # columns of a chunk have one
        if self._on_error == "skip" and self._bad is not None:
            # A record is skipped once: for its key, if both are bad.
            is_bad = is_bad & ~self._bad
            if found is not None:
                found = found.within(is_bad[found.rows["row"]])
        rows = np.flatnonzero(is_bad)
        part = ErrorPart(
            column.origin.topic,
            column.origin.partition,
            column.origin.column,
            take(self._chunk.offsets, rows),
            take(self._chunk.timestamps, rows),
            column.select(rows),
            None if found is None else found.rows,
            None if found is None else found.schema_ids,
            partial(describe, deserializer, None if found is None else found.root),
        )
        self._parts.append((rows, part))

    def _error_of(
        self, deserializer: Deserializer, result: DecodedColumn, column: BytesColumn
    ) -> DeserializationError:
        row, chunk, origin = result.first_bad, self._chunk, column.origin
        assert origin is not None  # columns of a chunk have one
        found = result.errors
        schema_id = None if found is None or not found.schema_ids else found.schema_ids[0]
        bad_value = describe(
            deserializer,
            None if found is None else found.root,
            column[row] or b"",
            None if found is None else found.rows[0],
            schema_id,
        )
        cause = result.cause
        error = DeserializationError(
            error_message(origin.describe(row), origin.column, bad_value),
            cause=None if cause is None else _one_line(cause),
            found=bad_value.found or None,
            hint=bad_value.hint,
            topic=origin.topic,
            partition=origin.partition,
            offset=int(chunk.offsets[row]),
            column=origin.column,
            key_bytes=chunk.bytes_of("key")[row],
            value_bytes=chunk.bytes_of("value")[row],
            code=bad_value.code,
            path=bad_value.path,
            byte_position=bad_value.byte_position,
            schema_id=schema_id,
        )
        error.__cause__ = cause
        return error


def empty_partition_records(
    topic: str = "",
    partition: int = -1,
    *,
    key_deserializer: object = None,
    value_deserializer: object = None,
    columns: Collection[str] | None = None,
) -> PartitionRecords:
    """Return records without rows that have the columns and types of real ones."""
    selected = selected_columns(columns)
    none64 = np.zeros(0, np.int64)
    none32 = np.zeros(0, np.int32)
    nothing = BytesColumn(b"", none32, none32, origin=ColumnOrigin(topic, partition, "", none64))
    made: dict[str, Values | None] = {"key": None, "value": None}
    for name, given in (("key", key_deserializer), ("value", value_deserializer)):
        if name in selected:
            deserializer = as_deserializer(given)
            made[name] = (
                nothing
                if deserializer is None
                else deserializer.deserialize_column(nothing, None, stop_at_first=True).values
            )
    headers = HeadersColumn.empty(0) if "headers" in selected else None
    rows = RowColumns(
        selected, none64, none64, 0, made["key"], made["value"], headers, none32, none32
    )
    return PartitionRecords(topic, partition, rows, next_offset=-1)


def _skipped_before(is_bad: NDArray[np.bool_], kept: NDArray[np.intp]) -> NDArray[np.int32]:
    """Count the bad rows before each kept one; those after the last are counted with it."""
    skipped = np.cumsum(is_bad, dtype=np.int32)
    upto = skipped[kept]
    upto[-1] = skipped[-1]
    return read_only(np.diff(upto, prepend=np.int32(0)))


def _one_line(cause: Exception) -> str:
    text = str(cause).splitlines()
    return f"{type(cause).__name__}: {text[0]}" if text else type(cause).__name__
