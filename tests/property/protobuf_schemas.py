"""Random Protobuf schemas, random bytes of their messages, and what the runtime reads of them.

Bytes are made field by field: in any order, several times, split, packed and not, with varints that
are longer than they need be and with unknown fields and groups between them. The runtime (upb) says
what they mean; `row_of` puts that into the form of kfast's columns.
"""

from __future__ import annotations

import struct
from functools import cache
from random import Random
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

Field = descriptor_pb2.FieldDescriptorProto
KNOWN_FILES = (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2)
WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
SCALARS = tuple(n for n in range(1, 19) if n not in {10, 11, 14})
KEYS = tuple(n for n in SCALARS if n not in {1, 2, 12})
VARINTS = {3, 4, 5, 8, 13, 14, 17, 18}
FIXED64, FIXED32 = {1: "<d", 6: "<Q", 16: "<q"}, {2: "<f", 7: "<I", 15: "<i"}
NANOS = 10**9
NUMBERS = (0, 1, 2, 5, 127, 128, 300, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32)
LARGE = (1 << 35, (1 << 62) + 3, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 5)
FLOATS = (0.0, -0.0, 1.5, -2.25, float("inf"), float("nan"), 1e300, 5e-324)
TEXTS = ("", "a", "sku-1", "é" * 3, "x" * 20, "\0", "𝄞 and more than sixteen bytes")


def varint(number: int, padding: int = 0) -> bytes:
    """Return a varint, with bytes of zeros behind it that change nothing."""
    made = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        if not number and not padding:
            made.append(low)
            return bytes(made)
        made.append(low | 0x80)
        padding -= not number


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def text_field(number: int, data: bytes) -> bytes:
    return tag(number, 2) + sized(data)


class Schemas:
    """One file with messages, the last of which has the others as parts.

    ``is_kept``: without what the runtime drops where a number has become an unknown one, entries of
    maps and closed enums.
    """

    def __init__(self, rng: Random, *, has_raw: bool = False, is_kept: bool = False) -> None:
        self._rng = rng
        self._has_raw, self._has_maps = has_raw, not is_kept
        self.file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="p")
        self.is_proto3 = is_kept or rng.random() < 0.6
        if self.is_proto3:
            self.file.syntax = "proto3"
        for each in KNOWN_FILES:
            self.file.dependency.append(each.DESCRIPTOR.name)
        enum = self.file.enum_type.add(name="E")
        enum.options.allow_alias = True
        for name, number in (("ZERO", 0), ("ONE", 1), ("UNO", 1), ("FAR", 1 << 30), ("NEG", -7)):
            enum.value.add(name=name, number=number)
        for at in range(rng.randint(1, 3)):
            self._message(f"M{at}", at)
        pool = descriptor_pool.DescriptorPool()
        for each in KNOWN_FILES:
            pool.AddSerializedFile(each.DESCRIPTOR.serialized_pb)
        pool.Add(self.file)
        self.name = f"p.M{at}"
        self.descriptor = pool.FindMessageTypeByName(self.name)
        self.type: Any = message_factory.GetMessageClass(self.descriptor)

    @property
    def descriptor_set(self) -> bytes:
        files = [descriptor_pb2.FileDescriptorProto() for _ in KNOWN_FILES]
        for made, each in zip(files, KNOWN_FILES, strict=True):
            each.DESCRIPTOR.CopyToProto(made)
        made_set: Any = descriptor_pb2.FileDescriptorSet(file=[*files, self.file])
        raw: bytes = made_set.SerializeToString()
        return raw

    def _message(self, name: str, others: int) -> None:
        rng = self._rng
        message = self.file.message_type.add(name=name)
        numbers = rng.sample([*range(1, 20), 100, 2047, 2048, 70_000, (1 << 29) - 1], 8)
        oneof = message.oneof_decl.add(name="choice") if rng.random() < 0.5 else None
        optional = []
        for at in range(rng.randint(1, 7)):
            field = message.field.add(name=f"f{at}", number=numbers[at], label=Field.LABEL_OPTIONAL)
            kind = rng.random()
            if kind < 0.12 and self._has_maps:
                self._map(message, field, others)
                continue
            self._type(field, others)
            if kind < 0.4:
                field.label = Field.LABEL_REPEATED
                if field.type in VARINTS and rng.random() < 0.5:
                    field.options.packed = rng.random() < 0.5
            elif oneof is not None and kind < 0.7:
                field.oneof_index = 0
            elif self.is_proto3 and field.type != Field.TYPE_MESSAGE and kind < 0.8:
                field.proto3_optional = True
                optional.append(field)
            elif not self.is_proto3 and kind < 0.9:
                self._default(field)
        if oneof is not None and not any(f.HasField("oneof_index") for f in message.field):
            del message.oneof_decl[:]
        for field in optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _type(self, field: Any, others: int) -> None:
        rng = self._rng
        kind = rng.random()
        if others and kind < 0.3:
            field.type, field.type_name = Field.TYPE_MESSAGE, f".p.M{rng.randrange(others)}"
        elif kind < 0.42:
            names = [f"{name}Value" for name in WRAPPED] + ["Timestamp", "Duration"]
            names += ["Struct"] if self._has_raw else []
            field.type, field.type_name = (
                Field.TYPE_MESSAGE,
                f".google.protobuf.{rng.choice(names)}",
            )
        elif kind < 0.52:
            field.type, field.type_name = Field.TYPE_ENUM, ".p.E"
        else:
            field.type = rng.choice(SCALARS)

    def _default(self, field: Any) -> None:
        if field.type == Field.TYPE_ENUM:
            field.default_value = "ONE"
        elif field.type in {1, 2}:
            field.default_value = self._rng.choice(["1.5", "-0.0", "inf"])
        elif field.type == Field.TYPE_BOOL:
            field.default_value = "true"
        elif field.type != Field.TYPE_MESSAGE:
            field.default_value = "7"

    def _map(self, message: Any, field: Any, others: int) -> None:
        entry = message.nested_type.add(name=f"F{field.name[1:]}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=self._rng.choice(KEYS))
        self._type(entry.field.add(name="value", number=2, label=1), others)
        field.label, field.type = Field.LABEL_REPEATED, Field.TYPE_MESSAGE
        field.type_name = f".p.{message.name}.{entry.name}"


# --- bytes ----------------------------------------------------------------------------------------


def bytes_of(rng: Random, descriptor: Any, *, depth: int = 0) -> bytes:
    """Return a message whose fields come as they like."""
    parts = []
    fields = list(descriptor.fields)
    # The runtime drops an entry of a map that has an unknown field; others skip the field.
    is_entry = descriptor.GetOptions().map_entry
    for _ in range(rng.randint(0, 2 * len(fields)) if depth < 4 else 0):
        if rng.random() < 0.1 and not is_entry:
            parts.append(unknown(rng, descriptor))
            continue
        field = rng.choice(fields)
        wire, value = value_bytes(rng, field, depth)
        is_packed = field.is_repeated and wire != 2 and rng.random() < 0.5
        if is_packed:
            values = [value_bytes(rng, field, depth)[1] for _ in range(rng.randint(0, 5))]
            wire, value = 2, sized(b"".join(values))
        parts.append(tag(field.number, wire) + value)
    if rng.random() < 0.3:  # in order, as producers write
        parts.sort(key=first_number)
    return b"".join(parts)


def first_number(part: bytes) -> int:
    number = shift = 0
    for byte in part:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return number >> 3


def unknown(rng: Random, descriptor: Any, depth: int = 0) -> bytes:
    """Return a field that a message does not have, or a group with some."""
    known = {field.number for field in descriptor.fields}
    number = rng.choice([n for n in (7, 21, 99, 5000, (1 << 29) - 2) if n not in known])
    wire = rng.choice([0, 1, 2, 5] if depth > 3 else [0, 1, 2, 3, 5])
    value = {
        0: any_varint(rng, rng.choice(NUMBERS)),
        1: rng.randbytes(8),
        2: sized(rng.randbytes(rng.randint(0, 20))),
        3: b"",
        5: rng.randbytes(4),
    }[wire]
    if wire == 3:
        value = b"".join(unknown(rng, descriptor, depth + 1) for _ in range(rng.randint(0, 2)))
        value += tag(number, 4)
    return tag(number, wire) + value


def any_varint(rng: Random, number: int) -> bytes:
    if rng.random() < 0.9:
        return varint(number)
    return varint(number, rng.randint(0, 10 - len(varint(number))))


def value_bytes(rng: Random, field: Any, depth: int) -> tuple[int, bytes]:
    """Return wire type and bytes of one value."""
    kind = field.type
    if kind == Field.TYPE_MESSAGE:
        return 2, sized(message_bytes(rng, field.message_type, depth + 1))
    if kind in FIXED64 or kind in FIXED32:
        form = FIXED64.get(kind) or FIXED32[kind]
        size = struct.calcsize(form)
        if form in {"<d", "<f"}:
            number = rng.choice(FLOATS)
            if form == "<f" and abs(number) == 1e300:
                number = 3.25
            return 1 if size == 8 else 5, struct.pack(form, number)
        return 1 if size == 8 else 5, rng.randbytes(size)
    if kind == Field.TYPE_STRING:
        return 2, sized(rng.choice(TEXTS).encode())
    if kind == Field.TYPE_BYTES:
        return 2, sized(rng.randbytes(rng.randint(0, 20)))
    if kind == Field.TYPE_ENUM:
        numbers = [0, 1, 1 << 30, -7]
        if not field.enum_type.is_closed:
            numbers += [2, -1, 77_777]
        return 0, any_varint(rng, rng.choice(numbers) % (1 << 64))
    return 0, any_varint(rng, rng.choice(NUMBERS if rng.random() < 0.7 else LARGE))


def message_bytes(rng: Random, descriptor: Any, depth: int) -> bytes:
    name = descriptor.full_name
    if name in {"google.protobuf.Timestamp", "google.protobuf.Duration"}:
        sign = -1 if name.endswith("Duration") and rng.random() < 0.5 else 1
        nanos = sign * rng.choice([0, 1, NANOS - 1])
        seconds = sign * rng.choice([0, 1, 1 << 33])
        if sign == 1 and not name.endswith("Duration"):
            seconds = rng.choice([seconds, -seconds, -5])
        parts = [tag(1, 0) + varint(seconds % (1 << 64)), tag(2, 0) + varint(nanos % (1 << 64))]
        rng.shuffle(parts)
        return b"".join(parts)
    return bytes_of(rng, descriptor, depth=depth)


INTERESTING = (
    *(varint(number) for number in (0, 1, 2, 7, 127, 1 << 20, 1 << 31, (1 << 64) - 1)),
    *(b"\xff" * 9 + b"\x01", b"\xff" * 20, b"\x80" * 9, b"\xff", b"\x80\x00", b"", b"\x0b" * 5),
    *(bytes([number << 3 | wire]) for number in (1, 2, 3) for wire in range(8)),
)
"""What damage puts into a value."""


# --- what the runtime reads -----------------------------------------------------------------------


def row_of(message: Any, *, absent: str = "default", enums: str = "name") -> dict[str, Any]:
    """Return what kfast has for a message that the runtime has read."""
    how = {"absent": absent, "enums": enums}
    return {field.name: _field(message, field, how) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any, how: dict[str, str]) -> Any:
    value = getattr(message, field.name)
    if field.is_repeated:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            kind = field.message_type.fields_by_name["value"]
            return {key: _value(value[key], kind, how) for key in value}
        return [_value(item, field, how) for item in value]
    if field.has_presence and not message.HasField(field.name):
        has_default = field.message_type is None and field.has_default_value
        if not has_default or how["absent"] == "null":
            return None
    elif not field.has_presence and how["absent"] == "null" and not _is_there(message, field):
        return None
    return _value(value, field, how)


def _is_there(message: Any, field: Any) -> bool:
    return any(each.number == field.number for each, _ in message.ListFields())


def _value(value: Any, field: Any, how: dict[str, str]) -> Any:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name in {"google.protobuf.Timestamp", "google.protobuf.Duration"}:
            return value.seconds * NANOS + value.nanos
        if name.startswith("google.protobuf.") and name.endswith("Value"):
            return value.value
        return row_of(value, **how)
    if field.enum_type is not None and how["enums"] == "name":
        return _names(field.enum_type).get(value, str(value))
    return value


@cache
def _names(enum: Any) -> dict[int, str]:
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    return names
