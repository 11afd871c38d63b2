"""Typed columns with the types of Spark: what ``value_types`` says becomes what.

Owns the conversion of memory: most kinds keep theirs, the others are converted by NumPy, never one
value at a time. A timestamp that Spark's microseconds cannot hold makes its record bad, as a value
that cannot be read does.

Any thread; columns are immutable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kfast.columns.column_data import ColumnData, storage_dtype
from kfast.columns.spans import read_only
from kfast.schemas.types import DataType, Kind, SchemaField

_INT32_MAX: Final = 2**31 - 1
_PER_MICROSECOND: Final = {"s": 1_000_000, "ms": 1_000}
_NUMBERS: Final = frozenset({Kind.INT16, Kind.INT32, Kind.INT64, Kind.FLOAT64})
_LOW: Final = 0 if sys.byteorder == "little" else -1
_HEX: Final = np.frombuffer(
    "".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8
).reshape(256, 2)
_UUID_CHARACTERS: Final = 36
_UUID_DASHES: Final = (8, 13, 18, 23)


class BadRows(NamedTuple):
    """Rows with a value that a type of Spark cannot hold, and its path."""

    path: str
    rows: NDArray[np.int64]


class Converted(NamedTuple):
    """A column in a type of Spark."""

    column: ColumnData
    bad: tuple[BadRows, ...] = ()


def convert(node: ColumnData, target: SchemaField, path: str = "") -> Converted:
    """Return a column in a type of Spark that ``check_conversion`` has accepted."""
    kind = target.type.kind
    if kind is Kind.STRUCT:
        return _struct(node, target, path)
    if kind in {Kind.LIST, Kind.MAP}:
        return _items(node, target, path)
    if kind is Kind.TIMESTAMP:
        return _timestamps(node, target, path)
    source = node.field.type
    if source.kind in _CONVERSIONS and source.kind is not kind:
        return Converted(_CONVERSIONS[source.kind](node, target))
    data = node.data
    if kind in _NUMBERS and source.kind is not kind:
        data = read_only(data.astype(storage_dtype(target.type)))
    return Converted(node.as_type(target, data=data, offsets=node.offsets))


def _struct(node: ColumnData, target: SchemaField, path: str) -> Converted:
    at = {field.name: number for number, field in enumerate(node.field.type.fields)}
    dot = "." if path else ""
    members = [
        convert(node.children[at[field.name]], field, f"{path}{dot}{field.name}")
        for field in target.type.fields
    ]
    column = node.as_type(target, children=[member.column for member in members])
    return Converted(column, tuple(bad for member in members for bad in member.bad))


def _items(node: ColumnData, target: SchemaField, path: str) -> Converted:
    inner = f"{path}[]" if target.type.kind is Kind.LIST else f"{path}{{value}}"
    items = [
        convert(child, field, inner)
        for child, field in zip(node.children, target.type.fields, strict=True)
    ]
    bad_rows = []
    for item in items:
        for bad in item.bad:  # from items to rows; the items of a slice are those of all rows
            rows = np.unique(np.searchsorted(node.offsets, bad.rows, side="right") - 1)
            bad_rows.append(BadRows(bad.path, rows[(rows >= 0) & (rows < node.length)]))
    children = [item.column for item in items]
    column = node.as_type(target, offsets=node.offsets, children=children)
    return Converted(column, tuple(bad for bad in bad_rows if len(bad.rows)))


def _timestamps(node: ColumnData, target: SchemaField, path: str) -> Converted:
    unit, data = node.field.type.unit, node.data
    bad: tuple[BadRows, ...] = ()
    if unit == "ns":
        data = read_only(data // 1_000)
    elif unit != "us":
        factor = _PER_MICROSECOND[unit]
        limit = (2**63 - 1) // factor
        beyond = (data > limit) | (data < -limit)
        if beyond.any():
            bad = (BadRows(path, np.flatnonzero(beyond)),)
        data = read_only(data * factor)
    return Converted(node.as_type(target, data=data), bad)


# --- kinds that Spark does not have ---------------------------------------------------------------


def _unsigned(node: ColumnData, target: SchemaField) -> ColumnData:
    """Return 64-bit numbers as decimals of 128 bits; narrower ones as wider numbers."""
    if target.type.kind is not Kind.DECIMAL128:
        return node.as_type(target, data=read_only(node.data.astype(storage_dtype(target.type))))
    words = np.zeros((node.length, 2), np.uint64)
    words[:, _LOW] = node.data
    return node.as_type(target, data=read_only(words.view("V16").reshape(-1)))


def _decimal(node: ColumnData, target: SchemaField) -> ColumnData:
    """Return decimals of 256 bits that need no more than 128 as such."""
    words = np.ascontiguousarray(node.data).view(np.uint64).reshape(-1, 4)
    half = words[:, :2] if _LOW == 0 else words[:, 2:]
    return node.as_type(target, data=read_only(np.ascontiguousarray(half).view("V16").reshape(-1)))


def _time(node: ColumnData, target: SchemaField) -> ColumnData:
    return node.as_type(target, data=read_only(node.data.astype(np.int64, copy=False)))


def _text_of_uuids(node: ColumnData, target: SchemaField) -> ColumnData:
    raw = np.ascontiguousarray(node.data).view(np.uint8).reshape(-1, 16)
    text = np.full((node.length, _UUID_CHARACTERS), ord("-"), np.uint8)
    places = [at for at in range(_UUID_CHARACTERS) if at not in _UUID_DASHES]
    text[:, places] = _HEX[raw].reshape(node.length, 32)
    return _of_one_size(node, target, text.reshape(-1), _UUID_CHARACTERS)


def _fixed(node: ColumnData, target: SchemaField) -> ColumnData:
    raw = np.ascontiguousarray(node.data).view(np.uint8)
    return _of_one_size(node, target, raw, node.field.type.size)


def _of_one_size(
    node: ColumnData, target: SchemaField, data: NDArray[Any], size: int
) -> ColumnData:
    is_wide = node.length * size > _INT32_MAX
    offsets = np.arange(node.length + 1, dtype=np.int64 if is_wide else np.int32) * size
    return node.as_type(target, data=read_only(data), offsets=read_only(offsets))


def _texts(node: ColumnData, target: SchemaField) -> ColumnData:
    """Return the text of each row in place of its number in the dictionary."""
    texts = node.categories
    if texts is None or not texts.length:  # all rows are null
        offsets = read_only(np.zeros(node.length + 1, np.int32))
        return node.as_type(target, data=read_only(np.zeros(0, np.uint8)), offsets=offsets)
    column = texts.select(node.data)
    return node.as_type(target, data=column.data, offsets=column.offsets)


_CONVERSIONS: Final[dict[Kind, Callable[[ColumnData, SchemaField], ColumnData]]] = {
    **dict.fromkeys((Kind.UINT8, Kind.UINT16, Kind.UINT32, Kind.UINT64), _unsigned),
    **dict.fromkeys((Kind.TIME32, Kind.TIME64, Kind.DURATION), _time),
    Kind.DECIMAL256: _decimal,
    Kind.UUID: _text_of_uuids,
    Kind.FIXED_BINARY: _fixed,
    Kind.DICTIONARY: _texts,
}


def node_of_uuids(data: NDArray[Any], is_null: NDArray[np.bool_]) -> ColumnData:
    """Return the memory of a ``UuidColumn``."""
    field = SchemaField("", DataType(Kind.UUID))
    return ColumnData(field, len(data), data=data, is_null=is_null)
