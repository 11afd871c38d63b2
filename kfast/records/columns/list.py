"""ListColumn: one list per row, over the elements of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kfast.records.columns.nested import NestedColumn
from kfast.records.columns.spans import read_only


class ListColumn(NestedColumn):
    """A column of lists.

    Notes
    -----
    ``column[i]`` is a list or None; slices, masks and lists of row numbers give columns. Row ``i``
    has the elements ``offsets[i]`` to ``offsets[i + 1]`` of ``items``.

    Examples
    --------
    >>> tags = kfast.Json({"tags": ["string"]}).decode([b'{"tags": ["a", "b"]}']).values["tags"]
    >>> tags[0], tags.items
    (['a', 'b'], <StringColumn n=2 nulls=0 nbytes=2 [a, b]>)
    """

    __slots__ = ()

    @property
    def offsets(self) -> NDArray[Any]:
        """Where each list begins in ``items``; int32 or int64, shape (n + 1,)."""
        return self._node.items[0]

    @property
    def lengths(self) -> NDArray[Any]:
        """Elements of each list, 0 for null; shape (n,)."""
        return read_only(np.diff(self._node.offsets))

    @property
    def items(self) -> Any:
        """The elements of all rows, as a column."""
        from kfast.records.columns.typed import column_of  # noqa: PLC0415  items may be of any kind

        return column_of(self._node.items[1][0])
