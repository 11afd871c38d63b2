"""Typed columns made of Python values, by way of the compiled builders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kfast._native.builder_operations import build
from kfast.columns.column_data import ColumnData
from kfast.columns.typed import column_of
from kfast.schemas.layout import constant_bytes, layout
from kfast.schemas.schema import Schema
from kfast.schemas.types import SchemaField


def typed(schema: object, rows: Sequence[Any]) -> Any:
    """Return the column of some rows; None is a null row."""
    root = schema if isinstance(schema, SchemaField) else Schema(schema).root
    steps = [
        ("null", 0) if row is None else ("constant", 0, constant_bytes(root, row)) for row in rows
    ]
    built, _errors, results, _is_full, _size = build(layout(root), steps)
    assert not any(results)
    return column_of(ColumnData.of_built(root, built))
