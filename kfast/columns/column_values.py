"""Typed columns as Python values and as NumPy arrays.

Owns: what ``to_list()`` and ``column[i]`` give per kind, and the array of a column of fixed width.
A date, time or timestamp that Python's classes cannot have is its number, and so are all in
nanoseconds.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from kfast._native import columns
from kfast.columns.column_data import ColumnData
from kfast.columns.spans import masked_array, read_only
from kfast.schemas.arrow_schema import arrow_format
from kfast.schemas.types import DataType, Kind

_ARRAYS: Final = {
    Kind.TIMESTAMP: "M8", Kind.DURATION: "m8", Kind.TIME64: "m8", Kind.TIME32: "m8",
}  # fmt: skip
_DAY: Final = dt.timedelta(days=1)


def has_array(data_type: DataType) -> bool:
    """Whether users get columns of a type as plain arrays."""
    if data_type.kind in {Kind.DECIMAL128, Kind.DECIMAL256, Kind.UUID}:
        return False
    return data_type.width > 0 or data_type.kind is Kind.FIXED_BINARY


def array_of(node: ColumnData) -> NDArray[Any]:
    """Return the array of a column for which :func:`has_array` is true, masked if it has nulls.

    The data is the decoder's memory, but for ``date32`` and ``time32``, whose NumPy forms have
    eight bytes.
    """
    values = plain_array(node)
    return values if node.is_null is None else masked_array(values, node.is_null)


def plain_array(node: ColumnData) -> NDArray[Any]:
    """Return the same without a mask: zeros where null."""
    data_type = node.field.type
    data: NDArray[Any] = node.data
    if data_type.kind is Kind.DATE32:
        return read_only(data.astype("M8[D]"))
    if data_type.kind in _ARRAYS:
        dtype = np.dtype(
            f"{_ARRAYS[data_type.kind]}[{data_type.unit}]", metadata=_type_of_times(data_type)
        )
        return data.view(dtype) if data.itemsize == 8 else read_only(data.astype(dtype))
    return data


def _type_of_times(data_type: DataType) -> dict[str, Any]:
    """Return the metadata of a NumPy dtype that has the Arrow format it cannot express itself."""
    is_known = data_type.kind is Kind.DURATION or (
        data_type.kind is Kind.TIMESTAMP and not data_type.is_utc
    )
    return {} if is_known else {"arrow": arrow_format(data_type)}


def values_of(node: ColumnData) -> list[Any]:
    """Return a column as Python values, None where null."""
    values = _MAKERS.get(node.field.type.kind, _numbers)(node)
    if node.is_null is not None:
        for row in np.flatnonzero(node.is_null).tolist():
            values[row] = None
    return values


def _numbers(node: ColumnData) -> list[Any]:
    values: list[Any] = node.data.tolist()
    return values


def _text(node: ColumnData) -> list[Any]:
    starts, lengths = node.starts_and_lengths
    return columns.text_list(node.data, np.ascontiguousarray(starts), lengths)


def _raw(node: ColumnData) -> list[Any]:
    if node.field.type.is_json:
        return _text(node)
    starts, lengths = node.starts_and_lengths
    return columns.bytes_list(node.data, np.ascontiguousarray(starts), lengths)


def _dictionary(node: ColumnData) -> list[Any]:
    texts = node.categories.texts() if node.categories is not None else []
    if not texts:
        return [None] * node.length
    return [texts[index] for index in node.data.tolist()]


def _moments(node: ColumnData) -> list[Any]:
    values: list[Any] = plain_array(node).tolist()
    if node.field.type.is_utc:
        return [v.replace(tzinfo=dt.UTC) if isinstance(v, dt.datetime) else v for v in values]
    return values


def _times_of_day(node: ColumnData) -> list[Any]:
    lengths: list[Any] = plain_array(node).tolist()
    numbers = node.data.tolist()
    midnight = dt.datetime.min
    return [
        (midnight + length).time()
        if isinstance(length, dt.timedelta) and dt.timedelta(0) <= length < _DAY
        else number
        for length, number in zip(lengths, numbers, strict=True)
    ]


def _dates_and_lengths(node: ColumnData) -> list[Any]:
    values: list[Any] = plain_array(node).tolist()
    return values


def _decimals(node: ColumnData) -> list[Any]:
    scale = node.field.type.scale
    return [Decimal(number).scaleb(-scale, _CONTEXT) for number in unscaled_numbers(node)]


def unscaled_numbers(node: ColumnData) -> list[int]:
    """Return the integers of decimals."""
    raw, width = node.data.tobytes(), node.field.type.width
    return [
        int.from_bytes(raw[at : at + width], sys.byteorder, signed=True)
        for at in range(0, len(raw), width)
    ]


def _uuids(node: ColumnData) -> list[Any]:
    raw = node.data.tobytes()
    return [UUID(bytes=raw[at : at + 16]) for at in range(0, len(raw), 16)]


def _structs(node: ColumnData) -> list[Any]:
    names = [field.name for field in node.field.type.fields]
    rows = zip(*map(values_of, node.children), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


def _lists(node: ColumnData) -> list[Any]:
    offsets, (items,) = node.items
    return _pieces(values_of(items), offsets)


def _maps(node: ColumnData) -> list[Any]:
    offsets, (keys, values) = node.items
    pairs = list(zip(values_of(keys), values_of(values), strict=True))
    return [dict(entries) for entries in _pieces(pairs, offsets)]


def _nulls(node: ColumnData) -> list[Any]:
    return [None] * node.length


def _pieces(values: list[Any], offsets: NDArray[Any]) -> list[Any]:
    cuts = offsets.tolist()
    return [values[start:end] for start, end in pairwise(cuts)]


_CONTEXT: Final = Context(prec=100)
_MAKERS: Final[dict[Kind, Callable[[ColumnData], list[Any]]]] = {
    Kind.STRING: _text,
    Kind.BINARY: _raw,
    Kind.RAW: _raw,
    Kind.DICTIONARY: _dictionary,
    Kind.TIMESTAMP: _moments,
    Kind.TIME32: _times_of_day,
    Kind.TIME64: _times_of_day,
    Kind.DATE32: _dates_and_lengths,
    Kind.DURATION: _dates_and_lengths,
    Kind.DECIMAL128: _decimals,
    Kind.DECIMAL256: _decimals,
    Kind.UUID: _uuids,
    Kind.STRUCT: _structs,
    Kind.LIST: _lists,
    Kind.MAP: _maps,
    Kind.NULL: _nulls,
}
