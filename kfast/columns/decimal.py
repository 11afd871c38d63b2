"""DecimalColumn: decimals of one precision and scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kfast.columns.column_values import unscaled_numbers
from kfast.columns.nested import NestedColumn
from kfast.columns.spans import masked_array, object_array, read_only


class DecimalColumn(NestedColumn):
    """A column of exact decimals.

    Notes
    -----
    ``column[i]`` is a ``decimal.Decimal`` or None; slices, masks and lists of row numbers give
    columns.

    Examples
    --------
    >>> prices = kfast.Json({"price": "decimal(10, 2)"}).decode([b'{"price": 9.50}'])
    >>> prices.values["price"][0]
    Decimal('9.50')
    """

    __slots__ = ()

    @property
    def scale(self) -> int:
        """Digits after the point."""
        return self._node.field.type.scale

    @property
    def precision(self) -> int:
        """Digits in all."""
        return self._node.field.type.precision

    @property
    def unscaled(self) -> NDArray[np.uint64]:
        """The value times 10**scale in two's complement, zeros where null.

        Shape (n, 2), or (n, 4) for ``decimal256``; words in the byte order of the machine, so on
        most machines the lowest comes first.
        """
        data: NDArray[Any] = self._node.data
        words = self._node.field.type.width // 8
        return np.ascontiguousarray(data).view(np.uint64).reshape(len(data), words)

    def to_numpy(self, dtype: DTypeLike = object) -> NDArray[Any]:
        """Return ``Decimal`` objects (default), or the nearest floats, masked where null."""
        wanted = np.dtype(dtype)
        if wanted.kind == "O":
            return object_array(self.to_list())
        if wanted.kind != "f":
            raise TypeError(f"decimals cannot be converted to {wanted}")
        # The quotient of two ints is rounded once.
        unit = 10 ** max(self.scale, 0)
        factor = 10 ** max(-self.scale, 0)
        values = np.array([n * factor / unit for n in unscaled_numbers(self._node)], wanted)
        mask = self._node.is_null
        return read_only(values) if mask is None else masked_array(values, mask)
