"""Columns of a Protobuf message: its tree of fields as columns, and what an absent field is.

=====================================================  ==========================================
field                                                  column
=====================================================  ==========================================
scalar                                                 number, bool, string, binary
enum                                                   dictionary of names, or int32
message                                                struct
repeated; map                                          list; map; never null, nor are their items
google.protobuf.Timestamp; Duration                    timestamp[ns, UTC]; duration[ns]
google.protobuf.Int32Value and the other wrappers      the scalar, nullable
Struct, Value, ListValue, Any; a message in itself;    raw: the bytes of the message
one without fields
=====================================================  ==========================================

A field that a value lacks is null if it has presence, and else its default; so is a declared
default, unless ``absent="null"`` makes both null. A ``required`` field is never null, and a value
without it has an error. By name a number that a closed enum does not have is null, so that such a
column, and a list or map of it, may have nulls where others have none.

``columns=`` reaches into messages that are raw otherwise: ``"parent.id"`` where ``parent`` is the
same message again, ``"time.seconds"``. Groups are no columns, and refused with their path unless
they are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, unique
from typing import Final, Literal

from kfast.errors import ConfigurationError
from kfast.schemas.descriptors import (
    ProtoEnum,
    ProtoField,
    ProtoMessage,
    ProtoPool,
    ProtoType,
)
from kfast.schemas.selection import ITEM, VALUE, Selection
from kfast.schemas.types import DataType, Kind, SchemaField

MAX_COLUMNS: Final = 10_000
"""Nodes of a tree of columns: a schema of a few lines can name more of them than fit in memory."""
MAX_LEVELS: Final = 100
"""Messages in messages, whatever ``max_depth`` is."""

_SCALARS: Final = {
    ProtoType.DOUBLE: DataType(Kind.FLOAT64),
    ProtoType.FLOAT: DataType(Kind.FLOAT32),
    ProtoType.INT64: DataType(Kind.INT64),
    ProtoType.UINT64: DataType(Kind.UINT64),
    ProtoType.INT32: DataType(Kind.INT32),
    ProtoType.FIXED64: DataType(Kind.UINT64),
    ProtoType.FIXED32: DataType(Kind.UINT32),
    ProtoType.BOOL: DataType(Kind.BOOL),
    ProtoType.STRING: DataType(Kind.STRING),
    ProtoType.BYTES: DataType(Kind.BINARY),
    ProtoType.UINT32: DataType(Kind.UINT32),
    ProtoType.SFIXED32: DataType(Kind.INT32),
    ProtoType.SFIXED64: DataType(Kind.INT64),
    ProtoType.SINT32: DataType(Kind.INT32),
    ProtoType.SINT64: DataType(Kind.INT64),
}
_ZEROS: Final = {
    ProtoType.DOUBLE: 0.0, ProtoType.FLOAT: 0.0, ProtoType.BOOL: False, ProtoType.STRING: "",
    ProtoType.BYTES: b"",
}  # fmt: skip
"""Defaults of types; that of integers is 0, that of an enum its first value."""

_RAW: Final = DataType(Kind.RAW)
_ALL: Final = Selection()
_TIMES: Final = ((1, ProtoType.INT64), (2, ProtoType.INT32))
_LEAVE_OUT: Final = "name the columns to read without it: columns=[...]"


@unique
class Role(Enum):
    """What a decoder does with one value of a field."""

    SCALAR = "scalar"
    ENUM = "enum"
    MESSAGE = "message"
    MAP = "map"
    RAW = "raw"
    """A message whose bytes are the value."""
    WRAPPER = "wrapper"
    """A message whose field 1 is the value: the zero of its type if it is absent."""
    TIMESTAMP = "timestamp"
    """A message with seconds (int64, 1) and nanoseconds (int32, 2)."""
    DURATION = "duration"
    """As `TIMESTAMP`."""


_WRAPPERS: Final = {
    f"google.protobuf.{name}Value": kind
    for name, kind in {
        "Double": ProtoType.DOUBLE,
        "Float": ProtoType.FLOAT,
        "Int64": ProtoType.INT64,
        "UInt64": ProtoType.UINT64,
        "Int32": ProtoType.INT32,
        "UInt32": ProtoType.UINT32,
        "Bool": ProtoType.BOOL,
        "String": ProtoType.STRING,
        "Bytes": ProtoType.BYTES,
    }.items()
}
_MOMENTS: Final = {
    "google.protobuf.Timestamp": (Role.TIMESTAMP, DataType(Kind.TIMESTAMP, unit="ns", is_utc=True)),
    "google.protobuf.Duration": (Role.DURATION, DataType(Kind.DURATION, unit="ns")),
}
_SCHEMALESS: Final = frozenset(
    f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue", "Any")
)


@dataclass(frozen=True, slots=True, eq=False)
class ProtoColumn:
    """A field that is wanted, and its column.

    ``column`` is the list of a repeated field; ``role`` is then that of its items. ``default`` is
    what the column has for a value that lacks the field, as ``constant_bytes`` takes it; None is
    null, or an error if the field is required. A list and a map are empty, and the value of a map's
    entry that is a message is one without fields. ``message`` has all fields of a ``MESSAGE``, also
    those that are not wanted, which matter to a oneof.
    """

    field: ProtoField
    column: SchemaField
    role: Role
    default: object = None
    scalar: ProtoType | None = None
    """How a SCALAR or WRAPPER is encoded."""
    enum: ProtoEnum | None = None
    message: ProtoMessage | None = None
    children: tuple[ProtoColumn, ...] = ()
    """Of a MESSAGE the wanted fields, in the order of the struct; of a MAP key and value."""

    @property
    def value(self) -> SchemaField:
        """The column of one value: the item of a repeated field."""
        is_list = self.field.is_repeated and self.role is not Role.MAP
        return self.column.type.item if is_list else self.column


@dataclass(frozen=True, slots=True, eq=False)
class ProtoColumns:
    """The columns of a message; ``root`` is nullable: a record may have no value at all."""

    root: SchemaField
    message: ProtoMessage
    children: tuple[ProtoColumn, ...]


def message_columns(
    pool: ProtoPool,
    full_name: str,
    *,
    columns: Selection = _ALL,
    enums: Literal["name", "number"] = "name",
    absent: Literal["default", "null"] = "default",
    max_depth: int = 64,
) -> ProtoColumns:
    """Return the tree of columns of a message, which is one whatever its name is.

    Raises
    ------
    ConfigurationError
        There is no such message, a path of ``columns`` leads nowhere, a part cannot become a
        column, or messages are nested more than ``max_depth`` levels deep.
    """
    message = pool.message(full_name)
    builder = _Columns(pool, enums == "name", absent == "default", max_depth)
    children = builder.members(message, columns, "", (message.full_name,))
    if not children:
        raise ConfigurationError(f"message {message.full_name} has no fields", path="")
    return ProtoColumns(SchemaField("", _struct(children)), message, children)


class _Columns:
    def __init__(self, pool: ProtoPool, by_name: bool, has_defaults: bool, max_depth: int) -> None:
        self._pool = pool
        self._by_name = by_name
        self._has_defaults = has_defaults
        self._max_depth = max_depth
        self._count = 1
        self._numbers: dict[str, dict[str, int]] = {}

    def members(
        self, message: ProtoMessage, selection: Selection, path: str, inside: tuple[str, ...]
    ) -> tuple[ProtoColumn, ...]:
        """Return the wanted fields; ``inside`` are the messages on the way here, this one too."""
        if len(inside) > min(self._max_depth, MAX_LEVELS):
            raise ConfigurationError(
                f"{path} is nested more than {min(self._max_depth, MAX_LEVELS)} levels deep",
                hint=_LEAVE_OUT,
                path=path,
            )
        selection.check([f.name for f in message.fields], f"message {message.full_name}")
        selections = ((f, selection.wants(f.name)) for f in message.fields)
        return tuple(
            self._member(f, child, f"{path}.{f.name}" if path else f.name, inside)
            for f, child in selections
            if child is not None
        )

    def _member(
        self, proto: ProtoField, selection: Selection, path: str, inside: tuple[str, ...]
    ) -> ProtoColumn:
        if proto.type is ProtoType.GROUP:
            raise ConfigurationError(
                f"{path} is no column: it is a group", hint=_LEAVE_OUT, path=path
            )
        entry = self._pool.messages.get(proto.type_name)
        if entry is not None and entry.is_map_entry:
            return self._map(proto, entry, selection, path, inside)
        if not proto.is_repeated:
            return self._value(proto, selection, path, inside)
        selection.check([ITEM], f"a list of {_type_name(proto)}")
        child = selection.wants(ITEM)
        assert child is not None
        value = self._value(proto, child, path + ITEM, inside)
        self._grow()
        item = value.column.renamed("item")
        listed = SchemaField(proto.name, DataType(Kind.LIST, fields=(item,)), is_nullable=False)
        return replace(value, column=listed, default=None)

    def _map(
        self,
        proto: ProtoField,
        entry: ProtoMessage,
        selection: Selection,
        path: str,
        inside: tuple[str, ...],
    ) -> ProtoColumn:
        selection.check([VALUE], "a map")
        child = selection.wants(VALUE)
        assert child is not None
        self._grow()
        key, value = entry.fields
        pair = (
            self._value(key, _ALL, f"{path}{{key}}", inside, is_there=True),
            self._value(value, child, path + VALUE, inside, is_there=True),
        )
        data_type = DataType(Kind.MAP, fields=tuple(member.column for member in pair))
        return ProtoColumn(
            proto,
            SchemaField(proto.name, data_type, is_nullable=False),
            Role.MAP,
            message=entry,
            children=pair,
        )

    def _value(
        self,
        proto: ProtoField,
        selection: Selection,
        path: str,
        inside: tuple[str, ...],
        *,
        is_there: bool = False,
    ) -> ProtoColumn:
        """Return the column of one value; ``is_there``: it has a default even if absent."""
        self._grow()
        if proto.type in {ProtoType.MESSAGE, ProtoType.GROUP}:
            return self._message(proto, selection, path, inside, is_there)
        selection.check([], _type_name(proto))
        default = self._default(proto, is_there)
        is_nullable = default is None and not proto.is_required and not proto.is_repeated
        if proto.type is ProtoType.ENUM:
            enum = self._pool.enums[proto.type_name]
            kind = Kind.DICTIONARY if self._by_name else Kind.INT32
            # A number that a closed enum does not have has no name.
            is_nullable = is_nullable or (self._by_name and enum.is_closed)
            column = SchemaField(proto.name, DataType(kind), is_nullable)
            return ProtoColumn(proto, column, Role.ENUM, default, enum=enum)
        column = SchemaField(proto.name, _SCALARS[proto.type], is_nullable)
        return ProtoColumn(proto, column, Role.SCALAR, default, scalar=proto.type)

    def _message(
        self,
        proto: ProtoField,
        selection: Selection,
        path: str,
        inside: tuple[str, ...],
        is_there: bool,
    ) -> ProtoColumn:
        message = self._pool.messages[proto.type_name]
        name = message.full_name
        is_nullable = not (proto.is_repeated or proto.is_required or is_there)
        if selection.is_all:
            shape = tuple((f.number, f.type) for f in message.fields)
            if name in _WRAPPERS and shape == ((1, _WRAPPERS[name]),):
                scalar = _WRAPPERS[name]
                column = SchemaField(proto.name, _SCALARS[scalar], is_nullable)
                default = _ZEROS.get(scalar, 0) if is_there else None
                return ProtoColumn(proto, column, Role.WRAPPER, default, scalar)
            if name in _MOMENTS and shape == _TIMES:
                role, moment = _MOMENTS[name]
                column = SchemaField(proto.name, moment, is_nullable)
                return ProtoColumn(proto, column, role, 0 if is_there else None)
            if name in _SCHEMALESS or name in inside or not message.fields:
                column = SchemaField(proto.name, _RAW, is_nullable)
                return ProtoColumn(proto, column, Role.RAW, b"" if is_there else None)
        children = self.members(message, selection, path, (*inside, name))
        column = SchemaField(proto.name, _struct(children), is_nullable)
        return ProtoColumn(proto, column, Role.MESSAGE, message=message, children=children)

    def _default(self, proto: ProtoField, is_there: bool) -> object:
        """Return the value of the column where the field is absent; None is null."""
        if proto.is_repeated or proto.is_required:
            return None
        if proto.default is not None and not self._has_defaults:
            return None
        if (
            proto.default is None
            and not is_there
            and (proto.has_presence or not self._has_defaults)
        ):
            return None
        if proto.type is not ProtoType.ENUM:
            return _ZEROS.get(proto.type, 0) if proto.default is None else proto.default
        numbers = self._numbers.get(proto.type_name)
        if numbers is None:
            numbers = self._numbers[proto.type_name] = dict(
                self._pool.enums[proto.type_name].values
            )
        name = next(iter(numbers)) if proto.default is None else str(proto.default)
        return name if self._by_name else numbers[name]

    def _grow(self) -> None:
        self._count += 1
        if self._count > MAX_COLUMNS:
            raise ConfigurationError(
                f"the Protobuf message has more than {MAX_COLUMNS} columns", hint=_LEAVE_OUT
            )


def _struct(children: tuple[ProtoColumn, ...]) -> DataType:
    return DataType(Kind.STRUCT, fields=tuple(child.column for child in children))


def _type_name(proto: ProtoField) -> str:
    return proto.type_name or proto.type.name.lower()
