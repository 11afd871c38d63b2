"""RowColumns: the columns of some records of one partition.

Owns: selecting, joining, copying and listing rows of all columns alike. A column that was not
selected is None. Thread: any; immutable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kfast._base.spelling import did_you_mean
from kfast._native import columns
from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.operations import (
    Values,
    concat_values,
    restored_values,
    select_values,
    value_at,
    values_list,
    values_state,
)
from kfast.columns.spans import Rows, index_array, own, read_only, restored, take
from kfast.columns.text import StringColumn
from kfast.columns.uuid import UuidColumn
from kfast.errors import ConfigurationError, IllegalStateError
from kfast.records.consumer_record import ConsumerRecord

COLUMN_NAMES: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
)
"""All columns of a record, in the order of every export."""

_ALL_COLUMNS: Final = frozenset(COLUMN_NAMES)

_LIST_ROWS: Final = 4096
_KFAST_COLUMNS: Final = (BytesColumn, StringColumn, UuidColumn, HeadersColumn)


def selected_columns(names: Collection[str] | None) -> frozenset[str]:
    """Check a user's choice of columns; None means all.

    Raises
    ------
    ConfigurationError
        There is no such column.
    """
    if names is None:
        return _ALL_COLUMNS
    chosen = frozenset([names] if isinstance(names, str) else names)
    for name in sorted(chosen.difference(COLUMN_NAMES), key=str):
        near = did_you_mean(str(name), COLUMN_NAMES)
        raise ConfigurationError(
            f'unknown column "{name}"',
            found=f"columns are {', '.join(COLUMN_NAMES)}",
            hint=f'did you mean "{near}"?' if near else "choose from these",
        )
    return chosen


def common_columns(parts: Sequence[RowColumns]) -> frozenset[str]:
    """Return the columns that several parts have.

    Raises
    ------
    IllegalStateError
        They have different ones.
    """
    chosen = parts[0].selected
    for rows in parts[1:]:
        if rows.selected != chosen:
            raise IllegalStateError(
                "records with different columns cannot be joined or exported together",
                found=f"{_names(rows.selected)} after {_names(chosen)}",
                hint="read all of them with the same columns",
            )
    return chosen


def _names(selected: frozenset[str]) -> str:
    return ", ".join(name for name in COLUMN_NAMES if name in selected) or "no column"


class RowColumns:
    """Columns of n rows; keys, values, headers and lengths are None when not selected.

    ``timestamp_types`` is one number when it is the same for all rows; the lengths are serialized
    sizes, -1 for null. ``errors`` counts per row what could not be deserialized, None for nothing.
    """

    __slots__ = (
        "errors",
        "headers",
        "key_lengths",
        "keys",
        "offsets",
        "selected",
        "timestamp_types",
        "timestamps",
        "value_lengths",
        "values",
    )

    def __init__(
        self,
        selected: frozenset[str],
        offsets: NDArray[np.int64],
        timestamps: NDArray[np.int64],
        timestamp_types: int | NDArray[np.int8],
        keys: Values | None,
        values: Values | None,
        headers: HeadersColumn | None,
        key_lengths: NDArray[np.int32] | None,
        value_lengths: NDArray[np.int32] | None,
        errors: NDArray[np.int32] | None = None,
    ) -> None:
        self.errors = errors
        self.selected = selected
        self.offsets = offsets
        self.timestamps = timestamps
        self.timestamp_types = timestamp_types
        self.keys = keys
        self.values = values
        self.headers = headers
        self.key_lengths = key_lengths
        self.value_lengths = value_lengths

    def __len__(self) -> int:
        return len(self.offsets)

    def select(self, rows: Rows) -> RowColumns:
        """Return some rows; index arrays are copied, payload bytes are not."""
        types = self.timestamp_types
        return RowColumns(
            self.selected,
            take(self.offsets, rows),
            take(self.timestamps, rows),
            types if isinstance(types, int) else take(types, rows),
            None if self.keys is None else select_values(self.keys, rows),
            None if self.values is None else select_values(self.values, rows),
            None if self.headers is None else self.headers.select(rows),
            None if self.key_lengths is None else take(self.key_lengths, rows),
            None if self.value_lengths is None else take(self.value_lengths, rows),
            None if self.errors is None else take(self.errors, rows),
        )

    @property
    def last_timestamp(self) -> int:
        """Timestamp of the last row; not of an empty chunk."""
        return int(self.timestamps[-1])

    @property
    def type_array(self) -> NDArray[np.int8]:
        """Timestamp type of each row; shape (n,)."""
        types = self.timestamp_types
        if isinstance(types, int):
            return read_only(np.full(len(self), types, np.int8))
        return types

    @property
    def has_no_timestamp(self) -> NDArray[np.bool_] | None:
        """True where the record has no timestamp (-1); None when all have one."""
        missing = self.timestamps == -1
        return read_only(missing) if missing.any() else None

    @property
    def datetimes(self) -> NDArray[np.datetime64]:
        """Timestamps as ``datetime64[ms]``, NaT for none; a view when all rows have one."""
        times = self.timestamps.view("M8[ms]")
        missing = self.has_no_timestamp
        if missing is None:
            return times
        return read_only(np.where(missing, np.datetime64("NaT", "ms"), times))

    @property
    def nbytes(self) -> int:
        """Bytes of the serialized keys and values and of the index columns."""
        total = self.offsets.nbytes + self.timestamps.nbytes
        for lengths in (self.key_lengths, self.value_lengths):
            if lengths is not None:
                total += int(np.maximum(lengths, 0).sum(dtype=np.int64)) + lengths.nbytes
        return total

    def compact(self) -> RowColumns:
        """Return the same rows with keys, values and headers in one buffer of exactly their size.

        The order is all keys, all values, all headers, so that fixed-width values are contiguous.
        """
        spans = {
            name: _raw_spans(column)
            for name, column in (
                ("keys", self.keys),
                ("values", self.values),
                ("headers", self.headers),
            )
            if isinstance(column, BytesColumn | StringColumn | HeadersColumn)
        }
        payload, starts_buffer = columns.pack(list(spans.values()))
        starts = index_array(starts_buffer, np.int32, len(self) * len(spans))
        # Even the index arrays are views of the decoder's buffers.
        offsets = own(self.offsets)
        moved: dict[str, Any] = {
            name: select_values(column, np.arange(len(self)))
            for name, column in (("keys", self.keys), ("values", self.values))
            if column is not None and name not in spans
        }
        for number, name in enumerate(spans):
            positions = starts[number * len(self) : (number + 1) * len(self)]
            lengths = index_array(spans[name][2], np.int32)
            moved[name] = _over(getattr(self, name), payload, positions, own(lengths), offsets)
        types = self.timestamp_types
        return RowColumns(
            self.selected,
            offsets,
            own(self.timestamps),
            types if isinstance(types, int) else own(types),
            moved.get("keys"),
            moved.get("values"),
            moved.get("headers"),
            None if self.key_lengths is None else own(self.key_lengths),
            None if self.value_lengths is None else own(self.value_lengths),
            None if self.errors is None else own(self.errors),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        offsets = self.offsets
        return _restored_rows, (
            self.selected,
            offsets,
            self.timestamps,
            self.timestamp_types,
            values_state(_with_offsets(self.keys, offsets)),
            values_state(_with_offsets(self.values, offsets)),
            self.headers,
            self.key_lengths,
            self.value_lengths,
            self.errors,
        )

    def blocks(self) -> Iterator[Any]:
        """Yield the buffers that the rows keep alive."""
        for column in (
            self.offsets,
            self.timestamps,
            self.timestamp_types,
            self.keys,
            self.values,
            self.headers,
            self.key_lengths,
            self.value_lengths,
            self.errors,
        ):
            if isinstance(column, np.ndarray):
                yield np.ma.getdata(column)
                yield np.ma.getmaskarray(column) if isinstance(column, np.ma.MaskedArray) else b""
            elif isinstance(column, _KFAST_COLUMNS):
                yield from column.blocks()

    @property
    def has_headers(self) -> bool:
        """Whether headers are selected, and any record has one."""
        return self.headers is not None and bool(self.headers.counts.any())

    def without_payload(self) -> RowColumns:
        """Return the same rows, none of whose columns is in received data, without that data."""
        return RowColumns(
            self.selected,
            self.offsets,
            self.timestamps,
            self.timestamp_types,
            self.keys,
            self.values,
            None if self.headers is None else HeadersColumn.empty(len(self)),
            self.key_lengths,
            self.value_lengths,
            self.errors,
        )

    def take_decoded(self, keys: Values | None, values: Values | None) -> None:
        """Replace bytes by deserialized columns; None keeps the column. Before first use only."""
        if keys is not None:
            self.keys = keys
        if values is not None:
            self.values = values

    def bytes_of(self, column: str) -> BytesColumn:
        """Return ``"key"`` or ``"value"`` as it was received.

        Raises
        ------
        IllegalStateError
            It is not selected, or it was deserialized.
        """
        values = self.keys if column == "key" else self.values
        if not isinstance(values, BytesColumn):
            state = "was not selected" if values is None else "is deserialized already"
            raise IllegalStateError(
                f'column "{column}" {state}', hint=f"read {column}s without a deserializer"
            )
        return values

    def all_headers(self) -> HeadersColumn:
        """Return the headers; none if they are not selected."""
        return HeadersColumn.empty(len(self)) if self.headers is None else self.headers

    def with_errors(self, row: int, count: int) -> RowColumns:
        """Return the same rows with more values at one row that could not be read."""
        rows = self.select(slice(None))
        errors = _errors(rows).copy()
        errors[row] += count
        rows.errors = read_only(errors)
        return rows

    def record(self, row: int, topic: str, partition: int, leader_epoch: int) -> ConsumerRecord:
        """Return one row as an object; ``row`` is counted from the start."""
        types, headers = self.timestamp_types, self.headers
        pairs, header_bytes = ([], -1) if headers is None else headers.row(row)
        return ConsumerRecord(
            topic,
            partition,
            leader_epoch if leader_epoch >= 0 else None,
            self.offsets.item(row),
            self.timestamps.item(row),
            types if isinstance(types, int) else types.item(row),
            None if self.keys is None else value_at(self.keys, row),
            None if self.values is None else value_at(self.values, row),
            pairs,
            None,
            -1 if self.key_lengths is None else self.key_lengths.item(row),
            -1 if self.value_lengths is None else self.value_lengths.item(row),
            header_bytes,
        )

    def records(self, topic: str, partition: int, leader_epoch: int) -> Iterator[ConsumerRecord]:
        """Yield the rows as objects, made ``_LIST_ROWS`` at a time."""
        epoch = leader_epoch if leader_epoch >= 0 else None
        for start in range(0, len(self), _LIST_ROWS):
            rows = self.select(slice(start, start + _LIST_ROWS))
            count = len(rows)
            headers = rows.headers
            no_sizes = repeat(-1)
            fields = zip(
                repeat(topic, count),
                repeat(partition),
                repeat(epoch),
                rows.offsets.tolist(),
                rows.timestamps.tolist(),
                rows.type_array.tolist(),
                repeat(None) if rows.keys is None else values_list(rows.keys),
                repeat(None) if rows.values is None else values_list(rows.values),
                ([] for _ in range(count)) if headers is None else headers.to_list(),
                repeat(None),
                no_sizes if rows.key_lengths is None else rows.key_lengths.tolist(),
                no_sizes if rows.value_lengths is None else rows.value_lengths.tolist(),
                no_sizes
                if headers is None or not headers.counts.any()
                else headers.serialized_sizes.tolist(),
                strict=False,
            )
            # tuple.__new__ makes the same object as the class's own, without a Python-level call.
            yield from map(tuple.__new__, repeat(ConsumerRecord), fields)


def concat_rows(parts: Sequence[RowColumns]) -> RowColumns:
    """Return the rows of several parts with the same columns as one.

    Raises
    ------
    IllegalStateError
        They have different columns.
    """
    if len(parts) == 1:
        return parts[0]
    common_columns(parts)
    first = parts[0]
    types: int | NDArray[np.int8] = first.timestamp_types
    if any(not isinstance(p.timestamp_types, int) or p.timestamp_types != types for p in parts):
        types = read_only(np.concatenate([p.type_array for p in parts]))
    return RowColumns(
        first.selected,
        read_only(np.concatenate([p.offsets for p in parts])),
        read_only(np.concatenate([p.timestamps for p in parts])),
        types,
        None
        if first.keys is None
        else concat_values([p.keys for p in parts if p.keys is not None]),
        None
        if first.values is None
        else concat_values([p.values for p in parts if p.values is not None]),
        None
        if first.headers is None
        else HeadersColumn.concat([p.headers for p in parts if p.headers is not None]),
        None if first.key_lengths is None else _joined([p.key_lengths for p in parts]),
        None if first.value_lengths is None else _joined([p.value_lengths for p in parts]),
        None if all(p.errors is None for p in parts) else _joined([_errors(p) for p in parts]),
    )


def _restored_rows(
    selected: frozenset[str],
    offsets: NDArray[np.int64],
    timestamps: NDArray[np.int64],
    types: int | NDArray[np.int8],
    keys: Any,
    values: Any,
    headers: HeadersColumn | None,
    *counts: NDArray[np.int32] | None,
) -> RowColumns:
    """Return the rows of a pickle; ``counts`` are key lengths, value lengths and errors."""
    return RowColumns(
        selected,
        restored(offsets),
        restored(timestamps),
        types if isinstance(types, int) else restored(types),
        restored_values(keys),
        restored_values(values),
        headers,
        *(None if count is None else restored(count) for count in counts),
    )


def _with_offsets(column: Any, offsets: NDArray[np.int64]) -> Any:
    """Return a column whose origin has this very array, which a pickle then has once."""
    if isinstance(column, BytesColumn | StringColumn):
        return _over(column, *_raw_spans(column), offsets)
    return column


def _errors(rows: RowColumns) -> NDArray[np.int32]:
    return np.zeros(len(rows), np.int32) if rows.errors is None else rows.errors


def _joined(parts: Sequence[NDArray[np.int32] | None]) -> NDArray[np.int32]:
    return read_only(np.concatenate([counts for counts in parts if counts is not None]))


def _raw_spans(column: BytesColumn | StringColumn | HeadersColumn) -> tuple[Any, Any, Any]:
    return column.raw.spans if isinstance(column, StringColumn) else column.spans


def _over(column: Any, data: Any, starts: Any, lengths: Any, offsets: NDArray[np.int64]) -> Any:
    """Return the same kind of column over other memory."""
    if isinstance(column, HeadersColumn):
        return HeadersColumn(data, starts, own(column.counts))
    raw = column.raw if isinstance(column, StringColumn) else column
    origin = None if raw.origin is None else raw.origin.moved(offsets)
    moved = BytesColumn(data, starts, lengths, origin=origin)
    return StringColumn(moved) if isinstance(column, StringColumn) else moved
