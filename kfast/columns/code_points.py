"""Validity of text of a fixed width: NumPy's ``U``, alone or in fields of structures.

NumPy takes code points as they are. One past U+10FFFF makes a ``str`` that encoding and printing
fail on with SystemError, so bytes with such a code point do not become an array.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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
