"""UuidColumn: UUIDs as 16 bytes each.

Owns: one ``V16`` array and an optional null mask. Arrow gets ``fixed_size_binary(16)`` with the
canonical extension name ``arrow.uuid``, without a copy.

Thread: any; a column is immutable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, overload
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kfast._base.arrow_metadata import encode_metadata
from kfast._base.optional import optional_package
from kfast.columns.arrow import (
    ArrayNode,
    ArrowColumn,
    Capsule,
    SchemaNode,
    validity,
)
from kfast.columns.spans import (
    block_bytes,
    object_array,
    read_only,
    restored,
    row_number,
    row_selection,
    take,
)
from kfast.columns.table_text import values_text

if TYPE_CHECKING:
    import pyarrow as pa

_EXTENSION: Final = encode_metadata(
    {"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": ""}
)


class UuidColumn:
    """A column of UUIDs.

    Parameters
    ----------
    data : ndarray of V16, shape (n,)
        The bytes, most significant first.
    is_null : ndarray of bool, shape (n,), optional
        True where there is no UUID.

    Notes
    -----
    ``column[i]`` is a ``uuid.UUID`` or None; slices, masks and lists of row numbers give columns.

    Examples
    --------
    >>> ids = kfast.read_topic(
    ...     "ids", bootstrap_servers="localhost:9092", value_deserializer=kfast.Uuid()
    ... )
    >>> ids[kfast.TopicPartition("ids", 0)].values[0]
    UUID('00000000-0000-0000-0000-000000000001')
    """

    __slots__ = ("_data", "_is_null")

    def __init__(self, data: NDArray[np.void], is_null: NDArray[np.bool_] | None = None) -> None:
        self._data = data
        self._is_null = is_null if is_null is not None and is_null.any() else None

    @classmethod
    def concat(cls, chunks: Sequence[UuidColumn]) -> UuidColumn:
        """Return the rows of several columns as one."""
        return cls(
            read_only(np.concatenate([chunk._data for chunk in chunks])),
            read_only(np.concatenate([chunk.is_null for chunk in chunks])),
        )

    @property
    def data(self) -> NDArray[np.void]:
        """The bytes of each UUID, zeros where null; dtype ``V16``, shape (n,)."""
        return self._data

    @property
    def is_null(self) -> NDArray[np.bool_]:
        """True where the value is null; shape (n,)."""
        if self._is_null is None:
            return read_only(np.zeros(len(self._data), np.bool_))
        return self._is_null

    @property
    def null_count(self) -> int:
        """Number of nulls."""
        return 0 if self._is_null is None else int(np.count_nonzero(self._is_null))

    @property
    def nbytes(self) -> int:
        """Bytes of all values together."""
        return self._data.nbytes

    def __len__(self) -> int:
        return len(self._data)

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> UUID | None: ...
    @overload
    def __getitem__(self, rows: slice | list[int] | NDArray[Any]) -> UuidColumn: ...
    def __getitem__(self, rows: Any) -> UUID | UuidColumn | None:
        if not hasattr(rows, "__index__") or isinstance(rows, np.ndarray):
            return self.select(rows)
        row = row_number(rows, len(self))
        if self._is_null is not None and self._is_null[row]:
            return None
        return UUID(bytes=self._data[row].tobytes())

    def __iter__(self) -> Iterator[UUID | None]:
        return iter(self.to_list())

    def select(self, rows: slice | ArrayLike) -> UuidColumn:
        """Return some rows (mask, slice or row numbers)."""
        chosen = row_selection(rows, len(self))
        nulls = self._is_null
        return UuidColumn(take(self._data, chosen), None if nulls is None else take(nulls, chosen))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._data, self._is_null)

    def blocks(self) -> Iterator[Any]:
        """Yield the buffers that the column keeps alive."""
        yield self._data
        if self._is_null is not None:
            yield self._is_null

    @property
    def pinned_nbytes(self) -> int:
        """Bytes of the memory blocks that this column keeps alive."""
        return block_bytes(self.blocks())

    def to_list(self) -> list[UUID | None]:
        """Return the values as ``uuid.UUID`` objects."""
        raw = self._data.tobytes()
        values: list[UUID | None] = [UUID(bytes=raw[at : at + 16]) for at in range(0, len(raw), 16)]
        if self._is_null is not None:
            for row in np.flatnonzero(self._is_null):
                values[row] = None
        return values

    def to_numpy(self, dtype: DTypeLike = "V16") -> NDArray[Any]:
        """Return the values as ``V16`` (default; zeros where null) or as ``uuid.UUID`` objects."""
        target_dtype = np.dtype(dtype)
        if target_dtype.kind == "O":
            return object_array(self.to_list())
        return self._data.view(target_dtype)

    def to_arrow(self) -> pa.Array:
        """Return a ``pyarrow.Array`` of the ``arrow.uuid`` extension type.

        Raises
        ------
        MissingDependencyError
            pyarrow is not installed.
        """
        pyarrow = optional_package("pyarrow", "to_arrow()")
        return pyarrow.array(self)

    def arrow_column(self, name: str, _requested: str | None = None, /) -> ArrowColumn:
        """Return the column as ``fixed_size_binary(16)``, marked as ``arrow.uuid``."""
        bits, nulls = validity(self._is_null)
        return ArrowColumn(
            SchemaNode("w:16", name, metadata=_EXTENSION),
            ArrayNode(len(self), nulls, (bits, self._data.view(np.uint8))),
        )

    def __arrow_c_array__(self, requested_schema: Capsule = None) -> tuple[Capsule, Capsule]:
        return self.arrow_column("").capsules()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self.to_numpy("V16" if dtype is None else dtype)

    def __repr__(self) -> str:
        size = f"n={len(self)} nulls={self.null_count}"
        return f"<UuidColumn {size} [{values_text(self)}]>"


def _restored(data: NDArray[np.void], is_null: NDArray[np.bool_] | None) -> UuidColumn:
    return UuidColumn(restored(data), None if is_null is None else restored(is_null))
