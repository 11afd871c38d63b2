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


def _refuse(what: str) -> NoReturn:
    raise ConfigurationError("the bytes are no descriptor of Protobuf", cause=what, hint=_HINT)


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
    made = FileDefinition("")
    syntax, edition = "", 0
    public: list[int] = []
    for number, value in _fields(data):
        if number == 1:
            made.name = _text(value)
        elif number == 2:
            made.package = _text(value)
        elif number == 3:
            made.imports.append(_text(value))
        elif number == 4:
            made.messages.append(_message(_bytes(value), 1))
        elif number == 5:
            made.enums.append(_enum(_bytes(value)))
        elif number == 8:
            made.features = _features(value, 50, made.features)
        elif number == 10:
            public += _numbers(value)
        elif number == 12:
            syntax = _text(value)
        elif number == 14:
            edition = _number(value)
    made.edition = _edition(syntax, edition)
    for index in public:
        if not 0 <= index < len(made.imports):
            _refuse(f"a public import has the index {index}")
        made.public.append(made.imports[index])
    return made


def _numbers(value: int | bytes) -> list[int]:
    """Return repeated numbers, packed or not."""
    if isinstance(value, int):
        return [_number(value)]
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(_number(number))
    return found


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
    made = MessageDefinition("")
    for number, value in _fields(data):
        if number == 1:
            made.name = _text(value)
        elif number == 2:
            made.fields.append(_field(_bytes(value)))
        elif number == 3:
            made.messages.append(_message(_bytes(value), depth + 1))
        elif number == 4:
            made.enums.append(_enum(_bytes(value)))
        elif number == 7:
            for option, setting in _fields(_bytes(value)):
                if option == 7:
                    made.is_map_entry = bool(_number(setting))
        elif number == 8:
            names = [_text(name) for part, name in _fields(_bytes(value)) if part == 1]
            made.oneofs.append(names[-1] if names else "")
    return made


def _enum(data: bytes) -> EnumDefinition:
    made = EnumDefinition("")
    for number, value in _fields(data):
        if number == 1:
            made.name = _text(value)
        elif number == 2:
            name, own = "", 0
            for part, inner in _fields(_bytes(value)):
                if part == 1:
                    name = _text(inner)
                elif part == 2:
                    own = _number(inner)
            made.values.append((name, own))
        elif number == 3:
            made.features = _features(value, 7, made.features)
    return made


def _field(data: bytes) -> FieldDefinition:
    made = FieldDefinition("", 0, None)
    label = kind = 0
    default: bytes | None = None
    for number, value in _fields(data):
        if number == 1:
            made.name = _text(value)
        elif number == 3:
            made.number = _number(value)
        elif number == 4:
            label = _number(value)
        elif number == 5:
            kind = _number(value)
        elif number == 6:
            made.type_name = _text(value)
        elif number == 7:
            default = _bytes(value)
        elif number == 8:
            made.features = _features(value, 21, made.features)
        elif number == 9:
            made.oneof = _number(value)
            if made.oneof < 0:
                _refuse(f"field {made.name} has the oneof {made.oneof}")
        elif number == 17:
            made.is_optional3 = bool(_number(value))
    if not 0 <= kind <= max(ProtoType):
        _refuse(f"field {made.name} has the type {kind}")
    made.type = ProtoType(kind) if kind else None
    made.is_required = label == _LABEL_REQUIRED
    made.is_repeated = label == _LABEL_REPEATED
    if default is not None:
        made.default = _default(made, default)
    return made


def _default(made: FieldDefinition, default: bytes) -> Default:
    """Return the value that the text of a default stands for."""
    kind = made.type
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
        _refuse(f"the default of field {made.name} is no {kind.name.lower()}")
    return value


def _features(options: int | bytes, at: int, known: Features) -> Features:
    """Return the features in options, where they are field ``at``, after those known before."""
    found = dict(known)
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
            found[feature] = chosen
    return found
