"""From a decoded chunk to PartitionRecords: deserialization and what to do when it fails.

Owns the ``on_deserialization_error`` rules (E-08):

========  ==========================================================================================
raise     the rows before the first bad record are the result, the error comes beside it and names
          topic, partition, offset, column and the record's bytes; ``next_offset`` stays at the
          bad record
null      a bad key or value becomes null and is counted
skip      a record with a bad key or value is left out and counted
========  ==========================================================================================

Errors are never rows (E-07). Keys are deserialized before values, as in the Java client, and values
behind a bad key are not looked at.

Thread: the one that calls; a user's callable runs here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kfast._column_bytes import BytesColumn
from kfast._column_headers import HeadersColumn
from kfast._column_spans import ColumnOrigin, index_array
from kfast._native.record_index import RecordIndex
from kfast._records_partition import PartitionRecords
from kfast._records_rows import RowColumns, selected_columns
from kfast.deserializers import DecodedColumn, Deserializer, Values, as_deserializer
from kfast.errors import DeserializationError

OnError: TypeAlias = Literal["raise", "null", "skip"]


class RecordIndexLike(Protocol):
    """What is read of a ``RecordIndex``; buffers of the item types documented there."""

    @property
    def data(self) -> Any:
        """The memory all positions refer to."""

    @property
    def offsets(self) -> Any:
        """int64[n]."""

    @property
    def timestamps(self) -> Any:
        """int64[n], milliseconds."""

    @property
    def timestamp_types(self) -> Any:
        """One int, or int8[n]."""

    @property
    def key_starts(self) -> Any:
        """int32[n]."""

    @property
    def key_lengths(self) -> Any:
        """int32[n], -1 for null."""

    @property
    def value_starts(self) -> Any:
        """int32[n]."""

    @property
    def value_lengths(self) -> Any:
        """int32[n], -1 for null."""

    @property
    def header_starts(self) -> Any:
        """int32[n], or None when no record has headers."""

    @property
    def header_counts(self) -> Any:
        """int32[n], or None when no record has headers."""

    @property
    def next_offset(self) -> int:
        """The position after the chunk."""

    @property
    def leader_epoch(self) -> int:
        """Epoch of the last batch, -1 if unknown."""


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What became of a chunk.

    Parameters
    ----------
    records : PartitionRecords
        The records that can be handed out; with an error, those before it.
    error : DeserializationError or None
        Why the record at ``records.next_offset`` cannot be handed out.
    """

    records: PartitionRecords
    error: DeserializationError | None = None


@dataclass(frozen=True, slots=True)
class _Raw:
    """A chunk before deserialization."""

    rows: RowColumns
    keys: BytesColumn
    values: BytesColumn
    headers: HeadersColumn

    def before(self, row: int) -> _Raw:
        rows = slice(0, row)
        return _Raw(
            self.rows.select(rows),
            self.keys.select(rows),
            self.values.select(rows),
            self.headers.select(rows),
        )


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
        Where the chunk comes from.
    index : RecordIndex
        The decoded chunk.
    key_deserializer, value_deserializer : see `as_deserializer`
        None leaves the column a BytesColumn.
    on_error : {"raise", "null", "skip"}
        What to do with a value that cannot be read.
    high_watermark, log_start_offset : int
        Bounds of the partition at the time of the fetch, -1 if unknown.
    columns : collection of str, optional
        Names out of ``COLUMN_NAMES``. Others are not exported, and an unasked key, value or
        header is neither deserialized nor looked at.

    Raises
    ------
    ConfigurationError
        An unknown column or an impossible deserializer.
    """
    selected = selected_columns(columns)
    raw = _raw_columns(topic, partition, index, selected)
    stop_at_first = on_error == "raise"
    next_offset = index.next_offset
    error: DeserializationError | None = None
    bad: NDArray[np.bool_] | None = None
    nulled = 0
    decoded: dict[str, DecodedColumn] = {}
    for name, given in (("key", key_deserializer), ("value", value_deserializer)):
        deserializer = as_deserializer(given)
        if deserializer is None or name not in selected:
            continue
        column = raw.keys if name == "key" else raw.values
        result = deserializer.deserialize_column(column, raw.headers, stop_at_first=stop_at_first)
        if result.first_bad >= 0 and stop_at_first:
            error = _error(deserializer, raw, result, column)
            next_offset = int(raw.rows.offsets[result.first_bad])
            raw = raw.before(result.first_bad)
        if result.is_bad is not None and not stop_at_first:
            nulled += int(np.count_nonzero(result.is_bad))
            bad = result.is_bad if bad is None else bad | result.is_bad
        decoded[name] = result
    count = len(raw.rows)
    rows = raw.rows.with_values(
        _column(raw.keys, decoded.get("key"), count) if "key" in selected else None,
        _column(raw.values, decoded.get("value"), count) if "value" in selected else None,
    )
    if bad is not None and on_error == "skip":
        rows = rows.select(np.flatnonzero(~bad))
        nulled = int(np.count_nonzero(bad))
    records = PartitionRecords(
        topic,
        partition,
        rows,
        next_offset=next_offset,
        high_watermark=high_watermark,
        leader_epoch=index.leader_epoch,
        log_start_offset=log_start_offset,
        deserialization_errors=nulled,
    )
    return BuildResult(records, error)


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


_column_of_index = BytesColumn.of_index


def _raw_columns(
    topic: str, partition: int, index: RecordIndexLike, selected: frozenset[str]
) -> _Raw:
    offsets = index_array(index.offsets, np.int64)
    types = index.timestamp_types
    make = _column_of_index if isinstance(index, RecordIndex) else BytesColumn
    data = index.data
    key_origin = ColumnOrigin(topic, partition, "key", offsets)
    keys = make(data, index.key_starts, index.key_lengths, origin=key_origin)
    value_origin = ColumnOrigin(topic, partition, "value", offsets)
    values = make(data, index.value_starts, index.value_lengths, origin=value_origin)
    headers = (
        HeadersColumn.empty(len(offsets))
        if index.header_starts is None
        else HeadersColumn(data, index.header_starts, index.header_counts)
    )
    rows = RowColumns(
        selected,
        offsets,
        index_array(index.timestamps, np.int64),
        types if isinstance(types, int) else index_array(types, np.int8),
        None,
        None,
        headers if "headers" in selected else None,
        keys.lengths if "key" in selected else None,
        values.lengths if "value" in selected else None,
    )
    return _Raw(rows, keys, values, headers)


def _column(raw: BytesColumn, decoded: DecodedColumn | None, count: int) -> Values:
    """Return the column, cut where another column (or itself) had its first bad row."""
    values = raw if decoded is None else decoded.values
    return values if len(values) == count else values[:count]


def _error(
    deserializer: Deserializer, raw: _Raw, result: DecodedColumn, column: BytesColumn
) -> DeserializationError:
    row = result.first_bad
    origin = column.origin
    name = "" if origin is None else origin.column
    where = "" if origin is None else origin.describe(row)
    complaint = deserializer.complain(column[row] or b"")
    cause = result.cause
    error = DeserializationError(
        f"{where}: {name} {complaint.reason}",
        cause=None if cause is None else _one_line(cause),
        found=complaint.found,
        hint=complaint.hint,
        topic=None if origin is None else origin.topic,
        partition=None if origin is None else origin.partition,
        offset=int(raw.rows.offsets[row]),
        column=name,
        key_bytes=raw.keys[row],
        value_bytes=raw.values[row],
    )
    error.__cause__ = cause
    return error


def _one_line(cause: Exception) -> str:
    text = str(cause).splitlines()
    return f"{type(cause).__name__}: {text[0]}" if text else type(cause).__name__
