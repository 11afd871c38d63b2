"""Arrow nodes: descriptions of columns for the Arrow C data interface.

Owns: the node tuples that ``_native.arrow_export`` reads, validity bitmaps and capsules.
It never imports an Arrow library: ``pyarrow.table(x)``, ``polars.DataFrame(x)`` and the like read
the capsules made here.

Thread: any; nodes are immutable and refer to read-only buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from kfast._native import arrow_export, columns

INT32_MAX: Final = 2**31 - 1
BINARY_FORMATS: Final = {"z": "z", "Z": "Z", "vz": "vz", "v": "vz"}
TEXT_FORMATS: Final = {"u": "u", "U": "U", "vu": "vu", "v": "vu"}
"""Formats that can be requested of a column of bytes or text; ``v`` means views of either."""

Capsule: TypeAlias = Any
"""A ``PyCapsule``; there is no static type for it."""


class SchemaNode(NamedTuple):
    """One field: its Arrow format string, name, metadata and children.

    ``dictionary`` is the field of the values that indices refer to.
    """

    format: str
    name: str
    is_nullable: bool = True
    metadata: bytes | None = None
    children: tuple[SchemaNode, ...] = ()
    dictionary: SchemaNode | None = None

    @classmethod
    def read(cls, capsule: Capsule) -> SchemaNode:
        """Return the field that an ``arrow_schema`` capsule of any library describes."""
        return _schema_node(arrow_export.read_schema(capsule))


class ArrayNode(NamedTuple):
    """One array: length, nulls, its buffers in Arrow's order (None = absent) and children."""

    length: int
    null_count: int
    buffers: tuple[Any, ...]
    children: tuple[ArrayNode | Capsule, ...] = ()
    dictionary: ArrayNode | None = None


class ArrowColumn(NamedTuple):
    """A field with its data, which may be a capsule of another Arrow library."""

    schema: SchemaNode
    array: ArrayNode | Capsule

    def capsules(self) -> tuple[Capsule, Capsule]:
        """Make the pair that ``__arrow_c_array__`` returns."""
        return arrow_export.schema_capsule(self.schema), arrow_export.array_capsule(self.array)


@dataclass(frozen=True, slots=True)
class CapsulePair:
    """An object with ``__arrow_c_array__`` only, to pass one export to a library."""

    column: ArrowColumn

    def __arrow_c_array__(self, requested_schema: Capsule = None) -> tuple[Capsule, Capsule]:
        return self.column.capsules()


@dataclass(frozen=True, slots=True)
class CapsuleStream:
    """An object with ``__arrow_c_stream__`` only, to pass one export to a library."""

    capsule: Capsule

    def __arrow_c_stream__(self, requested_schema: Capsule = None) -> Capsule:
        return self.capsule


def _schema_node(node: tuple[Any, ...]) -> SchemaNode:
    text, name, is_nullable, metadata, children, dictionary = node
    return SchemaNode(
        text,
        name,
        is_nullable,
        metadata,
        tuple(map(_schema_node, children)),
        None if dictionary is None else _schema_node(dictionary),
    )


def struct_column(name: str, children: Sequence[ArrowColumn], length: int) -> ArrowColumn:
    """Return columns as a struct without nulls: Arrow's form of a record batch."""
    return ArrowColumn(
        SchemaNode("+s", name, is_nullable=False, children=tuple(c.schema for c in children)),
        ArrayNode(length, 0, (None,), tuple(c.array for c in children)),
    )


def validity(is_null: Any) -> tuple[Any, int]:
    """Return validity bitmap and number of nulls for a bool array; no bitmap without nulls."""
    if is_null is None:
        return None, 0
    contiguous: Any = np.ascontiguousarray(is_null)
    bits, valid = columns.pack_bits(contiguous, True)
    nulls = len(is_null) - valid
    return (bits if nulls else None), nulls


def requested_format(requested_schema: Capsule) -> str | None:
    """Return the format that an Arrow consumer requests for one column."""
    return None if requested_schema is None else SchemaNode.read(requested_schema).format


def requested_columns(requested_schema: Capsule) -> dict[str, str]:
    """Return the formats that an Arrow consumer requests for a table's columns, by name."""
    if requested_schema is None:
        return {}
    return {field.name: field.format for field in SchemaNode.read(requested_schema).children}
