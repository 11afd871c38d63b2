"""MapColumn: one map per row, over the keys and values of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kfast.records.columns.nested import NestedColumn
from kfast.records.columns.spans import read_only


class MapColumn(NestedColumn):
    """A column of maps from text to values of one type.

    Notes
    -----
    ``column[i]`` is a dict or None; slices, masks and lists of row numbers give columns. Row ``i``
    has the entries ``offsets[i]`` to ``offsets[i + 1]`` of ``keys`` and ``values``.

    Examples
    --------
    >>> counts = kfast.Json({"n": "map<string, int64>"}).decode([b'{"n": {"a": 1}}']).values["n"]
    >>> counts[0]
    {'a': 1}
    """

    __slots__ = ()

    @property
    def offsets(self) -> NDArray[Any]:
        """Where the entries of each row begin; int32, shape (n + 1,)."""
        return self._node.items[0]

    @property
    def lengths(self) -> NDArray[Any]:
        """Entries of each map, 0 for null; shape (n,)."""
        return read_only(np.diff(self._node.offsets))

    @property
    def keys(self) -> Any:
        """The keys of all rows, as a column."""
        return self._entries(0)

    @property
    def values(self) -> Any:
        """The values of all rows, as a column."""
        return self._entries(1)

    def _entries(self, part: int) -> Any:
        from kfast.records.columns.typed import column_of  # noqa: PLC0415  they may be of any kind

        return column_of(self._node.items[1][part])
