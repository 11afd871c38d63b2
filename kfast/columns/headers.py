"""HeadersColumn: the headers of many records, parsed at the first access.

Owns: the position of each record's header bytes and, after the first access, of every key and
value. Order and repeated keys are kept; a null value differs from an empty one (D-02).

Keys are UTF-8 by Kafka's rules, but brokers do not check them: a malformed key is decoded with
U+FFFD as in the Java client, so that headers never make a record unreadable.

Thread: any; immutable but for the cached positions, which are the same for every thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kfast._base.optional import optional_package
from kfast._native import columns, headers
from kfast._native.deserialize import utf8_column
from kfast.columns.arrow import (
    ArrayNode,
    ArrowColumn,
    Capsule,
    SchemaNode,
    requested_format,
    text_column,
)
from kfast.columns.bytes import BytesColumn, span_column
from kfast.columns.spans import (
    Spans,
    array_over,
    block_bytes,
    index_array,
    own,
    read_only,
    restored,
    row_number,
    row_selection,
    take,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

Headers: TypeAlias = list[tuple[str, bytes | None]]
"""One record's headers, as in kafka-python."""


@dataclass(frozen=True, slots=True)
class _Parsed:
    """All headers of a column: row i has ``row_offsets[i]:row_offsets[i + 1]``."""

    row_offsets: NDArray[np.int32]
    keys: BytesColumn
    values: BytesColumn


class HeadersColumn:
    """The headers of each record.

    Parameters
    ----------
    data : bytes-like
        The memory of all headers.
    starts : array or buffer of int32 or int64, shape (n,)
        Position of each record's first header in ``data``.
    counts : array or buffer of int32, shape (n,)
        Number of headers of each record.

    Notes
    -----
    ``column[i]`` is a list of ``(str, bytes | None)``, empty for a record without headers;
    ``column[a:b]``, ``column[mask]`` and ``column[[...]]`` are columns over the same memory.

    Examples
    --------
    >>> orders = kfast.read_topic("orders", bootstrap_servers="localhost:9092")
    >>> orders[kfast.TopicPartition("orders", 0)].headers[0]
    [('source', b'web')]
    """

    __slots__ = ("_cached", "_counts", "_data", "_starts")

    def __init__(self, data: Buffer, starts: Any, counts: Any) -> None:
        self._data = data
        self._counts: NDArray[np.int32] = index_array(counts, np.int32)
        self._starts: NDArray[Any] = index_array(starts, np.int32, len(self._counts))
        self._cached: _Parsed | None = None
        if len(self._starts) != len(self._counts):
            raise ValueError("starts and counts differ in length")

    @classmethod
    def empty(cls, count: int) -> HeadersColumn:
        """Return the column of ``count`` records without headers."""
        column = cls.__new__(cls)
        column._data = b""
        column._counts = column._starts = read_only(np.zeros(count, np.int32))
        column._cached = None
        return column

    @classmethod
    def concat(cls, chunks: Sequence[HeadersColumn]) -> HeadersColumn:
        """Return the rows of several columns as one; the headers are copied into one buffer."""
        payload, starts = columns.pack([chunk.spans for chunk in chunks])
        return cls(payload, starts, np.concatenate([chunk._counts for chunk in chunks]))

    @property
    def counts(self) -> NDArray[np.int32]:
        """Number of headers of each record; shape (n,)."""
        return self._counts

    @property
    def starts(self) -> NDArray[Any]:
        """Position of each record's first header; shape (n,)."""
        return self._starts

    @property
    def index(self) -> Spans:
        """Data, starts and counts, as the compiled functions take them."""
        return self._data, self._starts, self._counts

    @property
    def spans(self) -> Spans:
        """Data, starts and byte lengths of the records' header blocks."""
        lengths = headers.header_lengths(*self.index)
        return self._data, self._starts, index_array(lengths, np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes of all headers together, as they came."""
        return int(self.spans[2].sum(dtype=np.int64)) if self._counts.any() else 0

    @property
    def serialized_sizes(self) -> NDArray[np.int64]:
        """Bytes of keys and values of each record's headers, -1 without headers; shape (n,)."""
        parsed = self._parsed
        sizes = parsed.keys.lengths.astype(np.int64) + np.maximum(parsed.values.lengths, 0)
        ends = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=ends[1:])
        bounds = ends[parsed.row_offsets]
        return read_only(np.where(self._counts > 0, np.diff(bounds), -1))

    def __len__(self) -> int:
        return len(self._counts)

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> Headers: ...
    @overload
    def __getitem__(self, rows: slice | list[int] | NDArray[Any]) -> HeadersColumn: ...
    def __getitem__(self, rows: Any) -> Headers | HeadersColumn:
        if not hasattr(rows, "__index__") or isinstance(rows, np.ndarray):
            return self.select(rows)
        return self.row(row_number(rows, len(self)))[0]

    def row(self, row: int) -> tuple[Headers, int]:
        """Return one record's headers, and the bytes of their keys and values (-1 without any)."""
        if not self._counts[row]:
            return [], -1
        chosen = slice(row, row + 1)
        spans = headers.parse_headers(self._data, self._starts[chosen], self._counts[chosen])
        _, key_starts, key_lengths, value_starts, value_lengths = spans
        keys = columns.text_list(self._data, key_starts, key_lengths, "replace")
        values = columns.bytes_list(self._data, value_starts, value_lengths)
        size = sum(memoryview(key_lengths).cast("i")) + sum(len(value or b"") for value in values)
        return list(zip(keys, values, strict=True)), size  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Headers]:
        return iter(self.to_list())

    def select(self, rows: slice | ArrayLike) -> HeadersColumn:
        """Return some rows (mask, slice or row numbers) over the same memory."""
        chosen = row_selection(rows, len(self))
        return HeadersColumn(self._data, take(self._starts, chosen), take(self._counts, chosen))

    def compact(self) -> HeadersColumn:
        """Return the same rows in memory of their own, so that the received frame can be freed."""
        payload, starts = columns.pack([self.spans])
        return HeadersColumn(payload, starts, own(self._counts))

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._counts.any():
            return HeadersColumn.empty, (len(self),)
        payload, starts = columns.pack([self.spans])
        return _restored, (
            array_over(payload, np.uint8),
            index_array(starts, np.int32, len(self)),
            self._counts,
        )

    def blocks(self) -> Iterator[Any]:
        """Yield the buffers that the column keeps alive."""
        yield from self.index
        if self._cached is not None:
            yield self._cached.row_offsets
            yield from self._cached.keys.blocks()
            yield from self._cached.values.blocks()

    @property
    def pinned_nbytes(self) -> int:
        """Bytes of the memory blocks that this column keeps alive; :meth:`compact` reduces it."""
        return block_bytes(self.blocks())

    def to_list(self) -> list[Headers]:
        """Return each record's headers as a list of pairs."""
        if not self._counts.any():
            return headers.empty_lists(len(self))
        parsed = self._parsed
        pairs = _pairs(parsed.keys, parsed.values)
        ends = parsed.row_offsets.tolist()
        return [pairs[ends[row] : ends[row + 1]] for row in range(len(self))]

    def to_arrow(self) -> pa.Array:
        """Return a ``pyarrow.Array`` of ``list<struct<key: string, value: binary>>``.

        Raises
        ------
        MissingDependencyError
            pyarrow is not installed.
        """
        pyarrow = optional_package("pyarrow", "to_arrow()")
        return pyarrow.array(self)

    def arrow_column(self, name: str, _requested: str | None = None, /) -> ArrowColumn:
        """Return the column as ``list<struct<key, value>>``; without headers a list is empty."""
        parsed = self._parsed
        keys = _key_column(parsed.keys)
        values = span_column(parsed.values, "value", "z")
        key_field = keys.schema._replace(is_nullable=False)
        items = SchemaNode("+s", "item", False, None, (key_field, values.schema))
        pairs = ArrayNode(len(parsed.keys), 0, (None,), (keys.array, values.array))
        return ArrowColumn(
            SchemaNode("+l", name, is_nullable=False, children=(items,)),
            ArrayNode(len(self), 0, (None, parsed.row_offsets), (pairs,)),
        )

    def __arrow_c_array__(self, requested_schema: Capsule = None) -> tuple[Capsule, Capsule]:
        return self.arrow_column("", requested_format(requested_schema)).capsules()

    @property
    def _parsed(self) -> _Parsed:
        if self._cached is None:
            rows, *spans = headers.parse_headers(*self.index)
            key_starts, key_lengths, value_starts, value_lengths = spans
            self._cached = _Parsed(
                index_array(rows, np.int32),
                BytesColumn(self._data, key_starts, key_lengths),
                BytesColumn(self._data, value_starts, value_lengths),
            )
        return self._cached

    def __repr__(self) -> str:
        return f"<HeadersColumn n={len(self)} headers={int(self._counts.sum())}>"


def _restored(
    payload: NDArray[Any], starts: NDArray[Any], counts: NDArray[np.int32]
) -> HeadersColumn:
    return HeadersColumn(restored(payload).data, restored(starts), restored(counts))


def _pairs(keys: BytesColumn, values: BytesColumn) -> Headers:
    texts = columns.text_list(*keys.spans, "replace")
    return list(zip(texts, values.to_list(), strict=True))  # type: ignore[arg-type]


def _key_column(keys: BytesColumn) -> ArrowColumn:
    """Header keys as ``utf8``; Arrow consumers trust that text is well formed, so it is checked."""
    if utf8_column(*keys.spans, True)[2] < 0:
        return span_column(keys, "key", "u")
    return text_column("key", columns.text_list(*keys.spans, "replace"))
