"""Typed columns as Arrow columns, over the memory they have.

Owns: buffers and field of each node. Nothing is copied but what Arrow has in another form: bool
becomes bits, and the bitmap of selected rows is packed anew. Text and binary that are requested as
views, or with 64-bit offsets, get those.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kfast._base.arrow_metadata import encode_metadata
from kfast._native import columns
from kfast.columns.arrow import (
    BINARY_FORMATS,
    INT32_MAX,
    TEXT_FORMATS,
    ArrayNode,
    ArrowColumn,
    SchemaNode,
)
from kfast.columns.column_data import ColumnData
from kfast.schemas.arrow_schema import arrow_format
from kfast.schemas.layout import BYTES, DICTIONARY, LIST, STRUCT, storage_of
from kfast.schemas.types import Kind

_EXTENSIONS: Final = {
    name: encode_metadata({"ARROW:extension:name": name, "ARROW:extension:metadata": ""})
    for name in ("arrow.uuid", "arrow.json")
}


def arrow_of(
    node: ColumnData, name: str, requested: SchemaNode | None = None, *, is_nullable: bool
) -> ArrowColumn:
    """Return a column in the requested form, as far as its kind has more than one."""
    data_type = node.field.type
    storage = storage_of(data_type)
    text = arrow_format(data_type)
    if data_type.kind is Kind.NULL:  # has no buffers in Arrow
        return ArrowColumn(
            SchemaNode(text, name, True, None), ArrayNode(node.length, node.length, ())
        )
    metadata = None
    if data_type.kind is Kind.UUID or (data_type.kind is Kind.RAW and data_type.is_json):
        metadata = _EXTENSIONS["arrow.uuid" if data_type.kind is Kind.UUID else "arrow.json"]
    children: tuple[ArrowColumn, ...] = ()
    dictionary: ArrowColumn | None = None
    if storage == BYTES:
        text, buffers = _bytes_buffers(node, text, requested)
    elif storage == LIST:
        text, buffers = _list_buffers(node, text)
        children = _list_children(node, requested)
    elif storage == STRUCT:
        buffers = (node.bits,)
        children = struct_children(node, requested)
    else:
        data: Any = np.ascontiguousarray(node.data)
        if data_type.kind is Kind.BOOL:
            data, _count = columns.pack_bits(data)
        elif storage == DICTIONARY:
            assert node.categories is not None
            dictionary = arrow_of(node.categories, "", is_nullable=True)
        buffers = (node.bits, data.view(np.uint8) if data is node.data and data.size else data)
    return ArrowColumn(
        SchemaNode(
            text,
            name,
            is_nullable,
            metadata,
            tuple(child.schema for child in children),
            None if dictionary is None else dictionary.schema,
        ),
        ArrayNode(
            node.length,
            node.null_count,
            buffers,
            tuple(child.array for child in children),
            None if dictionary is None else dictionary.array,
        ),
    )


def struct_children(node: ColumnData, requested: SchemaNode | None) -> tuple[ArrowColumn, ...]:
    """Return the members of a struct; requested forms are found by name."""
    requests = {} if requested is None else {child.name: child for child in requested.children}
    return tuple(
        arrow_of(child, field.name, requests.get(field.name), is_nullable=child.field.is_nullable)
        for field, child in zip(node.field.type.fields, node.children, strict=True)
    )


def _bytes_buffers(
    node: ColumnData, text: str, requested: SchemaNode | None
) -> tuple[str, tuple[Any, ...]]:
    formats = TEXT_FORMATS if text in "uU" else BINARY_FORMATS
    target = formats.get("" if requested is None else requested.format, text)
    if target[0] == "v" and node.data.nbytes <= INT32_MAX:
        starts, lengths = node.starts_and_lengths
        views, bits, _nulls = columns.binary_views(node.data, np.ascontiguousarray(starts), lengths)
        return target, (bits, views, node.data, np.array([node.data.nbytes], np.int64))
    is_wide = target.isupper() or node.offsets.itemsize == 8
    offsets = node.offsets.astype(np.int64 if is_wide else np.int32, copy=False)
    target = target[-1]
    return target.upper() if is_wide else target, (node.bits, offsets, node.data)


def _list_buffers(node: ColumnData, text: str) -> tuple[str, tuple[Any, ...]]:
    is_wide = text == "+L" or node.offsets.itemsize == 8
    if is_wide and text == "+m":
        raise OverflowError("a map column has at most 2^31 - 1 entries in Arrow")
    offsets = node.offsets.astype(np.int64 if is_wide else np.int32, copy=False)
    return "+L" if is_wide else text, (node.bits, offsets)


def _list_children(node: ColumnData, requested: SchemaNode | None) -> tuple[ArrowColumn, ...]:
    requests = requested.children if requested is not None and requested.children else (None,)
    if node.field.type.kind is Kind.LIST:
        (child,) = node.children
        return (
            arrow_of(child, child.field.name, requests[0], is_nullable=child.field.is_nullable),
        )
    inner = struct_children(node, requests[0])
    schema = SchemaNode("+s", "entries", False, None, tuple(child.schema for child in inner))
    length = node.children[0].length
    return (
        ArrowColumn(schema, ArrayNode(length, 0, (None,), tuple(child.array for child in inner))),
    )
