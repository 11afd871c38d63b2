"""Descriptors of Protobuf in their own encoding: FileDescriptorSet and FileDescriptorProto.

Own reader of the messages of ``descriptor.proto``, of which only the fields are looked at that
decoding depends on. The bytes may come from a registry and are hostile: every length is compared
with what is left, nesting is bounded, and the only exception is ``ConfigurationError``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NoReturn

from kfast.errors import ConfigurationError
from kfast.schemas.descriptors import NAMED_TYPES, Default, ProtoType
from kfast.schemas.proto_files import (
    EDITIONS,
    FEATURES,
    MAX_NESTING,
    EnumDefinition,
    Features,
    FieldDefinition,
    FileDefinition,
    MessageDefinition,
)
from kfast.schemas.proto_values import float_of, integer_of, unescaped

MAX_BYTES: Final = 32 << 20

_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
_WIRE_TYPES: Final = {_VARINT: "a number", _SIZED: "bytes"}
_LABEL_REQUIRED, _LABEL_REPEATED = 2, 3
_EDITIONS: Final = {998: "proto2", 999: "proto3", 1000: "2023", 1001: "2024"}
_LARGE: Final = 536_000_000
"""Numbers from here on are those of private extensions."""
_HINT: Final = "protoc --include_imports --descriptor_set_out=FILE makes a descriptor set"


def read_descriptor_files(data: bytes) -> list[FileDefinition]:
    """Return the files of a FileDescriptorSet, or the one of a FileDescriptorProto.

    Raises
    ------
    ConfigurationError
        The bytes are neither.
    """
    if len(data) > MAX_BYTES:
        raise ConfigurationError(f"the descriptor has more than {MAX_BYTES} bytes")
    if not data:
        _refuse("it has no bytes")
    fields = list(_fields(data))
    # Of a set field 1 is a file; a file has its name there, and more besides.
    if all(number == 1 or number >= _LARGE for number, _ in fields):
        return [_file(_bytes(value)) for number, value in fields if number == 1]
    return [_file(data)]


def _refuse(cause: str) -> NoReturn:
    raise ConfigurationError("the bytes are no descriptor of Protobuf", cause=cause, hint=_HINT)


# --- the encoding ---------------------------------------------------------------------------------


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field; a value of 4 or 8 bytes as an int."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            _refuse(f"a field has the number {number}")
        value: int | bytes
        if wire == _VARINT:
            value, at = _varint(data, at)
        elif wire == _SIZED:
            size, at = _varint(data, at)
            if size > end - at:
                _refuse(f"field {number} is longer than what is left")
            value, at = data[at : at + size], at + size
        elif wire in {_FIXED64, _FIXED32}:
            size = 8 if wire == _FIXED64 else 4
            if size > end - at:
                _refuse(f"field {number} is cut off")
            value, at = int.from_bytes(data[at : at + size], "little"), at + size
        else:
            _refuse(f"field {number} has the wire type {wire}")
        yield number, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70 and at < len(data):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    _refuse("a varint does not end")


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        _refuse("a number is where a message or a text has to be")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        _refuse("a text is not UTF-8")


def _number(value: int | bytes) -> int:
    """Return an int32 or an enum's number, which has ten bytes if it is negative."""
    if isinstance(value, bytes):
        _refuse("bytes are where a number has to be")
    low = value & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


# --- messages of descriptor.proto -----------------------------------------------------------------


def _file(data: bytes) -> FileDefinition:
    file = FileDefinition("")
    syntax, edition = "", 0
    public: list[int] = []
    for number, value in _fields(data):
        if number == 1:
            file.name = _text(value)
        elif number == 2:
            file.package = _text(value)
        elif number == 3:
            file.imports.append(_text(value))
        elif number == 4:
            file.messages.append(_message(_bytes(value), 1))
        elif number == 5:
            file.enums.append(_enum(_bytes(value)))
        elif number == 8:
            file.features = _features(value, 50, file.features)
        elif number == 10:
            public += _numbers(value)
        elif number == 12:
            syntax = _text(value)
        elif number == 14:
            edition = _number(value)
    file.edition = _edition(syntax, edition)
    for index in public:
        if not 0 <= index < len(file.imports):
            _refuse(f"a public import has the index {index}")
        file.public.append(file.imports[index])
    return file


def _numbers(value: int | bytes) -> list[int]:
    """Return repeated numbers, packed or not."""
    if isinstance(value, int):
        return [_number(value)]
    numbers, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        numbers.append(_number(number))
    return numbers


def _edition(syntax: str, edition: int) -> str:
    name = _EDITIONS.get(edition) if edition else syntax or "proto2"
    if name is None or name not in EDITIONS:
        raise ConfigurationError(
            "the descriptor is of an edition of Protobuf that is not known",
            found=f"edition {edition}" if edition else f"syntax {syntax[:20]!r}",
            hint=f"known are {', '.join(EDITIONS)}",
        )
    return name


def _message(data: bytes, depth: int) -> MessageDefinition:
    if depth > MAX_NESTING:
        _refuse(f"messages are nested more than {MAX_NESTING} levels deep")
    message = MessageDefinition("")
    for number, value in _fields(data):
        if number == 1:
            message.name = _text(value)
        elif number == 2:
            message.fields.append(_field(_bytes(value)))
        elif number == 3:
            message.messages.append(_message(_bytes(value), depth + 1))
        elif number == 4:
            message.enums.append(_enum(_bytes(value)))
        elif number == 7:
            for option, setting in _fields(_bytes(value)):
                if option == 7:
                    message.is_map_entry = bool(_number(setting))
        elif number == 8:
            names = [
                _text(name) for field_number, name in _fields(_bytes(value)) if field_number == 1
            ]
            message.oneofs.append(names[-1] if names else "")
    return message


def _enum(data: bytes) -> EnumDefinition:
    enum = EnumDefinition("")
    for number, value in _fields(data):
        if number == 1:
            enum.name = _text(value)
        elif number == 2:
            name, own = "", 0
            for field_number, inner in _fields(_bytes(value)):
                if field_number == 1:
                    name = _text(inner)
                elif field_number == 2:
                    own = _number(inner)
            enum.values.append((name, own))
        elif number == 3:
            enum.features = _features(value, 7, enum.features)
    return enum


def _field(data: bytes) -> FieldDefinition:
    field = FieldDefinition("", 0, None)
    label = kind = 0
    default: bytes | None = None
    for number, value in _fields(data):
        if number == 1:
            field.name = _text(value)
        elif number == 3:
            field.number = _number(value)
        elif number == 4:
            label = _number(value)
        elif number == 5:
            kind = _number(value)
        elif number == 6:
            field.type_name = _text(value)
        elif number == 7:
            default = _bytes(value)
        elif number == 8:
            field.features = _features(value, 21, field.features)
        elif number == 9:
            field.oneof = _number(value)
            if field.oneof < 0:
                _refuse(f"field {field.name} has the oneof {field.oneof}")
        elif number == 17:
            field.is_optional3 = bool(_number(value))
    if not 0 <= kind <= max(ProtoType):
        _refuse(f"field {field.name} has the type {kind}")
    field.type = ProtoType(kind) if kind else None
    field.is_required = label == _LABEL_REQUIRED
    field.is_repeated = label == _LABEL_REPEATED
    if default is not None:
        field.default = _default(field, default)
    return field


def _default(field: FieldDefinition, default: bytes) -> Default:
    """Return the value that the text of a default stands for."""
    kind = field.type
    text = _text(default)
    value: Default | None
    if kind is None or kind in NAMED_TYPES or kind is ProtoType.STRING:
        return text
    if kind is ProtoType.BYTES:
        value = unescaped(text)
    elif kind is ProtoType.BOOL:
        value = {"true": True, "false": False}.get(text)
    elif kind in {ProtoType.FLOAT, ProtoType.DOUBLE}:
        value = float_of(text)
    else:
        value = integer_of(text, kind)
    if value is None:
        _refuse(f"the default of field {field.name} is no {kind.name.lower()}")
    return value


def _features(options: int | bytes, at: int, features: Features) -> Features:
    """Return the features in options, where they are field ``at``, after those known before."""
    merged = dict(features)
    for number, value in _fields(_bytes(options)):
        if number != at:
            continue
        for feature, setting in _fields(_bytes(value)):
            values: Sequence[int] = FEATURES.get(feature, ())
            if not values:
                continue
            chosen = _number(setting)
            if chosen not in values:
                _refuse(f"feature {feature} has the value {chosen}")
            merged[feature] = chosen
    return merged
