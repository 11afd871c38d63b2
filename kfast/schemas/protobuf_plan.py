"""Plans that read Protobuf: flat int32 tables for ``_native/protobuf_decode``.

A plan has *messages*, each with its *fields*; field 0 is one that is skipped. A message is a part
of the row of the message around it, or has rows of its own: the value, an item of a list, an entry
of a map. Of such a row the *finishes* say what columns get that have no value at its end, those of
its parts included, in preorder.

==============  ====================================================================================
field           what is done with a value of its wire type
==============  ====================================================================================
UNKNOWN         skipped; a group that ends without a begin is an error
MISFIT          an error: the field has another wire type
OTHER_MEMBER    skipped, and the members of its oneof are dropped
INT64 ... RAW   a value for the column, of a repeated field for its items
MESSAGE         a part of this row
ITEM, ENTRY     a row of a list or a map
WRAPPER         a message whose field 1 is the value
PACKED          numbers of a repeated field, read as ``item`` says
==============  ====================================================================================

``tables`` has, by place: for each message the fields by tags of one byte, and all its field
numbers in order, each with the fields by wire type; for each oneof how many members it has, and
their nodes; for each enum its lowest number, the count of indexes that follow, the count of pairs
of number and index that follow, whether it is closed, and these. Place 0 is none.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, unique
from functools import cached_property
from typing import Final

from kfast.schemas.descriptors import ProtoEnum, ProtoField, ProtoMessage, ProtoType
from kfast.schemas.layout import BYTES, DICTIONARY, constant_bytes, layout, node_count, storage_of
from kfast.schemas.protobuf_columns import ProtoColumn, ProtoColumns, Role
from kfast.schemas.types import Kind, SchemaField

FIELD_ITEMS: Final = 7
MESSAGE_ITEMS: Final = 8
FINISH_ITEMS: Final = 3
_WIRE_TYPES: Final = 6
_VARINT, _FIXED64, _BYTES, _GROUP, _END_GROUP, _FIXED32 = range(_WIRE_TYPES)
_SMALL_TAGS: Final = 128
_FIRST_LONG: Final = 16
"""The first field number whose tags have two bytes."""
_UNKNOWN: Final = 0
_MOST_DENSE: Final = 1 << 12
"""Indexes of an enum that are kept by number, besides four per name."""


@unique
class FieldCode(IntEnum):
    """What is done with a field; the numbers are those of ``protobuf_fields.pxd``."""

    UNKNOWN = 0
    MISFIT = 1
    OTHER_MEMBER = 2
    INT64 = 3
    INT32 = 4
    SINT64 = 5
    SINT32 = 6
    BOOL = 7
    ENUM = 8
    FIXED64 = 9
    FIXED32 = 10
    STRING = 11
    BYTES = 12
    MESSAGE = 13
    ITEM = 14
    ENTRY = 15
    WRAPPER = 16
    TIMESTAMP = 17
    DURATION = 18
    RAW = 19
    PACKED = 20


@unique
class MessageKind(IntEnum):
    """Whose row a message is; the numbers are those of ``protobuf_fields.pxd``."""

    NESTED = 0
    ROW = 1
    WRAPPER = 2


@unique
class FinishCode(IntEnum):
    """What a column without a value gets; the numbers are those of ``protobuf_fields.pxd``."""

    NULL = 0
    ZERO = 1
    CONSTANT = 2
    STRUCT = 3
    LIST = 4
    MAP = 5
    MISSING = 6


_SCALARS: Final = {
    ProtoType.DOUBLE: (FieldCode.FIXED64, _FIXED64),
    ProtoType.FLOAT: (FieldCode.FIXED32, _FIXED32),
    ProtoType.INT64: (FieldCode.INT64, _VARINT),
    ProtoType.UINT64: (FieldCode.INT64, _VARINT),
    ProtoType.INT32: (FieldCode.INT32, _VARINT),
    ProtoType.UINT32: (FieldCode.INT32, _VARINT),
    ProtoType.FIXED64: (FieldCode.FIXED64, _FIXED64),
    ProtoType.FIXED32: (FieldCode.FIXED32, _FIXED32),
    ProtoType.SFIXED64: (FieldCode.FIXED64, _FIXED64),
    ProtoType.SFIXED32: (FieldCode.FIXED32, _FIXED32),
    ProtoType.SINT64: (FieldCode.SINT64, _VARINT),
    ProtoType.SINT32: (FieldCode.SINT32, _VARINT),
    ProtoType.BOOL: (FieldCode.BOOL, _VARINT),
    ProtoType.ENUM: (FieldCode.ENUM, _VARINT),
    ProtoType.STRING: (FieldCode.STRING, _BYTES),
    ProtoType.BYTES: (FieldCode.BYTES, _BYTES),
    ProtoType.MESSAGE: (FieldCode.MESSAGE, _BYTES),
    ProtoType.GROUP: (FieldCode.MESSAGE, _GROUP),
}
_MESSAGES: Final = {
    Role.TIMESTAMP: FieldCode.TIMESTAMP,
    Role.DURATION: FieldCode.DURATION,
    Role.RAW: FieldCode.RAW,
}

_Member = tuple[ProtoColumn, int]
"""A wanted field, and the node of its column."""


@dataclass(frozen=True, eq=False, repr=False)
class ProtobufPlan:
    """How values of a message become columns."""

    column: SchemaField
    fields: array[int]
    messages: array[int]
    finishes: array[int]
    tables: array[int]
    constants: bytes
    names: dict[int, tuple[str, ...]]
    """Names of each enum by node: the categories of its column, in this order."""
    tags: tuple[int, ...] = field(default=())
    """Tag of each field: number and wire type, as they are on the wire."""

    @cached_property
    def layout(self) -> array[int]:
        """Layout of the builders."""
        return layout(self.column)

    @property
    def parts(self) -> tuple[array[int], array[int], array[int], array[int], bytes]:
        """What the decoder takes."""
        return self.fields, self.messages, self.finishes, self.tables, self.constants

    def __len__(self) -> int:
        return len(self.fields) // FIELD_ITEMS

    def __repr__(self) -> str:
        """Return one line per field and wire type, and one per column that may lack a value."""
        paths = [path for path, _ in self.column.nodes()]
        lines = []
        for at in range(1, len(self)):
            code, node, is_repeated, oneof, _message, _table, item = self._numbers(
                self.fields, at, FIELD_ITEMS
            )
            tag, name = self.tags[at], FieldCode(code).name
            if code == FieldCode.PACKED:
                name += f" {FieldCode(item).name}"
            more = " repeated" * is_repeated + " oneof" * bool(oneof)
            lines.append(f"{tag >> 3:5}:{tag & 7} {name:<14} {paths[node] or 'the root'}{more}")
        for at in range(len(self.finishes) // FINISH_ITEMS):
            code, node, _constant = self._numbers(self.finishes, at, FINISH_ITEMS)
            lines.append(f"absent: {FinishCode(code).name:<13} {paths[node]}")
        return "\n".join(lines)

    @staticmethod
    def _numbers(numbers: array[int], at: int, size: int) -> array[int]:
        return numbers[at * size : (at + 1) * size]


def compile_plan(columns: ProtoColumns) -> ProtobufPlan:
    """Return how values of a message become columns."""
    compiler = _Compiler()
    compiler.message(MessageKind.ROW, 0, list(_members(columns.children, 0)), columns.message)
    messages = array("i", (number for message in compiler.messages for number in message))
    return ProtobufPlan(
        columns.root,
        compiler.fields,
        messages,
        compiler.finishes,
        compiler.tables,
        bytes(compiler.constants),
        compiler.names,
        tuple(compiler.tags),
    )


def _members(children: Sequence[ProtoColumn], node: int) -> Iterator[_Member]:
    """Yield the children of a struct or map with their nodes."""
    node += 1
    for child in children:
        yield child, node
        node += node_count(child.column)


class _Compiler:
    def __init__(self) -> None:
        self.fields = array("i", [0] * FIELD_ITEMS)
        self.messages: list[list[int]] = []
        self.finishes = array("i")
        self.tables = array("i", [0])
        self.constants = bytearray()
        self.names: dict[int, tuple[str, ...]] = {}
        self.tags = [0]
        self._enums: dict[str, int] = {}

    def message(
        self, kind: MessageKind, node: int, members: list[_Member], proto: ProtoMessage | None
    ) -> int:
        """Add a message with all in it, and return its number."""
        number = len(self.messages)
        self.messages.append([])
        begin = len(self.finishes) // FINISH_ITEMS
        if kind is MessageKind.ROW:
            self._add_finishes(members)
        end = len(self.finishes) // FINISH_ITEMS
        by_number: dict[int, list[int]] = {}
        oneofs = self._oneofs(members)
        for column, below in members:
            oneof = oneofs.get(column.field.oneof or "", 0)
            by_number[column.field.number] = self._fields_of(column, below, oneof)
        for other in () if proto is None else proto.fields:
            oneof = oneofs.get(other.oneof or "", 0)
            if oneof and other.number not in by_number:
                by_number[other.number] = self._other_member(other, node, oneof)
        self._set_message(number, kind, node, by_number, begin, end)
        return number

    def _wrapper(self, scalar: ProtoType, node: int) -> int:
        number = len(self.messages)
        self.messages.append([])
        code, wire = _SCALARS[scalar]
        fields = self._by_wire({wire: self._field(code, node, 1 << 3 | wire)}, node, 1)
        self._set_message(number, MessageKind.WRAPPER, node, {1: fields}, 0, 0)
        return number

    def _set_message(
        self,
        number: int,
        kind: MessageKind,
        node: int,
        by_number: dict[int, list[int]],
        begin: int,
        end: int,
    ) -> None:
        tags = len(self.tables)
        small = [_UNKNOWN] * _SMALL_TAGS
        for at, fields in by_number.items():
            if at < _FIRST_LONG:
                small[at << 3 : at << 3 | _WIRE_TYPES] = fields
        self.tables.extend(small)
        numbers = len(self.tables)
        for at in sorted(by_number):
            self.tables.extend((at, *by_number[at]))
        shorter = sum(at < _FIRST_LONG for at in by_number)
        self.messages[number] = [
            kind, node, tags, numbers, len(by_number), shorter, begin, end,
        ]  # fmt: skip

    # --- fields -----------------------------------------------------------------------------------

    def _field(
        self,
        code: FieldCode,
        node: int,
        tag: int,
        *,
        is_repeated: bool = False,
        oneof: int = 0,
        message: int = 0,
        table: int = 0,
        item: int = 0,
    ) -> int:
        self.fields.extend((code, node, is_repeated, oneof, message, table, item))
        self.tags.append(tag)
        return len(self.tags) - 1

    def _by_wire(self, fields: dict[int, int], node: int, number: int) -> list[int]:
        """Return the field of each wire type: an error for those that do not fit."""
        misfit = self._field(FieldCode.MISFIT, node, number << 3)
        by_wire = [fields.get(wire, misfit) for wire in range(_WIRE_TYPES)]
        by_wire[_END_GROUP] = _UNKNOWN
        return by_wire

    def _fields_of(self, column: ProtoColumn, node: int, oneof: int) -> list[int]:
        number, role = column.field.number, column.role
        tag = number << 3 | _BYTES
        if role is Role.MAP:
            entry = self.message(
                MessageKind.ROW, node, list(_members(column.children, node)), column.message
            )
            field = self._field(FieldCode.ENTRY, node, tag, message=entry)
            return self._by_wire({_BYTES: field}, node, number)
        is_repeated = column.field.is_repeated
        below = node + is_repeated
        if role is Role.MESSAGE:
            kind = MessageKind.ROW if is_repeated else MessageKind.NESTED
            inner = self.message(
                kind, below, list(_members(column.children, below)), column.message
            )
            code = FieldCode.ITEM if is_repeated else FieldCode.MESSAGE
        elif role is Role.WRAPPER:
            assert column.scalar is not None
            inner, code = self._wrapper(column.scalar, below), FieldCode.WRAPPER
        elif role in _MESSAGES:
            inner, code = 0, _MESSAGES[role]
        else:
            return self._numbers_of(column, node, below, oneof)
        field = self._field(code, below, tag, is_repeated=is_repeated, oneof=oneof, message=inner)
        return self._by_wire({_BYTES: field}, node, number)

    def _numbers_of(self, column: ProtoColumn, node: int, below: int, oneof: int) -> list[int]:
        """Return the fields of a scalar or an enum: one by one, and packed."""
        is_repeated, number = column.field.is_repeated, column.field.number
        table = 0
        if column.role is Role.ENUM:
            assert column.enum is not None
            code, wire = FieldCode.INT32, _VARINT
            if column.value.type.kind is Kind.DICTIONARY:
                code, table = FieldCode.ENUM, self._enum(column.enum)
                self.names[below] = tuple(name for name, _ in column.enum.values)
        else:
            assert column.scalar is not None
            code, wire = _SCALARS[column.scalar]
        by_wire = {
            wire: self._field(
                code,
                below,
                number << 3 | wire,
                is_repeated=is_repeated,
                oneof=oneof,
                table=table,
            )
        }
        if is_repeated and wire != _BYTES:
            by_wire[_BYTES] = self._field(
                FieldCode.PACKED,
                below,
                number << 3 | _BYTES,
                is_repeated=True,
                table=table,
                item=code,
            )
        return self._by_wire(by_wire, node, number)

    def _other_member(self, other: ProtoField, node: int, oneof: int) -> list[int]:
        _code, wire = _SCALARS[other.type]
        by_wire = [_UNKNOWN] * _WIRE_TYPES
        by_wire[wire] = self._field(
            FieldCode.OTHER_MEMBER, node, other.number << 3 | wire, oneof=oneof
        )
        return by_wire

    def _oneofs(self, members: list[_Member]) -> dict[str, int]:
        """Return the place in the tables of each oneof that has wanted members."""
        nodes: dict[str, list[int]] = {}
        for column, node in members:
            if column.field.oneof is not None:
                nodes.setdefault(column.field.oneof, []).append(node)
        places: dict[str, int] = {}
        for name, listed in nodes.items():
            places[name] = len(self.tables)
            self.tables.extend((len(listed), *listed))
        return places

    def _enum(self, enum: ProtoEnum) -> int:
        """Return the place in the tables of an enum."""
        place = self._enums.get(enum.full_name)
        if place is not None:
            return place
        indexes: dict[int, int] = {}
        for index, (_name, number) in enumerate(enum.values):
            indexes.setdefault(number, index)  # of several names for a number the first
        low, count = min(indexes), max(indexes) - min(indexes) + 1
        place = self._enums[enum.full_name] = len(self.tables)
        if count <= 4 * len(indexes) + _MOST_DENSE:
            self.tables.extend((low, count, 0, enum.is_closed))
            self.tables.extend(indexes.get(low + at, -1) for at in range(count))
        else:
            self.tables.extend((0, 0, len(indexes), enum.is_closed))
            self.tables.extend(n for number in sorted(indexes) for n in (number, indexes[number]))
        return place

    # --- ends of rows -----------------------------------------------------------------------------

    def _add_finishes(self, members: list[_Member]) -> None:
        for column, node in members:
            code, constant = self._finish(column)
            self.finishes.extend((code, node, constant))
            if column.role is Role.MESSAGE and not column.field.is_repeated:
                self._add_finishes(list(_members(column.children, node)))

    def _finish(self, column: ProtoColumn) -> tuple[FinishCode, int]:
        """Return the code and the argument that fill the column of an absent field."""
        if column.role is Role.MAP:
            return FinishCode.MAP, 0
        if column.field.is_repeated:
            return FinishCode.LIST, 0
        if column.field.is_required:
            return FinishCode.MISSING, 0
        if column.default is not None:
            return self._default(column)
        if column.column.is_nullable:
            return FinishCode.NULL, 0
        # What a map has as its value.
        return (FinishCode.STRUCT if column.role is Role.MESSAGE else FinishCode.ZERO), 0

    def _default(self, column: ProtoColumn) -> tuple[FinishCode, int]:
        storage = storage_of(column.column.type)
        default = column.default
        if storage == DICTIONARY:
            assert column.enum is not None
            number = dict(column.enum.values)[str(default)]
            default = next(name for name, other in column.enum.values if other == number)
            is_zero = default == column.enum.values[0][0]
        value = constant_bytes(column.column, default)
        if storage != DICTIONARY:
            width = 4 if storage == BYTES else column.column.type.width
            is_zero = value == b"\1" + bytes(width)
        if is_zero:
            return FinishCode.ZERO, 0
        self.constants += value
        return FinishCode.CONSTANT, len(self.constants) - len(value)
