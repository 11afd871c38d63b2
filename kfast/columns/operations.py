"""Operations that every kind of key or value column supports.

Owns: one function per operation, dispatched on the column's type: kfast's columns have the method,
NumPy arrays (plain, masked, structured, of objects) do not. Thread: any; columns are immutable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from kfast.columns.arrow import ArrowColumn, ObjectPlan, array_column, object_column, split_mask
from kfast.columns.bytes import BytesColumn
from kfast.columns.spans import (
    Rows,
    masked_array,
    object_array,
    read_only,
    restored,
    take,
)
from kfast.columns.text import StringColumn
from kfast.columns.uuid import UuidColumn

if TYPE_CHECKING:  # most consumers have no typed columns, and do not load them
    from kfast.columns.nested import NestedColumn

C = TypeVar("C")

Values: TypeAlias = "BytesColumn | StringColumn | UuidColumn | NestedColumn | NDArray[Any]"
"""A column of keys or values: raw, or as a deserializer made it."""

Request: TypeAlias = "str | ObjectPlan | None"
"""Requested Arrow form of a column: a format string, a plan for objects, or the default."""


class _Column(Protocol):
    def __getitem__(self, row: int, /) -> Any: ...
    def select(self, rows: Any, /) -> Any: ...
    def to_list(self) -> list[Any]: ...
    def arrow_column(self, name: str, requested: str | None = None, /) -> ArrowColumn: ...


def is_object_array(column: object) -> bool:
    """Whether a column holds the results of a per-record deserializer."""
    return isinstance(column, np.ndarray) and column.dtype.kind == "O"


def select_values(column: Values, rows: Rows) -> Values:
    """Return some rows of a column; payload bytes are not copied."""
    if not isinstance(column, np.ndarray):
        return cast("Values", cast("_Column", column).select(rows))
    if isinstance(column, np.ma.MaskedArray):
        return masked_array(take(column.data, rows), take(np.ma.getmaskarray(column), rows))
    return take(column, rows)


def concat_values(chunks: Sequence[Values]) -> Values:
    """Return the rows of columns of one kind as one column."""
    if len(chunks) == 1:
        return chunks[0]
    # Rows whose schema was not known yet (NullColumn) become nulls of the one that others have.
    typed = next((chunk for chunk in chunks if not hasattr(chunk, "nulls_like")), chunks[0])
    chunks = [
        chunk.nulls_like(typed) if chunk is not typed and hasattr(chunk, "nulls_like") else chunk
        for chunk in chunks
    ]
    first = chunks[0]
    if not isinstance(first, np.ndarray):
        return first.concat(cast("Any", chunks))
    arrays = cast("Sequence[NDArray[Any]]", chunks)
    data = np.concatenate([np.ma.getdata(chunk) for chunk in arrays])
    if data.dtype.kind in "Mm" and data.dtype == arrays[0].dtype:
        data = data.view(arrays[0].dtype)  # joining drops the metadata of a dtype
    if not any(isinstance(chunk, np.ma.MaskedArray) for chunk in arrays):
        return read_only(data)
    return masked_array(data, np.concatenate([np.ma.getmaskarray(chunk) for chunk in arrays]))


def values_list(column: Values) -> list[Any]:
    """Return a column as Python objects: None for null, ``numpy.void`` for a structure."""
    if not isinstance(column, np.ndarray):
        return cast("_Column", column).to_list()
    data, is_null = split_mask(column)
    values: list[Any] = list(data) if data.dtype.names else data.tolist()
    if is_null is not None:
        for row in np.flatnonzero(is_null):
            values[row] = None
    return values


def value_at(column: Values, row: int) -> Any:
    """Return one entry of :func:`values_list`; ``row`` is counted from the start."""
    if not isinstance(column, np.ndarray):
        return cast("_Column", column)[row]
    data, is_null = split_mask(column)
    if is_null is not None and is_null[row]:
        return None
    value = data[row]
    return value if data.dtype.names or data.dtype.hasobject else value.tolist()


def values_state(column: Values | None) -> Any:
    """Return a column as its pickle has it: data and mask of a MaskedArray, others themselves.

    NumPy copies a MaskedArray into the pickle; plain arrays can go out of band.
    """
    if isinstance(column, np.ma.MaskedArray):
        return column.data, np.ma.getmaskarray(column)
    return column


def restored_values(state: Any) -> Values | None:
    """Return the column of a :func:`values_state`."""
    if isinstance(state, tuple):
        data, mask = state
        return masked_array(restored(data), restored(mask))
    return restored(state) if isinstance(state, np.ndarray) else state


def values_array(column: Values) -> NDArray[Any]:
    """Return a column as an array: fixed-width columns as they are, others as objects."""
    if isinstance(column, np.ndarray):
        return column
    if isinstance(column, UuidColumn) and not column.null_count:
        return column.data
    return object_array(cast("_Column", column).to_list())


def values_column(name: str, column: Values, request: Request = None) -> ArrowColumn:
    """Return a column as an Arrow column.

    Raises
    ------
    DeserializationError
        It holds Python objects that have no common Arrow type.
    MissingDependencyError
        It holds Python objects that need pyarrow, which is not installed.
    """
    if not isinstance(column, np.ndarray):
        requested = request if isinstance(request, str) else None
        return cast("_Column", column).arrow_column(name, requested)
    if is_object_array(column):
        return object_column(name, column, request if isinstance(request, ObjectPlan) else None)
    return array_column(name, column)
