"""ChunkRows: the rows of a decoded chunk, each column made at its first access.

Owns: the step from a ``RecordIndex`` (buffers) to columns (arrays and objects). Most applications
read one or two columns, and a chunk may have a single record: making all columns would then be most
of the work between the socket and the application.

Thread: any. Two threads may make the same column concurrently; the results are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.spans import ColumnOrigin, index_array
from kfast.records.row_columns import RowColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from kfast._native.record_index import RecordIndex


class _Column:
    """A column that is made at its first access; set, or made, it is read without a call."""

    __slots__ = ("_make", "_name")

    def __init__(self, make: Callable[[ChunkRows], Any]) -> None:
        self._make = make

    def __set_name__(self, owner: type[ChunkRows], name: str) -> None:
        self._name = name

    def __get__(self, rows: ChunkRows | None, owner: type[ChunkRows]) -> Any:
        if rows is None:
            return self
        column = rows.__dict__[self._name] = self._make(rows)
        return column


def _column(make: Callable[[ChunkRows], Any]) -> Any:
    return _Column(make)


class ChunkRows(RowColumns):
    """The rows of one chunk, with the columns ``selected`` for export."""

    __slots__ = ("__dict__", "_count", "_index", "_partition", "_topic")
    _index: RecordIndex

    offsets = _column(lambda rows: index_array(rows._index.offsets, np.int64))
    timestamps = _column(lambda rows: index_array(rows._index.timestamps, np.int64))
    timestamp_types = _column(lambda rows: _timestamp_types(rows._index))
    keys = _column(lambda rows: rows.bytes_of("key") if "key" in rows.selected else None)
    values = _column(lambda rows: rows.bytes_of("value") if "value" in rows.selected else None)
    headers = _column(lambda rows: rows.all_headers() if "headers" in rows.selected else None)
    key_lengths = _column(lambda rows: rows._lengths("key", rows._index.key_lengths))
    value_lengths = _column(lambda rows: rows._lengths("value", rows._index.value_lengths))

    def __init__(
        self, topic: str, partition: int, index: RecordIndex, selected: frozenset[str]
    ) -> None:
        self.selected = selected
        self.errors = None
        self._topic = topic
        self._partition = partition
        self._index = index
        self._count = len(index)

    def __len__(self) -> int:
        return self._count

    @property
    def last_timestamp(self) -> int:
        """Timestamp of the last row; the chunk is not empty."""
        return self._index.last_timestamp

    @property
    def has_headers(self) -> bool:
        """Whether headers are selected, and any record has one."""
        return "headers" in self.selected and self._index.header_starts is not None

    def bytes_of(self, column: str) -> BytesColumn:
        """Return ``"key"`` or ``"value"`` as it was received, selected or not."""
        index = self._index
        if column == "key":
            starts, lengths = index.key_starts, index.key_lengths
        else:
            starts, lengths = index.value_starts, index.value_lengths
        origin = ColumnOrigin(self._topic, self._partition, column, index.offsets)
        return BytesColumn.of_index(index.data, starts, lengths, origin=origin)

    def all_headers(self) -> HeadersColumn:
        """Return the headers, selected or not."""
        index = self._index
        if index.header_starts is None:
            return HeadersColumn.empty(len(self))
        return HeadersColumn(index.data, index.header_starts, index.header_counts)

    def blocks(self) -> Iterator[Any]:
        """Yield the buffers that the rows keep alive: all of the chunk, whatever is selected."""
        yield from super().blocks()
        index = self._index
        for buffer in (
            index.data,
            index.offsets,
            index.timestamps,
            index.key_starts,
            index.key_lengths,
            index.value_starts,
            index.value_lengths,
            index.header_starts,
            index.header_counts,
        ):
            if buffer is not None:
                yield buffer

    def _lengths(self, column: str, lengths: Any) -> NDArray[np.int32] | None:
        return index_array(lengths, np.int32) if column in self.selected else None


def _timestamp_types(index: RecordIndex) -> int | NDArray[np.int8]:
    types = index.timestamp_types
    return types if isinstance(types, int) else index_array(types, np.int8)
