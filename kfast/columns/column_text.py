"""Typed columns for the writer of their texts, ``_native/column_text.pyx``.

Owns: the nested tuple that a column is given as; nothing is copied.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from kfast.columns.column_data import ColumnData
from kfast.schemas.types import DataType, Kind

_UNIT_DIGITS: Final = {"": 0, "s": 0, "ms": 3, "us": 6, "ns": 9}


def text_source(node: ColumnData, name: bytes = b"") -> tuple[Any, ...]:
    """Return a column as `ColumnTexts.write` takes it; ``name`` stands before each value."""
    made = node.field.type
    children = [node.categories] if node.categories is not None else node.children
    names = _names(made) if made.kind is Kind.STRUCT else (b"",) * len(children)
    return (
        int(made.kind),
        _digits(made),
        made.is_utc or made.is_json,
        _width(made, node),
        node.length,
        node.bits,
        None if node.data is None else np.ascontiguousarray(node.data),
        None if node.offsets is None else np.ascontiguousarray(node.offsets),
        0 if node.offsets is None else int(node.offsets.itemsize),
        name,
        tuple(text_source(child, each) for child, each in zip(children, names, strict=True)),
    )


def _digits(made: DataType) -> int:
    if made.kind in {Kind.DECIMAL128, Kind.DECIMAL256}:
        return made.scale
    return _UNIT_DIGITS[made.unit]


def _width(made: DataType, node: ColumnData) -> int:
    if node.data is None or node.offsets is not None:
        return 0
    return int(node.data.itemsize) if made.kind is Kind.DICTIONARY else made.width


def _names(made: DataType) -> list[bytes]:
    """Return what stands before the members of a struct: name and colon, a comma but before the
    first.
    """
    return [
        (("," if number else "") + json.dumps(field.name, ensure_ascii=False) + ":").encode(
            errors="backslashreplace"
        )
        for number, field in enumerate(made.fields)
    ]
