"""Values of the columns that builders give, read by hand: what typed columns are compared with.

Times, timestamps and dates are the numbers that are stored; a map is a list of pairs.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any
from uuid import UUID

from kfast.schemas.types import Kind, SchemaField

_CODES = {
    Kind.INT32: "i", Kind.INT64: "q", Kind.FLOAT32: "f", Kind.FLOAT64: "d", Kind.DATE32: "i",
    Kind.TIME32: "i", Kind.TIME64: "q", Kind.TIMESTAMP: "q", Kind.BOOL: "?", Kind.UINT32: "I",
    Kind.UINT64: "Q", Kind.DURATION: "q",
}  # fmt: skip


def rows_of(column: SchemaField, built: tuple[Any, ...]) -> list[Any]:
    """Return one value per row."""
    _, length, nulls, validity, data, offsets, dictionary, children = built
    is_valid = [True] * length
    if validity is not None:
        bits = bytes(validity)
        is_valid = [bool(bits[row >> 3] >> (row & 7) & 1) for row in range(length)]
    assert nulls == is_valid.count(False)
    raw = b"" if data is None else bytes(data)
    at = [] if offsets is None else list(struct.unpack(f"={length + 1}i", bytes(offsets)))
    kind = column.type.kind
    below = [rows_of(f, child) for f, child in zip(column.type.fields, children, strict=True)]
    values: list[Any]
    if kind is Kind.STRUCT:
        names = [field.name for field in column.type.fields]
        values = [dict(zip(names, row, strict=True)) for row in zip(*below, strict=True)]
    elif kind is Kind.LIST:
        values = [below[0][at[row] : at[row + 1]] for row in range(length)]
    elif kind is Kind.MAP:
        pairs = list(zip(*below, strict=True))
        values = [pairs[at[row] : at[row + 1]] for row in range(length)]
    elif kind in {Kind.STRING, Kind.BINARY, Kind.RAW}:
        parts = [raw[at[row] : at[row + 1]] for row in range(length)]
        values = [part.decode() for part in parts] if kind is Kind.STRING else parts
    elif kind is Kind.DICTIONARY:
        count, places, text = dictionary
        ends = struct.unpack(f"={count + 1}i", bytes(places))
        texts = [bytes(text)[ends[n] : ends[n + 1]].decode() for n in range(count)]
        values = [texts[n] for n in struct.unpack(f"={length}i", raw)]
    else:
        width = column.type.width
        assert len(raw) == width * length
        values = [_fixed(column, raw[row * width : (row + 1) * width]) for row in range(length)]
    assert len(values) == length
    return [value if valid else None for value, valid in zip(values, is_valid, strict=True)]


def _fixed(column: SchemaField, raw: bytes) -> Any:
    kind = column.type.kind
    if kind is Kind.UUID:
        return UUID(bytes=raw)
    if kind is Kind.FIXED_BINARY:
        return raw
    if kind in {Kind.DECIMAL128, Kind.DECIMAL256}:
        unscaled = int.from_bytes(raw, "little", signed=True)
        digits = tuple(map(int, str(abs(unscaled))))
        return Decimal((int(unscaled < 0), digits, -column.type.scale))
    (value,) = struct.unpack(f"={_CODES[kind]}", raw)
    return value
