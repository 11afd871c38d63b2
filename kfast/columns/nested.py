"""The shared part of columns over ColumnData: rows, nulls, memory, comparison, conversions.

Owns no data: a column is a view of :class:`ColumnData`. Thread: any; columns are immutable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kfast._base.optional import optional_package
from kfast.columns.arrow import ArrowColumn, Capsule, SchemaNode
from kfast.columns.column_arrow import arrow_of
from kfast.columns.column_data import ColumnData, State
from kfast.columns.column_values import values_of
from kfast.columns.spans import object_array, read_only, row_number, row_selection
from kfast.columns.table_text import cell_text
from kfast.schemas.schema import Schema
from kfast.schemas.types import SchemaField

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN: Final = 3


class NestedColumn:
    """A column over :class:`ColumnData`: rows, nulls, memory, comparison and conversions."""

    __slots__ = ("_node",)

    def __init__(self, node: ColumnData) -> None:
        self._node = node

    @classmethod
    def concat(cls, chunks: Sequence[Self]) -> Self:
        """Return the rows of several columns of one schema as one."""
        return cls(ColumnData.concat([chunk._node for chunk in chunks]))

    @property
    def node(self) -> ColumnData:
        """The data of the column."""
        return self._node

    @property
    def schema(self) -> Schema:
        """What the values are."""
        return Schema(self._node.field)

    @property
    def is_null(self) -> NDArray[np.bool_]:
        """True where the value is null; shape (n,)."""
        mask = self._node.is_null
        return read_only(np.zeros(len(self), np.bool_)) if mask is None else mask

    @property
    def null_count(self) -> int:
        """Number of nulls."""
        return self._node.null_count

    @property
    def nbytes(self) -> int:
        """Bytes of these rows: values, offsets and bitmaps."""
        return self._node.nbytes

    def __len__(self) -> int:
        return self._node.length

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> Any: ...
    @overload
    def __getitem__(self, rows: slice | list[int] | NDArray[Any]) -> Self: ...
    def __getitem__(self, rows: Any) -> Any:
        if not hasattr(rows, "__index__") or isinstance(rows, np.ndarray):
            return self.select(rows)
        row = row_number(rows, len(self))
        return values_of(self._node.select(slice(row, row + 1)))[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_list())

    def select(self, rows: slice | ArrayLike) -> Self:
        """Return some rows (mask, slice or row numbers); a slice shares the memory."""
        return type(self)(self._node.select(row_selection(rows, len(self))))

    def __eq__(self, other: object) -> Any:
        if isinstance(other, type(self)):
            mine, theirs = self._node, other._node
            return mine.field.type == theirs.field.type and values_of(mine) == values_of(theirs)
        return self._equal_to(other)

    def __ne__(self, other: object) -> Any:
        if isinstance(other, type(self)):
            return not self == other
        return ~self._equal_to(other) & ~self.is_null

    __hash__ = None  # type: ignore[assignment]

    def _equal_to(self, value: object) -> NDArray[np.bool_]:
        """Return where a value is; nulls are neither equal to one nor different from it."""
        rows = values_of(self._node)
        return read_only(
            np.fromiter((row is not None and row == value for row in rows), np.bool_, len(rows))
        )

    def compact(self) -> Self:
        """Return the same rows in memory of their own."""
        return type(self)(self._node.compact())

    def blocks(self) -> Iterator[Any]:
        """Yield the buffers that the column keeps alive."""
        return self._node.blocks()

    @property
    def pinned_nbytes(self) -> int:
        """Bytes of the memory blocks that this column keeps alive; :meth:`compact` reduces it."""
        return self._node.pinned_nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self._node.field, self._node.state())

    def to_list(self) -> list[Any]:
        """Return the values as Python objects."""
        return values_of(self._node)

    def to_numpy(self, dtype: DTypeLike = object) -> NDArray[Any]:
        """Return the values as an array of objects."""
        if np.dtype(dtype).kind != "O":
            raise TypeError(f"{self._node.field.type} cannot be converted to {np.dtype(dtype)}")
        return object_array(self.to_list())

    def to_arrow(self) -> pa.Array:
        """Return a ``pyarrow.Array`` over the same memory.

        Raises
        ------
        MissingDependencyError
            pyarrow is not installed.
        """
        pyarrow = optional_package("pyarrow", "to_arrow()")
        return pyarrow.array(self)

    def arrow_column(self, name: str, requested: Any = None, /) -> ArrowColumn:
        """Return the column as an Arrow column; as the schema has it, and it may be null."""
        schema = requested if isinstance(requested, SchemaNode) else None
        return arrow_of(self._node, name, schema, is_nullable=True)

    def __arrow_c_schema__(self) -> Capsule:
        return self.arrow_column("").capsules()[0]

    def __arrow_c_array__(self, requested_schema: Capsule = None) -> tuple[Capsule, Capsule]:
        schema = None if requested_schema is None else SchemaNode.read(requested_schema)
        return self.arrow_column("", schema).capsules()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self.to_numpy() if dtype is None else self.to_numpy(dtype)

    def __repr__(self) -> str:
        rows = [cell_text(value, 60) for value in islice(self[:_SHOWN].to_list(), _SHOWN)]
        more = ", \N{HORIZONTAL ELLIPSIS}" if len(self) > _SHOWN else ""
        size = f"n={len(self)} nulls={self.null_count}"
        return f"<{type(self).__name__} {self._node.field.type} {size} [{', '.join(rows)}{more}]>"


def _restored(kind: type[NestedColumn], field: SchemaField, state: State) -> NestedColumn:
    return kind(ColumnData.of_state(field, state))
