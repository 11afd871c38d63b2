"""One row of a column between two others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def row_of(decode: Callable[[list[bytes | None]], tuple[list[Any], Any]], value: bytes) -> Any:
    """Decode the value; of a bad one return code and position."""
    # A row before and one behind show that others are left alone.
    rows, errors = decode([None, value, None])
    assert (len(rows), rows[0], rows[2]) == (3, None, None)
    if errors:
        assert rows[1] is None
        ((row, position, code, *_),) = errors
        assert row == 1
        return code, position
    return rows[1]
