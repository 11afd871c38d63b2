"""StringColumn: UTF-8 text without Python objects.

Owns: the guarantee that every value of a BytesColumn is well-formed UTF-8. The ``Utf8``
deserializer checks the column once; after that decoding a value cannot fail, and Arrow may use the
bytes unchanged.

Thread: any; a column is immutable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kfast._base.optional import optional_package
from kfast._native import columns
from kfast.columns.arrow import TEXT_FORMATS, ArrowColumn, Capsule, requested_format
from kfast.columns.bytes import BytesColumn, is_string_dtype, span_column, string_array
from kfast.columns.spans import object_array, read_only, row_number
from kfast.columns.table_text import values_text

if TYPE_CHECKING:
    import pyarrow as pa


class StringColumn:
    """A column of strings, null and empty distinguished.

    Parameters
    ----------
    raw : BytesColumn
        Values that have been checked to be UTF-8.

    Notes
    -----
    ``column[i]`` is ``str`` or None; ``column[a:b]``, ``column[mask]`` and ``column[[...]]`` are
    columns over the same memory.

    ``column == "k5"`` and ``column != "k5"`` are masks of shape (n,), for
    ``records[records.keys == "k5"]``; so is :meth:`isin`. A null is neither equal to a value nor
    different from it: both masks are False there, as filters of Arrow, polars and SQL have it. Any
    operand that is not a str raises TypeError. A column has no hash.

    Examples
    --------
    >>> orders = kfast.read_topic(
    ...     "orders", bootstrap_servers="localhost:9092", key_deserializer=kfast.Utf8()
    ... )
    >>> keys = orders[kfast.TopicPartition("orders", 0)].keys
    >>> keys[0], keys.isin(["k2", "k3"])
    ('k1', array([False,  True]))
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: BytesColumn) -> None:
        self._raw = raw

    @classmethod
    def concat(cls, chunks: Sequence[StringColumn]) -> StringColumn:
        """Return the rows of several columns as one; the values are copied into one buffer."""
        return cls(BytesColumn.concat([chunk._raw for chunk in chunks]))

    @property
    def raw(self) -> BytesColumn:
        """The same values as bytes."""
        return self._raw

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Bytes (not characters) of each value, -1 for null; shape (n,)."""
        return self._raw.lengths

    @property
    def is_null(self) -> NDArray[np.bool_]:
        """True where the value is null; shape (n,)."""
        return self._raw.is_null

    @property
    def null_count(self) -> int:
        """Number of nulls."""
        return self._raw.null_count

    @property
    def nbytes(self) -> int:
        """Bytes of all values together."""
        return self._raw.nbytes

    def __len__(self) -> int:
        return len(self._raw)

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> str | None: ...
    @overload
    def __getitem__(self, rows: slice | list[int] | NDArray[Any]) -> StringColumn: ...
    def __getitem__(self, rows: Any) -> str | StringColumn | None:
        if not hasattr(rows, "__index__") or isinstance(rows, np.ndarray):
            return self.select(rows)
        value = self._raw[row_number(rows, len(self))]
        return None if value is None else value.decode()

    def __iter__(self) -> Iterator[str | None]:
        return iter(self.to_list())

    def select(self, rows: slice | ArrayLike) -> StringColumn:
        """Return some rows (mask, slice or row numbers) over the same memory."""
        return StringColumn(self._raw.select(rows))

    def __eq__(self, value: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return self._raw.equal_to_any([_text_value(value)])

    def __ne__(self, value: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return self._raw.equal_to_any([_text_value(value)], invert=True)

    __hash__ = None  # type: ignore[assignment]

    def isin(self, values: Iterable[str | None]) -> NDArray[np.bool_]:
        """Return a mask of shape (n,): True where the value is one of ``values``.

        Parameters
        ----------
        values : iterable of str or None
            None stands for null: without it nulls are False.

        Raises
        ------
        TypeError
            ``values`` is one str, or one of them is neither str nor None.
        """
        if isinstance(values, str):
            raise TypeError("isin() takes several strings; compare with one by ==")
        distinct = set(values)
        return self._raw.equal_to_any(
            [_text_value(value) for value in distinct if value is not None],
            match_nulls=None in distinct,
        )

    def compact(self) -> StringColumn:
        """Return the same rows in memory of their own, so that the received frame can be freed."""
        return StringColumn(self._raw.compact())

    def __reduce__(self) -> tuple[Any, ...]:
        return StringColumn, (self._raw,)

    def blocks(self) -> Iterator[Any]:
        """Yield the buffers that the column keeps alive."""
        return self._raw.blocks()

    @property
    def pinned_nbytes(self) -> int:
        """Bytes of the memory blocks that this column keeps alive; :meth:`compact` reduces it."""
        return self._raw.pinned_nbytes

    def to_list(self) -> list[str | None]:
        """Return the values as Python objects."""
        return columns.text_list(*self._raw.spans)

    def to_numpy(self, dtype: DTypeLike = object) -> NDArray[Any]:
        """Return the values as a NumPy array of shape (n,).

        Parameters
        ----------
        dtype : dtype-like
            ``object`` (default): ``str`` and None. ``StringDType()``: nulls None. ``"U"`` or
            ``"U<width>"``: padded or cut, nulls empty.
        """
        values = self.to_list()
        if is_string_dtype(dtype):
            return string_array(values, self.null_count > 0)
        target_dtype = np.dtype(dtype)
        if target_dtype.kind == "O":
            return object_array(values)
        if target_dtype.kind != "U":
            raise TypeError(f"text cannot be converted to {target_dtype}")
        return read_only(np.array([value or "" for value in values], target_dtype))

    def to_arrow(self, view: bool = False) -> pa.Array:
        """Return a ``pyarrow.Array``: ``string`` (one copy) or ``string_view`` (none).

        Values of more than 2 GiB together become ``large_string``.

        Raises
        ------
        MissingDependencyError
            pyarrow is not installed.
        """
        pyarrow = optional_package("pyarrow", "to_arrow()")
        return pyarrow.array(self, pyarrow.string_view() if view else None)

    def arrow_column(self, name: str, requested: str | None = None, /) -> ArrowColumn:
        """Return the column in the requested Arrow format, if it is one of text."""
        return span_column(self._raw, name, TEXT_FORMATS.get(requested or "", "u"))

    def __arrow_c_array__(self, requested_schema: Capsule = None) -> tuple[Capsule, Capsule]:
        return self.arrow_column("", requested_format(requested_schema)).capsules()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self.to_numpy(object if dtype is None else dtype)

    def __repr__(self) -> str:
        size = f"n={len(self)} nulls={self.null_count} nbytes={self.nbytes}"
        return f"<StringColumn {size} [{values_text(self)}]>"


def _text_value(value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError(
            f"a StringColumn compares with str, not {type(value).__name__}; "
            "isin() takes several values, is_null has the nulls"
        )
    # A lone surrogate has no UTF-8, so its bytes equal no value.
    return value.encode("utf-8", "surrogatepass")
