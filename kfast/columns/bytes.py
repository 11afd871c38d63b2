"""BytesColumn: variable-length bytes without Python objects.

Owns: three read-only arrays over shared memory (see ``_native/columns.pyx`` for the layout). Values
are copied by ``[i]``, ``to_list``, ``to_numpy``, ``view`` (if the values are not contiguous) and
Arrow's ``binary`` layout only; selection does not copy them.

The data buffer is usually a received frame. The column keeps it alive, so a small selection can pin
a large frame: ``compact`` copies the values.

Thread: any; a column is immutable.

NumPy takes the code points of fixed-width text (``U``) as they are. One past U+10FFFF makes a
``str`` that encoding and printing fail on with SystemError, so bytes with one do not become an
array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kfast._base.optional import optional_package
from kfast._native import columns
from kfast._native.deserialize import utf8_column
from kfast.columns.arrow import (
    BINARY_FORMATS,
    INT32_MAX,
    ArrayNode,
    ArrowColumn,
    Capsule,
    SchemaNode,
    requested_format,
)
from kfast.columns.arrow import validity as null_bits
from kfast.columns.spans import (
    ColumnOrigin,
    Spans,
    array_over,
    block_bytes,
    index_array,
    object_array,
    own,
    packed_starts,
    read_only,
    restored,
    row_number,
    row_selection,
    take,
)
from kfast.columns.table_text import values_text
from kfast.errors import DeserializationError, MissingDependencyError

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

INVALID_TEXT: Final = "has text with a code point past U+10FFFF"
"""What is wrong with such a value, for errors."""

_HIGHEST: Final = 0x10FFFF


def invalid_text(values: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Return the rows that have a code point past U+10FFFF, None if there are none."""
    bad: NDArray[np.bool_] | None = None
    if len(values):
        for points in _code_points(values):
            wrong = np.asarray((points > _HIGHEST).reshape(len(values), -1).any(axis=1))
            bad = wrong if bad is None else bad | wrong
    return bad if bad is not None and bad.any() else None


def _code_points(values: NDArray[Any]) -> Iterator[NDArray[np.uint32]]:
    for name in values.dtype.names or ():
        yield from _code_points(values[name])
    if values.dtype.kind == "U" and values.dtype.itemsize:
        number = np.dtype(np.uint32).newbyteorder(values.dtype.byteorder)
        yield np.ascontiguousarray(values).view(number)


class BytesColumn:
    """A column of byte strings, null and empty distinguished.

    Parameters
    ----------
    data : bytes-like
        The memory of all values.
    starts : array or buffer of int32 or int64, shape (n,)
        Position of each value in ``data``.
    lengths : array or buffer of int32, shape (n,)
        Bytes of each value, -1 for null.
    origin : ColumnOrigin, optional
        Names the records in errors.

    Attributes
    ----------
    spans : tuple of three buffers
        Data, starts and lengths as the compiled functions take them.

    Notes
    -----
    ``column[i]`` is ``bytes`` or None; ``column[a:b]``, ``column[mask]`` and ``column[[...]]`` are
    columns over the same memory.

    ``column == b"k5"`` and ``column != b"k5"`` are masks of shape (n,), for
    ``records[records.keys == b"k5"]``; so is :meth:`isin`. A null is neither equal to a value nor
    different from it: both masks are False there, as filters of Arrow, polars and SQL have it. Any
    operand that is not bytes raises TypeError. A column has no hash.

    Examples
    --------
    >>> orders = kfast.read_topic("orders", bootstrap_servers="localhost:9092")
    >>> keys = orders[kfast.TopicPartition("orders", 0)].keys
    >>> keys[0], keys.to_list(), keys == b"k1"
    (b'k1', [b'k1', b'k2'], array([ True, False]))
    """

    __slots__ = ("_data", "_lengths", "_nulls", "_offsets", "_origin", "_starts", "spans")

    def __init__(
        self, data: Buffer, starts: Any, lengths: Any, *, origin: ColumnOrigin | None = None
    ) -> None:
        self._data = data
        self._lengths: NDArray[np.int32] = index_array(lengths, np.int32)
        self._starts: NDArray[Any] = index_array(starts, np.int32, len(self._lengths))
        self._origin = origin
        self._nulls: int | None = None
        self._offsets: NDArray[Any] | None = None
        if len(self._starts) != len(self._lengths):
            raise ValueError("starts and lengths differ in length")
        self.spans: Spans = (data, self._starts, self._lengths)

    @classmethod
    def of_index(
        cls, data: Buffer, starts: Any, lengths: Any, *, origin: ColumnOrigin
    ) -> BytesColumn:
        """Return a column over buffers of a decoded chunk.

        The same as the constructor, but its arrays are made at their first access: deserializers
        use the buffers.
        """
        column = cls.__new__(cls)
        column._data = data
        column._origin = origin
        column._nulls = None
        column._offsets = None
        column.spans = (data, starts, lengths)
        return column

    @classmethod
    def of_offsets(
        cls, data: Buffer, offsets: NDArray[Any], is_null: NDArray[np.bool_] | None
    ) -> BytesColumn:
        """Return a column over values that lie one after the other, as Arrow has them.

        ``offsets`` are int32 or int64, n + 1; a null is empty. Arrow gets them without a copy.
        """
        lengths: NDArray[Any] = np.diff(offsets).astype(np.int32, copy=False)
        if is_null is not None:
            lengths[is_null] = -1
        column = cls(data, offsets[:-1], lengths)
        column._offsets = offsets
        return column

    def __getattr__(self, name: str) -> Any:
        """Make an array of a column made by `of_index`."""
        if name == "_lengths":
            array = np.frombuffer(self.spans[2], np.int32)
        elif name == "_starts":
            array = np.frombuffer(self.spans[1], np.int32)
        else:
            raise AttributeError(name)
        setattr(self, name, array)
        return array

    @classmethod
    def from_values(cls, values: Sequence[bytes | None]) -> BytesColumn:
        """Return a column holding a copy of the given byte strings."""
        lengths = np.fromiter((-1 if v is None else len(v) for v in values), np.int32, len(values))
        return cls(b"".join(v for v in values if v), packed_starts(lengths), lengths)

    @classmethod
    def concat(cls, chunks: Sequence[BytesColumn]) -> BytesColumn:
        """Return the rows of several columns as one; the values are copied into one buffer."""
        payload, starts = columns.pack([chunk.spans for chunk in chunks])
        origins = [chunk._origin for chunk in chunks if chunk._origin is not None]
        origin = None
        if origins and len(origins) == len(chunks):
            offsets = np.concatenate([origin.offsets for origin in origins])
            first = origins[0]
            origin = ColumnOrigin(first.topic, first.partition, first.column, offsets)
        return cls(payload, starts, np.concatenate([p._lengths for p in chunks]), origin=origin)

    # --- the arrays -------------------------------------------------------------------------------

    @property
    def data(self) -> NDArray[np.uint8]:
        """The memory that the starts refer to, read-only and not copied; not only this column's."""
        return read_only(array_over(self._data, np.uint8))

    @property
    def starts(self) -> NDArray[Any]:
        """Position of each value in ``data``: int32, or int64 past 2 GiB; shape (n,)."""
        return self._starts

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Bytes of each value, -1 for null; shape (n,)."""
        return self._lengths

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Kafka offset of each row; the row numbers for a column that is not from Kafka."""
        if self._origin is None:
            return read_only(np.arange(len(self), dtype=np.int64))
        return self._origin.offsets

    @property
    def origin(self) -> ColumnOrigin | None:
        """Topic, partition and offsets of the rows, if known."""
        return self._origin

    @property
    def is_null(self) -> NDArray[np.bool_]:
        """True where the value is null; shape (n,)."""
        return read_only(self._lengths < 0)

    @property
    def null_count(self) -> int:
        """Number of nulls."""
        if self._nulls is None:
            self._nulls = int(np.count_nonzero(self._lengths < 0))
        return self._nulls

    @property
    def nbytes(self) -> int:
        """Bytes of all values together."""
        return int(np.maximum(self._lengths, 0).sum(dtype=np.int64))

    # --- rows -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._lengths)

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> bytes | None: ...
    @overload
    def __getitem__(self, rows: slice | list[int] | NDArray[Any]) -> BytesColumn: ...
    def __getitem__(self, rows: Any) -> bytes | BytesColumn | None:
        if not hasattr(rows, "__index__") or isinstance(rows, np.ndarray):
            return self.select(rows)
        return columns.bytes_at(*self.spans, row_number(rows, len(self)))

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self.to_list())

    def select(self, rows: slice | ArrayLike) -> BytesColumn:
        """Return some rows (mask, slice or row numbers) over the same memory."""
        chosen = row_selection(rows, len(self))
        selected = BytesColumn(
            self._data,
            take(self._starts, chosen),
            take(self._lengths, chosen),
            origin=None if self._origin is None else self._origin.select(chosen),
        )
        if self._offsets is not None and isinstance(chosen, slice):
            start, stop, step = chosen.indices(len(self))
            if step == 1:
                selected._offsets = self._offsets[start : max(start, stop) + 1]
        return selected

    # --- comparison -------------------------------------------------------------------------------

    def __eq__(self, value: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return self.equal_to_any([_bytes_value(value)])

    def __ne__(self, value: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return self.equal_to_any([_bytes_value(value)], invert=True)

    __hash__ = None  # type: ignore[assignment]

    def isin(self, values: Iterable[bytes | None]) -> NDArray[np.bool_]:
        """Return a mask of shape (n,): True where the value is one of ``values``.

        Parameters
        ----------
        values : iterable of bytes or None
            None stands for null: without it nulls are False.

        Raises
        ------
        TypeError
            One of them is neither bytes nor None.
        """
        distinct = set(values)
        return self.equal_to_any(
            [_bytes_value(value) for value in distinct if value is not None],
            match_nulls=None in distinct,
        )

    def equal_to_any(
        self, values: list[bytes], *, invert: bool = False, match_nulls: bool = False
    ) -> NDArray[np.bool_]:
        """Return where the value is one of some ``bytes``, or with ``invert`` none of them."""
        return array_over(columns.equal_to_any(*self.spans, values, invert, match_nulls), np.bool_)

    # --- memory -----------------------------------------------------------------------------------

    def compact(self) -> BytesColumn:
        """Return the same rows in memory of their own, so that the received frame can be freed."""
        payload, starts = columns.pack([self.spans])
        origin = self._origin
        if origin is not None:
            origin = origin.moved(own(origin.offsets))
        return BytesColumn(payload, starts, own(self._lengths), origin=origin)

    def __reduce__(self) -> tuple[Any, ...]:
        payload, _ = columns.pack([self.spans])
        return _restored, (array_over(payload, np.uint8), self._lengths, self._origin)

    def blocks(self) -> Iterator[Any]:
        """Yield the buffers that the column keeps alive."""
        yield from self.spans
        if self._origin is not None:
            yield self._origin.offsets

    @property
    def pinned_nbytes(self) -> int:
        """Bytes of the memory blocks that this column keeps alive; :meth:`compact` reduces it."""
        return block_bytes(self.blocks())

    # --- conversions ------------------------------------------------------------------------------

    def to_list(self) -> list[bytes | None]:
        """Return the values as Python objects."""
        return columns.bytes_list(*self.spans)

    def to_numpy(self, dtype: DTypeLike = object) -> NDArray[Any]:
        """Return the values as a NumPy array of shape (n,).

        Parameters
        ----------
        dtype : dtype-like
            ``object`` (default): ``bytes`` and None. ``"S"`` or ``"S<width>"``: zero-padded,
            nulls empty, trailing zero bytes lost. ``StringDType()``: decoded from UTF-8, nulls
            None. Any other dtype: see :meth:`view`.

        Raises
        ------
        DeserializationError
            A value does not fit the dtype.
        """
        if is_string_dtype(dtype):
            flags, bad = utf8_column(*self.spans, True)[1:]
            if bad >= 0:
                raise self._misfit(bad, "is not UTF-8")
            return string_array(columns.text_list(*self.spans), flags is not None)
        target_dtype = np.dtype(dtype)
        if target_dtype.kind == "O":
            return object_array(self.to_list())
        if target_dtype.kind != "S":
            return self.view(target_dtype)
        longest = int(self._lengths.max(initial=0))
        width = target_dtype.itemsize or max(longest, 1)
        if longest > width:
            row = int(np.argmax(self._lengths > width))
            raise self._misfit(row, f"has {self._lengths[row]} bytes, more than {target_dtype}")
        block = columns.gather_padded(*self.spans, width)
        return array_over(block, f"S{width}")

    def view(self, dtype: DTypeLike) -> NDArray[Any]:
        """Return values that all have exactly the size of a dtype as an array of that dtype.

        Contiguous values are not copied (the array may then be unaligned, which NumPy supports);
        otherwise they are gathered once.

        Raises
        ------
        DeserializationError
            A value is null, has another size, or has a code point past U+10FFFF where the dtype
            has text; the message names the first one's offset.
        """
        target_dtype = np.dtype(dtype)
        if target_dtype.hasobject or not target_dtype.itemsize:
            raise TypeError(f"values cannot be viewed as {target_dtype}")
        block, bad = columns.view_fixed(*self.spans, target_dtype.itemsize)
        if bad >= 0:
            length = int(self._lengths[bad])
            has = "is null" if length < 0 else f"has {length} bytes"
            raise self._misfit(
                bad, f"{has}, a view as {target_dtype} needs {target_dtype.itemsize}"
            )
        if not len(self):
            return read_only(np.empty(0, target_dtype))
        if block is not None:
            array = array_over(block, target_dtype)
        else:
            array = array_over(self._data, target_dtype, len(self), int(self._starts[0]))
        invalid = invalid_text(array)
        if invalid is not None:
            raise self._misfit(int(np.argmax(invalid)), INVALID_TEXT)
        return array

    def to_arrow(self, view: bool = False) -> pa.Array:
        """Return a ``pyarrow.Array``: ``binary`` (one copy) or ``binary_view`` (none).

        Values of more than 2 GiB together become ``large_binary``.

        Raises
        ------
        MissingDependencyError
            pyarrow is not installed.
        """
        pyarrow = optional_package("pyarrow", "to_arrow()")
        return pyarrow.array(self, pyarrow.binary_view() if view else None)

    def arrow_column(self, name: str, requested: str | None = None, /) -> ArrowColumn:
        """Return the column in the requested Arrow format, if it is one of binary."""
        return span_column(self, name, BINARY_FORMATS.get(requested or "", "z"))

    def __arrow_c_array__(self, requested_schema: Capsule = None) -> tuple[Capsule, Capsule]:
        return self.arrow_column("", requested_format(requested_schema)).capsules()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self.to_numpy(object if dtype is None else dtype)

    def _misfit(self, row: int, reason: str) -> DeserializationError:
        origin = self._origin
        if origin is None:
            return DeserializationError(f"row {row}: value {reason}", offset=row)
        raw = self[row]
        return DeserializationError(
            f"{origin.describe(row)}: {origin.column} {reason}",
            topic=origin.topic,
            partition=origin.partition,
            offset=int(origin.offsets[row]),
            column=origin.column,
            key_bytes=raw if origin.column == "key" else None,
            value_bytes=raw if origin.column == "value" else None,
        )

    def __repr__(self) -> str:
        size = f"n={len(self)} nulls={self.null_count} nbytes={self.nbytes}"
        return f"<BytesColumn {size} [{values_text(self)}]>"


def _restored(
    payload: NDArray[Any], lengths: NDArray[np.int32], origin: ColumnOrigin | None
) -> BytesColumn:
    """Return a column whose values were packed for a pickle."""
    lengths = restored(lengths)
    return BytesColumn(restored(payload).data, packed_starts(lengths), lengths, origin=origin)


def _bytes_value(value: object) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(
            f"a BytesColumn compares with bytes, not {type(value).__name__}; "
            "isin() takes several values, is_null has the nulls"
        )
    return bytes(value)


def span_column(column: BytesColumn, name: str, arrow_format: str) -> ArrowColumn:
    """Export byte spans in one of the formats ``z Z vz`` or ``u U vu``.

    A format that cannot hold the values is replaced by the one with 64-bit positions.
    """
    if arrow_format[0] == "v":
        if memoryview(column.spans[0]).nbytes > INT32_MAX and column.nbytes <= INT32_MAX:
            column = column.compact()
        data = memoryview(column.spans[0])
        if data.nbytes <= INT32_MAX:
            views, validity, nulls = columns.binary_views(*column.spans)
            sizes = np.array([data.nbytes], np.int64)
            return ArrowColumn(
                SchemaNode(arrow_format, name),
                ArrayNode(len(column), nulls, (validity, views, data, sizes)),
            )
        arrow_format = arrow_format[1].upper()
    is_wide = arrow_format.isupper()
    own_offsets = column._offsets
    if own_offsets is not None:
        own_format = arrow_format.upper() if is_wide or own_offsets.itemsize == 8 else arrow_format
        bits, nulls = null_bits(column.is_null if column.null_count else None)
        wide = own_offsets.astype(np.int64 if own_format.isupper() else np.int32, copy=False)
        return ArrowColumn(
            SchemaNode(own_format, name), ArrayNode(len(column), nulls, (bits, wide, column._data))
        )
    offsets, payload, validity, nulls = columns.gather(*column.spans, is_wide)
    if len(offsets) == 8 * (len(column) + 1):
        arrow_format = arrow_format.upper()
    return ArrowColumn(
        SchemaNode(arrow_format, name), ArrayNode(len(column), nulls, (validity, offsets, payload))
    )


def is_string_dtype(dtype: DTypeLike) -> bool:
    """Whether a dtype is NumPy's variable-width string (NumPy 2)."""
    return getattr(dtype, "char", None) == "T" or getattr(dtype, "__name__", "") == "StringDType"


def string_array(values: list[str | None], has_nulls: bool) -> NDArray[Any]:
    """Return strings as an array of NumPy's ``StringDType``, None where null."""
    kind = getattr(np.dtypes, "StringDType", None)
    if kind is None:
        raise MissingDependencyError("StringDType needs NumPy 2", hint='pip install "numpy>=2"')
    return read_only(np.array(values, kind(na_object=None) if has_nulls else kind()))
