"""Columns as compiled decoders return them, as Python values: slow and obvious.

Numbers of fixed width come as ints and floats, times as numbers of their unit, decimals as unscaled
ints, text as str, UUIDs and binary as bytes, structs as dicts, lists as lists, maps as lists of
pairs, rows without a value as None.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kfast._native import json_decode
from kfast._native.buffers import OwnedBuffer, copy_of
from kfast.schemas.json_plan import JsonPlan
from kfast.schemas.types import DataType, Kind, SchemaField

_NUMPY = {
    Kind.BOOL: "?", Kind.INT8: "i1", Kind.INT16: "i2", Kind.INT32: "i4", Kind.INT64: "i8",
    Kind.UINT8: "u1", Kind.UINT16: "u2", Kind.UINT32: "u4", Kind.UINT64: "u8", Kind.FLOAT32: "f4",
    Kind.FLOAT64: "f8", Kind.DATE32: "i4", Kind.TIME32: "i4", Kind.TIME64: "i8",
    Kind.TIMESTAMP: "i8", Kind.DURATION: "i8",
}  # fmt: skip


class Failure(NamedTuple):
    """One row of the errors of a decoding."""

    row: int
    position: int
    code: int
    node: int
    detail: int
    indexes: tuple[int, ...]


def failures(errors: OwnedBuffer | None) -> list[Failure]:
    """Return the errors of a decoding."""
    raw = b"" if errors is None else bytes(errors)
    found = []
    for at in range(0, len(raw), 64):
        row, position, code, node, detail, depth, *indexes = struct.unpack_from(
            "=qqiiii8i", raw, at
        )
        found.append(Failure(row, position, code, node, detail, tuple(indexes[:depth])))
    return found


def values_of(field: SchemaField, built: Any) -> list[Any]:
    """Return the values of a column."""
    _, length, nulls, validity, data, offsets, dictionary, children = built
    values = _without_nulls(field.type, length, data, offsets, dictionary, children)
    assert len(values) == length
    if not nulls:
        assert validity is None
        return values
    bits = np.unpackbits(np.frombuffer(bytes(validity), np.uint8), bitorder="little")[:length]
    assert int((bits == 0).sum()) == nulls
    return [value if bit else None for value, bit in zip(values, bits, strict=True)]


def _without_nulls(
    made: DataType, length: int, data: Any, offsets: Any, dictionary: Any, children: Any
) -> list[Any]:
    raw = b"" if data is None else bytes(data)
    cuts = array("i", bytes(offsets)) if offsets is not None else array("i", [0])
    inner = [values_of(f, part) for f, part in zip(made.fields, children, strict=True)]
    kind = made.kind
    if kind in _NUMPY:
        return list(np.frombuffer(raw, _NUMPY[kind], length).tolist())
    if kind in {Kind.DECIMAL128, Kind.DECIMAL256}:
        width = made.width
        parts = [raw[i : i + width] for i in range(0, len(raw), width)]
        return [int.from_bytes(part, "little", signed=True) for part in parts]
    if made.width:
        return [raw[i * made.width : (i + 1) * made.width] for i in range(length)]
    if kind is Kind.DICTIONARY:
        count, text_offsets, text = dictionary
        ends = array("i", bytes(text_offsets))
        texts = [bytes(text)[ends[i] : ends[i + 1]].decode() for i in range(count)]
        assert len(set(texts)) == count
        return [texts[i] if texts else None for i in array("i", raw)]
    if kind is Kind.STRUCT:
        names = [f.name for f in made.fields]
        return [dict(zip(names, [part[i] for part in inner], strict=True)) for i in range(length)]
    pairs = list(pairwise(cuts))
    if kind is Kind.LIST:
        return [inner[0][a:b] for a, b in pairs]
    if kind is Kind.MAP:
        items = list(zip(*inner, strict=True))
        return [items[a:b] for a, b in pairs]
    if kind is Kind.STRING:
        return [raw[a:b].decode() for a, b in pairs]
    return [raw[a:b] for a, b in pairs]


def decode_json(
    plan: JsonPlan, root: SchemaField, documents: Sequence[bytes | None], mode: int = 1
) -> tuple[list[Any], list[Failure]]:
    """Decode documents that lie one behind the other in a block without a byte more."""
    data = copy_of(b"".join(each or b"" for each in documents))
    lengths = np.array([-1 if each is None else len(each) for each in documents], np.int32)
    starts = np.zeros(len(documents), np.int64)
    if len(documents) > 1:
        starts[1:] = np.cumsum(np.maximum(lengths, 0))[:-1]
    built, errors, _ = json_decode.decode(plan, data, starts, lengths, mode)
    return values_of(root, built), failures(errors)
