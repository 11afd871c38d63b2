"""DictionaryColumn: texts of which each is kept once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kfast.columns.nested import NestedColumn
from kfast.columns.spans import read_only


class DictionaryColumn(NestedColumn):
    """A column of texts that repeat: names of enums, codes.

    Notes
    -----
    ``column[i]`` is a str or None; slices, masks and lists of row numbers give columns.
    ``column == "buy"`` is a mask of shape (n,); nulls are neither equal to a text nor different
    from it.

    Examples
    --------
    >>> side = '{"type": "enum", "name": "Side", "symbols": ["buy", "sell"]}'
    >>> sides = kfast.Avro(side).decode([b"\\x00", b"\\x02"]).values
    >>> sides.to_list(), sides == "buy"
    (['buy', 'sell'], array([ True, False]))
    """

    __slots__ = ()

    @property
    def indices(self) -> NDArray[np.int32]:
        """Which of ``categories`` each row has, 0 where null; shape (n,)."""
        data: NDArray[np.int32] = self._node.data
        return data

    @property
    def categories(self) -> list[str]:
        """The texts; some may be in no row."""
        return [] if self._node.categories is None else self._node.categories.texts()

    def _equal_to(self, value: object) -> NDArray[np.bool_]:
        if not isinstance(value, str):
            raise TypeError(f"a DictionaryColumn compares with str, not {type(value).__name__}")
        matching = [index for index, text in enumerate(self.categories) if text == value]
        return read_only(np.isin(self.indices, matching) & ~self.is_null)
