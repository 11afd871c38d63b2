"""A decoder of Protobuf, slow and obvious: the row that a message is, or why it is none.

Reads by the columns of ``kfast.schemas.protobuf_columns``. First all fields of a message are
collected, sub-messages merged as Protobuf says; then absent ones get what the columns say. Values
are as in ``built_values``: times are the numbers that are stored; a map is a list of pairs, each
key where it was first.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from kfast.columns.record_errors import ErrorKind
from kfast.schemas.descriptors import ProtoMessage, ProtoType
from kfast.schemas.protobuf_columns import ProtoColumn, ProtoColumns, Role
from kfast.schemas.types import Kind

VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)
WIRE_TYPES = {
    ProtoType.DOUBLE: FIXED64, ProtoType.FIXED64: FIXED64, ProtoType.SFIXED64: FIXED64,
    ProtoType.FLOAT: FIXED32, ProtoType.FIXED32: FIXED32, ProtoType.SFIXED32: FIXED32,
    ProtoType.STRING: BYTES, ProtoType.BYTES: BYTES, ProtoType.MESSAGE: BYTES,
    ProtoType.GROUP: GROUP,
}  # fmt: skip
"""Of types that are no varints."""
FIXED = {
    ProtoType.DOUBLE: "<d", ProtoType.FIXED64: "<Q", ProtoType.SFIXED64: "<q",
    ProtoType.FLOAT: "<f", ProtoType.FIXED32: "<I", ProtoType.SFIXED32: "<i",
}  # fmt: skip
ZEROS = {
    Kind.STRING: "", Kind.BINARY: b"", Kind.BOOL: False, Kind.FLOAT32: 0.0, Kind.FLOAT64: 0.0,
}  # fmt: skip
"""Of values that are no integers."""
SECOND = 1_000_000_000


class BadMessageError(Exception):
    """The bytes are no such message."""

    def __init__(self, code: ErrorKind) -> None:
        super().__init__(code.name)
        self.code = code


def decode(columns: ProtoColumns, data: bytes, max_depth: int = 64) -> dict[str, Any]:
    """Return the row of one value; raises `BadMessageError`."""
    parts: dict[int, Any] = {}
    _collect(columns.children, columns.message, parts, data, max_depth)
    return _row(columns.children, parts)


# --- bytes ----------------------------------------------------------------------------------------


def _varint(data: bytes, at: int, most: int = 10) -> tuple[int, int]:
    value = 0
    for place in range(most):
        if at + place >= len(data):
            raise BadMessageError(ErrorKind.TRUNCATED)
        value |= (data[at + place] & 0x7F) << 7 * place
        if data[at + place] < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + place + 1
    raise BadMessageError(ErrorKind.SYNTAX)


def _small(data: bytes, at: int) -> tuple[int, int]:
    """Read a tag or a size, which have 32 bits."""
    value, at = _varint(data, at, 5)
    if value >> 32:
        raise BadMessageError(ErrorKind.SYNTAX)
    return value, at


def _take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size > len(data) - at:
        raise BadMessageError(ErrorKind.TRUNCATED)
    return data[at : at + size], at + size


Wires = Mapping[int, Collection[int]]
"""Wire types that fields may have, by number."""


def fields(data: bytes, max_depth: int, wires: Wires) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and raw value of each field; of a group None."""
    at = 0
    while at < len(data):
        number, wire, value, at = _one(data, at, max_depth, wires)
        if wire == END_GROUP:
            raise BadMessageError(ErrorKind.SYNTAX)
        yield number, wire, value


def _one(data: bytes, at: int, max_depth: int, wires: Wires) -> tuple[int, int, Any, int]:
    tag, at = _small(data, at)
    number, wire = tag >> 3, tag & 7
    if number == 0 or wire > FIXED32:
        raise BadMessageError(ErrorKind.SYNTAX)
    if wire != END_GROUP and wire not in wires.get(number, [wire]):
        raise BadMessageError(ErrorKind.TYPE)
    value: Any = None
    if wire == VARINT:
        value, at = _varint(data, at)
    elif wire == BYTES:
        size, at = _small(data, at)
        value, at = _take(data, at, size)
    elif wire in {FIXED64, FIXED32}:
        value, at = _take(data, at, 8 if wire == FIXED64 else 4)
    elif wire == GROUP:
        if max_depth == 0:
            raise BadMessageError(ErrorKind.DEPTH)
        while True:
            inner, of_inner, _, at = _one(data, at, max_depth - 1, {})
            if of_inner == END_GROUP:
                if inner != number:
                    raise BadMessageError(ErrorKind.SYNTAX)
                break
    return number, wire, value, at


# --- fields of a message --------------------------------------------------------------------------


def _collect(
    children: Sequence[ProtoColumn],
    message: ProtoMessage | None,
    parts: dict[int, Any],
    data: bytes,
    depth: int,
) -> None:
    """Add the fields of some bytes to those that are known by number."""
    wanted = {child.field.number: child for child in children}
    declared = {f.number: f for f in message.fields} if message is not None else {}
    wires = {number: _wires_of(child) for number, child in wanted.items()}
    for number, wire, raw in fields(data, depth, wires):
        child, field = wanted.get(number), declared.get(number)
        if child is None:
            is_member = field is not None and wire == WIRE_TYPES.get(field.type, VARINT)
        else:
            _add(child, parts, wire, raw, depth)
            field, is_member = child.field, True
        if is_member and field is not None and field.oneof is not None:
            for other in declared.values():
                if other.oneof == field.oneof and other.number != number:
                    parts.pop(other.number, None)


def _wires_of(child: ProtoColumn) -> set[int]:
    """Return the wire types that a field may have: a number that is repeated may be packed."""
    wires = {WIRE_TYPES.get(child.field.type, VARINT)}
    return wires | {BYTES} if child.field.is_repeated else wires


def _add(child: ProtoColumn, parts: dict[int, Any], wire: int, raw: Any, depth: int) -> None:
    number, kind = child.field.number, child.field.type
    if child.role is Role.MAP:
        entry: dict[int, Any] = {}
        _collect(child.children, child.message, entry, raw, depth)
        row = _row(child.children, entry)
        parts.setdefault(number, {})[row["key"]] = row["value"]
        return
    is_packed = wire != WIRE_TYPES.get(kind, VARINT)
    if kind is not ProtoType.MESSAGE:
        values = _unpacked(kind, raw) if is_packed else [_scalar(kind, raw)]
        values = [_enum_value(child, value) for value in values]
    elif child.field.is_repeated:
        values = [_merged(child, None, raw, depth)]
    else:
        values = [_merged(child, parts.get(number), raw, depth)]
    if child.field.is_repeated:
        parts.setdefault(number, []).extend(
            _value(child, value) if kind is ProtoType.MESSAGE else value for value in values
        )
    else:
        parts[number] = values[-1]


def _merged(child: ProtoColumn, known: Any, raw: bytes, depth: int) -> Any:
    """Return what a sub-message is with further bytes of it."""
    if child.role is Role.RAW:
        for _ in fields(raw, depth, {}):
            pass
        return (known or b"") + raw
    parts = known if known is not None else {}
    if child.role is Role.MESSAGE:
        _collect(child.children, child.message, parts, raw, depth)
        return parts
    kinds = {1: ProtoType.INT64, 2: ProtoType.INT32}
    if child.scalar is not None:
        kinds = {1: child.scalar}
    wires = {number: [WIRE_TYPES.get(kind, VARINT)] for number, kind in kinds.items()}
    for number, _, value in fields(raw, depth, wires):
        if number in kinds:
            parts[number] = _scalar(kinds[number], value)
    if child.role is not Role.WRAPPER:
        _time(child, parts)
    return parts


def _unpacked(kind: ProtoType, raw: bytes) -> list[Any]:
    values = []
    at = 0
    while at < len(raw):
        if kind in FIXED:
            part, at = _take(raw, at, struct.calcsize(FIXED[kind]))
            values.append(_scalar(kind, part))
        else:
            number, at = _varint(raw, at)
            values.append(_scalar(kind, number))
    return values


def _scalar(kind: ProtoType, raw: Any) -> Any:
    if kind in FIXED:
        return struct.unpack(FIXED[kind], raw)[0]
    if kind is ProtoType.BYTES:
        return raw
    if kind is ProtoType.STRING:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise BadMessageError(ErrorKind.UTF8) from None
    if kind is ProtoType.BOOL:
        return raw != 0
    if kind in {ProtoType.UINT64, ProtoType.INT64, ProtoType.SINT64}:
        bits = 64
    else:
        bits, raw = 32, raw & 0xFFFFFFFF
    if kind in {ProtoType.UINT32, ProtoType.UINT64}:
        return raw
    if kind in {ProtoType.SINT32, ProtoType.SINT64}:
        return raw >> 1 if raw & 1 == 0 else -(raw >> 1) - 1
    return raw - (1 << bits) if raw >> bits - 1 else raw


def _enum_value(child: ProtoColumn, number: Any) -> Any:
    """Return an enum's value as its column has it."""
    if child.enum is None or child.value.type.kind is not Kind.DICTIONARY:
        return number
    for name, known in child.enum.values:
        if known == number:
            return name
    return None if child.enum.is_closed else str(number)


# --- rows -----------------------------------------------------------------------------------------


def _row(children: Sequence[ProtoColumn], parts: dict[int, Any]) -> dict[str, Any]:
    return {child.field.name: _column(child, parts) for child in children}


def _column(child: ProtoColumn, parts: dict[int, Any]) -> Any:
    number = child.field.number
    if child.role is Role.MAP:
        return list(parts.get(number, {}).items())
    if child.field.is_repeated:
        return parts.get(number, [])
    if number in parts:
        return _value(child, parts[number]) if _is_message(child) else parts[number]
    if child.field.is_required:
        raise BadMessageError(ErrorKind.MISSING)
    if child.default is None and not child.column.is_nullable:  # of a map's entry
        return _row(child.children, {})
    return child.default


def _is_message(child: ProtoColumn) -> bool:
    return child.field.type is ProtoType.MESSAGE


def _value(child: ProtoColumn, parts: Any) -> Any:
    """Return the value of a sub-message that is there."""
    if child.role is Role.RAW:
        return parts
    if child.role is Role.MESSAGE:
        return _row(child.children, parts)
    if child.role is Role.WRAPPER:
        return parts.get(1, ZEROS.get(child.value.type.kind, 0))
    return _time(child, parts)


def _time(child: ProtoColumn, parts: dict[int, int]) -> int:
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    is_good = -SECOND < nanos < SECOND
    if child.role is Role.TIMESTAMP:
        is_good = is_good and nanos >= 0
    elif seconds and nanos:
        is_good = is_good and (seconds < 0) == (nanos < 0)
    total = seconds * SECOND + nanos
    if not is_good or not -(1 << 63) < total < 1 << 63:
        raise BadMessageError(ErrorKind.RANGE)
    return total
