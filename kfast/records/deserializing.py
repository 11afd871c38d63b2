"""Deserialization of the keys and values of rows, and its errors.

Owns the ``on_deserialization_error`` rules (E-08):

========  ==========================================================================================
raise     the rows before the first bad record are returned with an error that names topic,
          partition, offset, column and the record's bytes
null      a bad key or value becomes null and is counted
skip      a record with a bad key or value is dropped and counted
========  ==========================================================================================

Errors are never rows (E-07). Keys are deserialized before values, as in the Java client, and values
of rows after a bad key are not deserialized.

Thread: the caller's, which also runs a user's callable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast

import numpy as np

from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.record_errors import NO_ERRORS, ErrorPart, RecordErrors, error_message
from kfast.columns.spans import read_only, take
from kfast.columns.text import StringColumn
from kfast.deserializers import as_deserializer, describe, is_native, needs_headers
from kfast.errors import ConfigurationError, DeserializationError, IllegalStateError
from kfast.records.chunk_rows import ChunkRows
from kfast.records.row_columns import RowColumns
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kfast._native.record_index import RecordIndex
    from kfast.columns.column_data import ColumnData
    from kfast.columns.operations import Values
    from kfast.deserializers import DecodedColumn, Deserializer, NativeDeserializer
    from kfast.deserializers.typed import TypedDeserializer

NO_LIMIT: Final = 1 << 62

OnError: TypeAlias = Literal["raise", "null", "skip"]


class _Rows(Protocol):
    """Rows whose keys and values may be raw."""

    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    errors: NDArray[np.int32] | None
    selected: frozenset[str]

    @property
    def has_headers(self) -> bool: ...
    def __len__(self) -> int: ...
    def select(self, rows: Any) -> RowColumns: ...
    def take_decoded(self, keys: Values | None, values: Values | None) -> None: ...
    def bytes_of(self, column: str) -> BytesColumn: ...
    def all_headers(self) -> HeadersColumn: ...


class Deserialization:
    """Runs the deserializers of one chunk.

    ``count`` rows precede the first bad one, whose ``error`` it has if errors are raised.
    """

    __slots__ = (
        "_bad",
        "_decoded",
        "_found",
        "_most_bytes",
        "_native",
        "_on_error",
        "_rows",
        "_tp",
        "count",
        "error",
        "nodes",
    )

    def __init__(
        self, tp: TopicPartition, rows: Any, on_error: OnError, most_bytes: int = NO_LIMIT
    ) -> None:
        self._most_bytes = most_bytes
        self._native: list[str] = []
        self._tp = tp
        self._rows: _Rows = rows
        self._on_error = on_error
        self._decoded: dict[str, Values] = {}
        self.nodes: dict[str, ColumnData] = {}
        """The memory of typed columns."""
        self._bad: NDArray[np.bool_] | None = None
        self._found: list[tuple[NDArray[Any], RecordErrors]] = []
        """Errors, each with the row it is of."""
        self.count = len(self._rows)
        self.error: DeserializationError | None = None

    def note(self, errors: RecordErrors) -> None:
        """Add errors that the rows have had before."""
        if self._rows.errors is not None:
            self._found.append((np.repeat(np.arange(self.count), self._rows.errors), errors))

    def decode(self, name: str, deserializer: Deserializer) -> None:
        """Decode ``"key"`` or ``"value"``, up to the first bad row if errors are raised."""
        stop_at_first = self._on_error == "raise"
        column = self._rows.bytes_of(name)
        if self.count < len(column):
            column = column[: self.count]
        headers = self._rows.all_headers() if needs_headers(deserializer) else None
        if is_native(deserializer):
            self._native.append(name)
            result = cast("NativeDeserializer", deserializer).decode_some(
                column, headers, stop_at_first=stop_at_first, most_bytes=self._most_bytes
            )
            if len(result.values) < len(column) and not (stop_at_first and result.first_bad >= 0):
                self.count = len(result.values)
        else:
            result = deserializer.deserialize_column(column, headers, stop_at_first=stop_at_first)
        self._decoded[name] = result.values
        if result.node is not None:
            self.nodes[name] = result.node
        if stop_at_first:
            if result.first_bad >= 0:
                self.count = result.first_bad
                self.error = self._error_of(name, deserializer, result, column)
        elif result.is_bad is not None:
            self._note_errors(name, deserializer, result, column)
            bad = np.zeros(len(self._rows), np.bool_) if self._bad is None else self._bad.copy()
            bad[: len(result.is_bad)] |= result.is_bad
            self._bad = bad

    @property
    def is_bad(self) -> NDArray[np.bool_] | None:
        """Which rows have a bad key or value; None if errors are raised, or without any."""
        return self._bad

    @property
    def error_rows(self) -> NDArray[np.intp]:
        """The row of each error that `rows` returns, if it leaves no row out."""
        bad_rows = [rows for rows, _errors in self._found]
        return np.sort(np.concatenate(bad_rows)) if bad_rows else np.zeros(0, np.intp)

    def rows(self) -> tuple[RowColumns, RecordErrors]:
        """Return the rows without bad ones, with their decoded columns, and all errors."""
        self._rows.take_decoded(self._decoded.get("key"), self._decoded.get("value"))
        if self.error is not None:
            return self._rows.select(slice(0, self.count)), NO_ERRORS
        row_columns = cast("RowColumns", self._rows)
        if self.count < len(self._rows):
            row_columns = row_columns.select(slice(0, self.count))
        if not self._found:
            return row_columns, NO_ERRORS
        owners = np.concatenate([rows for rows, _errors in self._found])
        order = np.argsort(owners, kind="stable")  # a record's key first
        errors = RecordErrors.concat([errors for _rows, errors in self._found]).select(order)
        within = owners[order] < self.count
        if not within.all():  # of keys whose values come later
            errors, owners = errors.select(np.flatnonzero(within)), owners[owners < self.count]
        if self._bad is not None and self._on_error == "skip":
            kept = np.flatnonzero(~self._bad[: self.count])
            row_columns = row_columns.select(kept)
            # Those of skipped rows belong to the row after them, or to the last one.
            owners = np.minimum(np.searchsorted(kept, owners), max(len(kept) - 1, 0))
        if len(row_columns):
            counts = np.bincount(owners, minlength=len(row_columns)).astype(np.int32)
            row_columns.errors = read_only(counts)
        return row_columns, errors

    def blocks(self) -> Iterator[Any]:
        """Yield the memory of columns that decoders have made."""
        for name in self._native:
            column: Any = self._decoded[name]
            if isinstance(column, np.ndarray):
                yield np.ma.getdata(column)
            else:
                yield from column.blocks()

    @property
    def is_all_decoded(self) -> bool:
        """Whether neither keys, values nor headers of the result are in the received data."""
        names = {name for name in ("key", "value") if name in self._rows.selected}
        kept = (*self._decoded.values(),)
        return (
            names == set(self._native)
            and not any(isinstance(column, BytesColumn | StringColumn) for column in kept)
            and not self._rows.has_headers
        )

    def _note_errors(
        self, name: str, deserializer: Deserializer, result: DecodedColumn, column: BytesColumn
    ) -> None:
        is_bad, errors = result.is_bad, result.errors
        assert is_bad is not None
        if self._on_error == "skip" and self._bad is not None:
            # A record is skipped once: for its key, if both are bad.
            is_bad = is_bad & ~self._bad[: len(is_bad)]
            if errors is not None:
                errors = errors.within(is_bad[errors.rows["row"]])
        rows = np.flatnonzero(is_bad)
        error_part = ErrorPart(
            self._tp.topic,
            self._tp.partition,
            name,
            take(self._rows.offsets, rows),
            take(self._rows.timestamps, rows),
            column.select(rows),
            None if errors is None else errors.rows,
            None if errors is None else errors.schema_ids,
            partial(describe, deserializer, None if errors is None else errors.root),
        )
        self._found.append((rows, RecordErrors([error_part], [len(rows)])))

    def _error_of(
        self, name: str, deserializer: Deserializer, result: DecodedColumn, column: BytesColumn
    ) -> DeserializationError:
        row, tp = result.first_bad, self._tp
        offset = int(self._rows.offsets[row])
        errors = result.errors
        schema_id = None if errors is None or not errors.schema_ids else errors.schema_ids[0]
        bad_value = describe(
            deserializer,
            None if errors is None else errors.root,
            column[row] or b"",
            None if errors is None else errors.rows[0],
            schema_id,
        )
        cause = result.cause
        error = DeserializationError(
            error_message(f"{tp} offset {offset}", name, bad_value),
            cause=None if cause is None else _one_line(cause),
            found=bad_value.found or None,
            hint=bad_value.hint,
            topic=tp.topic,
            partition=tp.partition,
            offset=offset,
            column=name,
            key_bytes=self._raw("key", row),
            value_bytes=self._raw("value", row),
            code=bad_value.code,
            path=bad_value.path,
            byte_position=bad_value.byte_position,
            schema_id=schema_id,
        )
        error.__cause__ = cause
        return error

    def _raw(self, name: str, row: int) -> bytes | None:
        try:
            return self._rows.bytes_of(name)[row]
        except IllegalStateError:  # was deserialized before, or not selected
            return None


def decode_rows(
    raw_rows: RowColumns,
    errors: RecordErrors,
    tp: TopicPartition,
    keys: object,
    values: object,
    on_error: OnError,
) -> tuple[RowColumns, RecordErrors]:
    """Deserialize raw columns of rows that have been built; see ``PartitionRecords.decode``."""
    if on_error not in {"raise", "null", "skip"}:
        raise ConfigurationError(
            f'on_error is "raise", "null" or "skip", not {on_error!r}', hint='on_error="null"'
        )
    rows = raw_rows.select(slice(None))
    decoding = Deserialization(tp, rows, on_error)
    decoding.note(errors)
    for name, deserializer in (("key", as_deserializer(keys)), ("value", as_deserializer(values))):
        if deserializer is not None:
            _wait_for_schemas(rows, name, deserializer)
            decoding.decode(name, deserializer)
    decoded, decode_errors = decoding.rows()
    if decoding.error is not None:
        raise decoding.error
    return decoded, decode_errors if decoded.errors is not None or not len(errors) else errors


def _wait_for_schemas(rows: RowColumns, name: str, deserializer: Deserializer) -> None:
    wait = getattr(deserializer, "wait_for_schemas", None)
    if wait is not None:
        headers = rows.all_headers() if needs_headers(deserializer) else None
        wait(rows.bytes_of(name), headers)


@dataclass(slots=True)
class TypedRows:
    """Some rows of a chunk whose keys or values have typed columns, for writers of text."""

    nodes: Mapping[str, ColumnData]
    """By ``"key"`` and ``"value"``; null where one cannot be read."""
    count: int
    """Rows before the first bad one if errors are raised, else all."""
    error: DeserializationError | None
    """Of the row behind those."""
    is_bad: NDArray[np.bool_] | None
    """Rows with a bad key or value, None for none."""
    errors: RecordErrors
    error_rows: NDArray[np.intp]
    """Of each error, ascending."""


def decode_typed(
    topic: str,
    partition: int,
    index: RecordIndex,
    rows: slice,
    deserializers: Mapping[str, TypedDeserializer],
    *,
    on_error: OnError,
) -> TypedRows:
    """Make typed columns of some rows of a chunk, waiting for schemas that are not known.

    ``deserializers`` are those of ``"key"`` and ``"value"``, in this order.
    """
    selected = {
        *deserializers,
        *(("headers",) if any(map(needs_headers, deserializers.values())) else ()),
    }
    chunk_rows = ChunkRows(topic, partition, index, frozenset(selected)).select(rows)
    decoding = Deserialization(TopicPartition(topic, partition), chunk_rows, on_error)
    for name, deserializer in deserializers.items():
        _wait_for_schemas(chunk_rows, name, deserializer)
        decoding.decode(name, deserializer)
    error_rows = decoding.error_rows
    _, errors = decoding.rows()
    return TypedRows(
        decoding.nodes, decoding.count, decoding.error, decoding.is_bad, errors, error_rows
    )


def _one_line(cause: Exception) -> str:
    text = str(cause).splitlines()
    return f"{type(cause).__name__}: {text[0]}" if text else type(cause).__name__
