"""ChunkRows: the rows of a decoded chunk, each column made at its first access.

Owns: the step from a ``RecordIndex`` (buffers) to columns (arrays and objects). Most applications
read one or two columns, and a chunk may have a single record: making all columns would then be most
of the work between the socket and the application.

Thread: any. Two threads may make the same column concurrently; the results are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from kfast._native.record_index import RecordIndex
from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.spans import ColumnOrigin, index_array
from kfast.records.row_columns import RowColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray


class RecordIndexLike(Protocol):
    """The attributes used of a ``RecordIndex``; buffers of the item types documented there."""

    def __len__(self) -> int: ...

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
    def last_timestamp(self) -> int:
        """That of the last record; not read for an empty chunk."""

    @property
    def next_offset(self) -> int:
        """The position after the chunk."""

    @property
    def leader_epoch(self) -> int:
        """Epoch of the last batch, -1 if unknown."""


class ChunkRows(RowColumns):
    """The rows of one chunk, with the columns ``selected`` for export.

    Reading a slot that is not filled yet calls ``__getattr__``, which fills it.
    """

    __slots__ = ("_count", "_index", "_partition", "_topic")

    def __init__(
        self, topic: str, partition: int, index: RecordIndexLike, selected: frozenset[str]
    ) -> None:
        self.selected = selected
        self._topic = topic
        self._partition = partition
        self._index = index
        self._count = len(index)

    def __len__(self) -> int:
        return self._count

    def __getattr__(self, name: str) -> Any:
        make = _MAKERS.get(name)
        if make is None:
            raise AttributeError(name)
        made = make(self)
        setattr(self, name, made)
        return made

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
        make = BytesColumn.of_index if isinstance(index, RecordIndex) else BytesColumn
        origin = ColumnOrigin(self._topic, self._partition, column, index.offsets)
        return make(index.data, starts, lengths, origin=origin)

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

    def _timestamp_types(self) -> int | NDArray[np.int8]:
        types = self._index.timestamp_types
        return types if isinstance(types, int) else index_array(types, np.int8)

    def _lengths(self, column: str, lengths: Any) -> NDArray[np.int32] | None:
        return index_array(lengths, np.int32) if column in self.selected else None


_MAKERS: Final[dict[str, Callable[[ChunkRows], Any]]] = {
    "errors": lambda _rows: None,
    "offsets": lambda rows: index_array(rows._index.offsets, np.int64),
    "timestamps": lambda rows: index_array(rows._index.timestamps, np.int64),
    "timestamp_types": ChunkRows._timestamp_types,
    "keys": lambda rows: rows.bytes_of("key") if "key" in rows.selected else None,
    "values": lambda rows: rows.bytes_of("value") if "value" in rows.selected else None,
    "headers": lambda rows: rows.all_headers() if "headers" in rows.selected else None,
    "key_lengths": lambda rows: rows._lengths("key", rows._index.key_lengths),
    "value_lengths": lambda rows: rows._lengths("value", rows._index.value_lengths),
}
