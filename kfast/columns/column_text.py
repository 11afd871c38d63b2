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
    data_type = node.field.type
    children = [node.categories] if node.categories is not None else node.children
    names = _names(data_type) if data_type.kind is Kind.STRUCT else (b"",) * len(children)
    return (
        int(data_type.kind),
        _digits(data_type),
        data_type.is_utc or data_type.is_json,
        _width(data_type, node),
        node.length,
        node.bits,
        None if node.data is None else np.ascontiguousarray(node.data),
        None if node.offsets is None else np.ascontiguousarray(node.offsets),
        0 if node.offsets is None else int(node.offsets.itemsize),
        name,
        tuple(text_source(child, name) for child, name in zip(children, names, strict=True)),
    )


def _digits(data_type: DataType) -> int:
    if data_type.kind in {Kind.DECIMAL128, Kind.DECIMAL256}:
        return data_type.scale
    return _UNIT_DIGITS[data_type.unit]


def _width(data_type: DataType, node: ColumnData) -> int:
    if node.data is None or node.offsets is not None:
        return 0
    return int(node.data.itemsize) if data_type.kind is Kind.DICTIONARY else data_type.width


def _names(data_type: DataType) -> list[bytes]:
    """Return the JSON text before each member of a struct: comma, except at the first, and name."""
    return [
        (("," if number else "") + json.dumps(field.name, ensure_ascii=False) + ":").encode(
            errors="backslashreplace"
        )
        for number, field in enumerate(data_type.fields)
    ]
