"""Read-only index arrays, row selection and the origin of a column, shared by all kinds.

Owns no data. Thread: any; everything here is immutable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kfast._native.buffers import OwnedBuffer

Rows: TypeAlias = "slice | NDArray[np.intp]"
"""A selection of rows, as :func:`row_selection` makes it."""

Spans: TypeAlias = tuple[Any, Any, Any]
"""Data, starts and lengths of a column: three objects with the buffer protocol."""

A = TypeVar("A", bound=NDArray[Any])

_BOOLS: Final = (bool, np.bool_)


class ColumnOrigin:
    """Partition and offsets of a column (``"key"`` or ``"value"``), to name a record in errors."""

    __slots__ = ("_offsets", "column", "partition", "topic")

    def __init__(self, topic: str, partition: int, column: str, offsets: Any) -> None:
        self.topic = topic
        self.partition = partition
        self.column = column
        self._offsets = offsets

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Kafka offset of each row; shape (n,)."""
        return index_array(self._offsets, np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        offsets = self._offsets
        if not isinstance(offsets, np.ndarray):  # pickled once for all columns that share it
            offsets = self.offsets
        return _restored_origin, (self.topic, self.partition, self.column, offsets)

    def moved(self, offsets: NDArray[np.int64]) -> ColumnOrigin:
        """Return the same origin with other memory for the offsets."""
        return ColumnOrigin(self.topic, self.partition, self.column, offsets)

    def select(self, rows: Rows) -> ColumnOrigin:
        """Return the origin of these rows."""
        return ColumnOrigin(self.topic, self.partition, self.column, self.offsets[rows])

    def describe(self, row: int) -> str:
        """Return ``topic-partition offset n``."""
        return f"{self.topic}-{self.partition} offset {int(self.offsets[row])}"


def _restored_origin(
    topic: str, partition: int, column: str, offsets: NDArray[np.int64]
) -> ColumnOrigin:
    return ColumnOrigin(topic, partition, column, restored(offsets))


def read_only(array: A) -> A:
    """Make an array read-only and return it, or a view of it.

    An array that owns its memory could be made writeable again by its flag; a view of it cannot.
    """
    array.flags.writeable = False
    return array.view() if array.flags.owndata else array


def masked_array(data: NDArray[Any], is_null: NDArray[Any]) -> NDArray[Any]:
    """Return read-only values with a mask that cannot be changed; both become read-only.

    ``is_null`` is of bool, or has a bool for each field of the values.
    """
    kind = np.ma.make_mask_descr(data.dtype)
    mask = is_null if is_null.dtype == kind else is_null.astype(kind)
    # NumPy gives a structured array a mask of its own, which this one would be copied into.
    return np.ma.MaskedArray(read_only(data), mask=read_only(mask), keep_mask=False)


def array_over(buffer: Any, dtype: DTypeLike, count: int = -1, position: int = 0) -> NDArray[Any]:
    """Return a read-only array over a buffer, which it keeps alive."""
    array = np.frombuffer(buffer, dtype, count, position)
    return array if type(buffer) is OwnedBuffer else read_only(array)  # which is read-only itself


def index_array(values: Any, dtype: type[np.generic], count: int | None = None) -> NDArray[Any]:
    """Return a read-only contiguous array over a buffer or an array of one item type.

    The starts of a column may be int64 although ``dtype`` is int32: the size shows it when
    ``count`` is given.
    """
    if isinstance(values, np.ndarray):
        contiguous = np.ascontiguousarray(values)
        if contiguous.flags.writeable:  # it may be the caller's, who goes on to write to it
            contiguous = np.asarray(memoryview(contiguous.data).toreadonly())
        return contiguous
    array = np.frombuffer(values, dtype)
    if dtype is np.int32 and count and len(array) == 2 * count:
        array = np.frombuffer(values, np.int64)
    return array if isinstance(values, OwnedBuffer) else read_only(array)


def row_selection(rows: slice | ArrayLike, count: int) -> Rows:
    """Check a mask, slice or list of row numbers and return it as a slice or an index array.

    Raises
    ------
    IndexError
        The mask has another length, a row number is out of range, or the type is neither.
    TypeError
        A single bool.
    """
    if isinstance(rows, slice):
        return rows
    _refuse_bool(rows)
    chosen = np.asarray(rows)
    if chosen.dtype == np.bool_:
        if chosen.shape != (count,):
            raise IndexError(f"the mask has shape {chosen.shape}, the records ({count},)")
        return np.flatnonzero(chosen)
    if chosen.size == 0:
        return np.zeros(0, np.intp)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
        raise IndexError("rows are selected by a slice, a boolean mask or an array of row numbers")
    low, high = int(chosen.min()), int(chosen.max())
    if low < -count or high >= count:
        raise IndexError(f"row {low if low < -count else high} of {count} records")
    return chosen.astype(np.intp, copy=False)


def rows_covered(rows: slice | ArrayLike, chosen: Rows, count: int) -> int:
    """Return how many of the first rows a selection has gone through, whether it kept them or not.

    ``chosen`` is the selection ``rows`` as :func:`row_selection` made it. A mask goes through all
    rows; an empty slice through those before its start, or none if it is reversed.
    """
    if isinstance(chosen, slice):
        start, stop, step = chosen.indices(count)
        if step > 0:
            return max(start, stop)
        return start + 1 if start > stop or not count else 0
    if np.asarray(rows).dtype == np.bool_:
        return count
    return int(np.where(chosen < 0, chosen + count, chosen).max(initial=-1)) + 1


def _refuse_bool(rows: object) -> None:
    if isinstance(rows, _BOOLS):
        raise TypeError(
            f"{rows} is neither a row number nor a mask; masks are made by ==, != and isin() of a "
            "BytesColumn or StringColumn, and by comparisons of arrays"
        )


def take(array: A, rows: Rows) -> A:
    """Return some rows of an array, contiguous and read-only; a plain slice is not copied."""
    return read_only(np.ascontiguousarray(array[rows]))  # type: ignore[return-value]


def row_number(index: Any, count: int) -> int:
    """Return a row number counted from the start.

    Raises
    ------
    IndexError
        There is no such row.
    TypeError
        A bool, which Python would take for row 0 or 1.
    """
    _refuse_bool(index)
    row = index.__index__()
    if not -count <= row < count:
        raise IndexError(f"row {row} of {count} records")
    return int(row + count if row < 0 else row)


def own(array: A) -> A:
    """Return a read-only copy, which keeps no other memory alive."""
    return read_only(array.copy())


def packed_starts(lengths: NDArray[np.int32]) -> NDArray[Any]:
    """Return the start of each value, -1 long if null, when they lie one after the other."""
    sizes = np.maximum(lengths, 0).astype(np.int64)
    ends = np.cumsum(sizes)
    is_wide = len(ends) > 0 and ends[-1] > np.iinfo(np.int32).max
    return read_only((ends - sizes).astype(np.int64 if is_wide else np.int32))


def restored(array: A) -> A:
    """Return an array of a pickle as compiled code and Arrow take it: aligned and read-only.

    Out-of-band buffers may lie anywhere and may be writeable.
    """
    contiguous: Any = np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])
    if not contiguous.size:  # which NumPy counts as aligned wherever it is
        contiguous = contiguous.copy()
    elif not contiguous.flags.owndata and not contiguous.dtype.hasobject:
        memory = memoryview(contiguous.view(np.uint8)).toreadonly()
        contiguous = np.ndarray(contiguous.shape, contiguous.dtype, memory)
    return read_only(contiguous)  # type: ignore[no-any-return]


def block_bytes(buffers: Iterable[Any]) -> int:
    """Return the bytes of the memory blocks that some buffers keep alive, each block once."""
    owners = {id(owner): owner for owner in map(_owner, buffers)}
    return sum(
        owner.nbytes if hasattr(owner, "nbytes") else memoryview(owner).nbytes
        for owner in owners.values()
    )


def _owner(buffer: Any) -> Any:
    while True:
        if isinstance(buffer, np.ndarray) and buffer.base is not None:
            buffer = buffer.base
        elif isinstance(buffer, memoryview):
            buffer = buffer.obj
        else:
            return buffer


def object_array(values: list[Any]) -> NDArray[np.object_]:
    """Return a list as an object array; items that are sequences are not converted."""
    return read_only(np.fromiter(values, np.object_, len(values)))
