"""A slow, obvious model of column builders, and finished columns as Python values."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from kfast.schemas.layout import BYTES, DICTIONARY, FIXED, LIST, STRUCT
from kfast.schemas.types import DataType, Kind, SchemaField

if TYPE_CHECKING:
    from kfast._native.builders import Built

Operation = tuple[Any, ...]


def numbers_of(root: SchemaField) -> dict[str, int]:
    """Return the number of each node by its path."""
    return {path: number for number, (path, _field) in enumerate(root.nodes())}


def subtree_sizes(root: SchemaField) -> int:
    return sum(1 for _node in root.nodes())


def appends(field: SchemaField, node: int, value: Any) -> list[Operation]:
    """Return the operations that append a value; None is null."""
    kind, made = field.type.kind, list[Operation]()
    if value is None:
        return [("null", node)]
    if kind is Kind.STRUCT:
        made.append(("struct", node))
        node += 1
        for child in field.type.fields:
            made += appends(child, node, value[child.name])
            node += subtree_sizes(child)
    elif kind is Kind.LIST:
        for item in value:
            made += appends(field.type.item, node + 1, item)
        made.append(("list", node))
    elif kind is Kind.MAP:
        key_field, value_field = field.type.fields
        for key, item in value:
            made += appends(key_field, node + 1, key)
            made += appends(value_field, node + 1 + subtree_sizes(key_field), item)
        made.append(("list", node))
    elif kind is Kind.DICTIONARY:
        made.append(("text", node, value.encode()))
    elif kind is Kind.INT64:
        made.append(("fixed", node, struct.pack("=q", value)))
    elif kind is Kind.BOOL:
        made.append(("fixed", node, bytes([value])))
    else:
        made.append(("bytes", node, value))
    return made


def values_of(field: SchemaField, built: Built) -> list[Any]:
    """Return a finished column as Python values, as :func:`appends` takes them."""
    storage, length, nulls, validity, data, offsets, dictionary, children = built
    ends = array("i", bytes(offsets)) if offsets is not None else array("i")
    if offsets is not None:
        assert len(ends) == length + 1
        assert ends[0] == 0
    inner = [
        values_of(child, part) for child, part in zip(field.type.fields, children, strict=True)
    ]
    values: list[Any]
    if storage == STRUCT:
        values = [
            {child.name: part[row] for child, part in zip(field.type.fields, inner, strict=True)}
            for row in range(length)
        ]
    elif storage == LIST:
        items = inner[0] if len(inner) == 1 else list(zip(*inner, strict=True))
        values = [items[ends[row] : ends[row + 1]] for row in range(length)]
        assert not length or ends[length] == len(items)
    elif storage == BYTES:
        raw = bytes(data or b"")
        values = [raw[ends[row] : ends[row + 1]] for row in range(length)]
        assert len(raw) == ends[length]
    elif storage == DICTIONARY:
        assert dictionary is not None
        count, text_offsets, text = dictionary
        cuts = array("i", bytes(text_offsets))
        texts = [bytes(text)[cuts[i] : cuts[i + 1]].decode() for i in range(count)]
        assert len(set(texts)) == count
        assert data is not None
        values = [texts[i] if count else None for i in array("i", bytes(data))]
    else:
        assert storage == FIXED
        assert data is not None
        kind = "q" if field.type.kind is Kind.INT64 else "?"
        values = np.frombuffer(bytes(data), kind, length).tolist()
    if nulls:
        assert validity is not None
        bits = np.unpackbits(np.frombuffer(bytes(validity), np.uint8), bitorder="little")
        assert not bits[length:].any()
        assert int((bits[:length] == 0).sum()) == nulls
        values = [value if bit else None for value, bit in zip(values, bits, strict=False)]
    else:
        assert validity is None
    return values


def list_of(item: DataType, name: str = "") -> SchemaField:
    return SchemaField(name, DataType(Kind.LIST, fields=(SchemaField("item", item),)))


def struct_of(*fields: SchemaField, name: str = "") -> SchemaField:
    return SchemaField(name, DataType(Kind.STRUCT, fields=fields))
