"""Types of typed columns: the one tree that every kind of schema becomes.

A :class:`DataType` says what the values of a column are; a :class:`SchemaField` adds the name, and
whether there may be nulls. Both are immutable, hashable, comparable and picklable, so a plan made
from them can be shared.

Children: a struct has one field per member; a list has one, ``item``; a map has two, ``key`` (never
null) and ``value``. The order of the nodes of a tree is preorder everywhere: a node, then its
children, each with all of its own.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum, unique
from typing import Final


@unique
class Kind(IntEnum):
    """Kinds of values. The numbers are part of compiled plans, not of any file."""

    BOOL = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    UINT8 = 5
    UINT16 = 6
    UINT32 = 7
    UINT64 = 8
    FLOAT32 = 9
    FLOAT64 = 10
    STRING = 11
    BINARY = 12
    DATE32 = 13
    TIME32 = 14
    TIME64 = 15
    TIMESTAMP = 16
    DURATION = 17
    DECIMAL128 = 18
    DECIMAL256 = 19
    UUID = 20
    FIXED_BINARY = 21
    DICTIONARY = 22
    LIST = 23
    MAP = 24
    STRUCT = 25
    RAW = 26
    """The bytes of a part of the document, checked and not decoded."""
    NULL = 27
    """No values: what a column is while its schema is not known. No schema can ask for it."""


_NAMES: Final = {kind: kind.name.lower() for kind in Kind} | {
    Kind.FIXED_BINARY: "fixed_size_binary"
}
_PLAIN_NAME: Final = re.compile(r"\w+")
FIXED_WIDTHS: Final = {
    Kind.BOOL: 1, Kind.INT8: 1, Kind.INT16: 2, Kind.INT32: 4, Kind.INT64: 8,
    Kind.UINT8: 1, Kind.UINT16: 2, Kind.UINT32: 4, Kind.UINT64: 8,
    Kind.FLOAT32: 4, Kind.FLOAT64: 8, Kind.DATE32: 4, Kind.TIME32: 4, Kind.TIME64: 8,
    Kind.TIMESTAMP: 8, Kind.DURATION: 8, Kind.DECIMAL128: 16, Kind.DECIMAL256: 32, Kind.UUID: 16,
}  # fmt: skip
"""Bytes of one value while it is decoded, native byte order; a bool is one byte, 0 or 1."""


@dataclass(frozen=True, slots=True)
class DataType:
    """What the values of a column are.

    ``unit`` (``s``, ``ms``, ``us``, ``ns``) belongs to times, timestamps and durations, ``is_utc``
    to timestamps: the value is an instant, not a local time. ``precision`` and ``scale`` belong to
    decimals, ``size`` (bytes) to fixed-size binary, ``is_large`` to strings, binary and lists that
    the schema wants with 64-bit Arrow offsets, ``is_json`` to a raw part that is JSON text.
    ``extension`` is the name of an Arrow extension type, empty for none.
    """

    kind: Kind
    unit: str = ""
    is_utc: bool = False
    precision: int = 0
    scale: int = 0
    size: int = 0
    is_large: bool = False
    is_json: bool = False
    extension: str = ""
    fields: tuple[SchemaField, ...] = ()

    @property
    def width(self) -> int:
        """Bytes of one value, 0 where values have no fixed width."""
        return self.size if self.kind is Kind.FIXED_BINARY else FIXED_WIDTHS.get(self.kind, 0)

    @property
    def item(self) -> SchemaField:
        """The one child of a list."""
        (item,) = self.fields
        return item

    def __str__(self) -> str:
        """Return the type's name, as a schema accepts it."""
        name = _NAMES[self.kind]
        if self.kind in {Kind.TIME32, Kind.TIME64, Kind.DURATION}:
            return f"{name}[{self.unit}]"
        if self.kind is Kind.TIMESTAMP:
            return f"{name}[{self.unit}{', UTC' if self.is_utc else ''}]"
        if self.kind in {Kind.DECIMAL128, Kind.DECIMAL256}:
            return f"{name}({self.precision}, {self.scale})"
        if self.kind is Kind.FIXED_BINARY:
            return f"{name}({self.size})"
        if self.kind is Kind.LIST:
            return f"{'large_' if self.is_large else ''}list<{self.item.type_text}>"
        if self.kind is Kind.MAP:
            key, value = self.fields
            return f"map<{key.type}, {value.type_text}>"
        if self.kind is Kind.STRUCT:
            return f"struct<{', '.join(f'{f.quoted_name}: {f.type_text}' for f in self.fields)}>"
        return f"large_{name}" if self.is_large else name


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A named column of a schema, or its root, whose name is empty.

    ``source`` is where a document has the value, the steps from the parent's part of it; empty for
    the name alone. ``default`` takes the place of a missing value; None is null, and is no default
    where ``is_nullable`` is False. ``encoding`` names the one form of a value that has several in
    a format (``base64``, ``epoch_ms``, ...), empty for the usual one.
    """

    name: str
    type: DataType
    is_nullable: bool = True
    default: object = dataclasses.field(default=None, hash=False)
    source: tuple[str, ...] = ()
    encoding: str = ""

    @property
    def quoted_name(self) -> str:
        """The name as the text of a struct has it: in backticks, unless it is a plain word."""
        is_plain = _PLAIN_NAME.fullmatch(self.name) is not None
        return self.name if is_plain else "`" + self.name.replace("`", "``") + "`"

    @property
    def type_text(self) -> str:
        """The type's name, with ``not null`` where nulls are not allowed."""
        return str(self.type) if self.is_nullable else f"{self.type} not null"

    def renamed(self, name: str) -> SchemaField:
        """Return the same field under another name."""
        return replace(self, name=name)

    def nodes(self, path: str = "") -> Iterator[tuple[str, SchemaField]]:
        """Yield path and field of this node and of all below it, in preorder.

        The root's path is empty; members are joined by dots, a list's item is ``[]``, a map's key
        and value are ``{key}`` and ``{value}``.
        """
        yield path, self
        for field in self.type.fields:
            if self.type.kind is Kind.LIST:
                inner = f"{path}[]"
            elif self.type.kind is Kind.MAP:
                inner = f"{path}{{{field.name}}}"
            else:
                inner = f"{path}.{field.name}" if path else field.name
            yield from field.nodes(inner)
