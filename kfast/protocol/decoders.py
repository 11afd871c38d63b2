"""Decoders of messages, made from a definition and a version.

A decoder is a chain of closures, built once per (class, version) and cached: the version ranges are
checked when it is built, never per message. Neighbouring fixed-size fields become one ``struct``
format, so that a partition of a Metadata response costs one unpack, three small arrays and one
object.

Owns no bytes. Any thread: a decoder is immutable.

Hostile input: an array's count is compared with the bytes left, at the smallest size an element
can have, before a list is made; a known tag must use exactly its size, tags must ascend.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any, Final, NamedTuple

from kfast.errors import ProtocolError
from kfast.protocol.primitives import (
    LengthReader,
    Reader,
    blob_reader,
    read_compact_length,
    read_length16,
    read_length32,
    read_uvarint,
    text_reader,
    unexpected_null,
)
from kfast.protocol.schema import (
    STR,
    UUID,
    ArrayOf,
    Scalar,
    Sized,
    WireContext,
    WireField,
    WireType,
    wire_fields,
)

_PRECOMPILED: Final = 64


class Decoder(NamedTuple):
    """Reads values of one type; ``min_bytes`` is the smallest size of a value."""

    read: Reader
    min_bytes: int


@cache
def message_decoder(cls: type, version: int, is_flexible: bool) -> Decoder:
    """Return the decoder of a message: a dataclass whose fields are declared with ``wire``."""
    return _struct_decoder(cls, WireContext(version, is_flexible, cls.__name__))


def _struct_decoder(cls: type, context: WireContext) -> Decoder:
    fields = wire_fields(cls)
    tagged = [spec for spec in fields.values() if spec.tag is not None]
    readers: list[Reader] = []
    codes = ""
    min_bytes = 0
    for name, spec in fields.items():
        if spec.tag is not None:
            continue
        is_present = context.version in spec.versions
        if is_present and isinstance(spec.kind, Scalar):
            codes += spec.kind.code
            continue
        if codes:
            readers.append(_run_reader(codes))
            min_bytes += struct.calcsize(">" + codes)
            codes = ""
        if is_present:
            decoder = _field_decoder(spec, context.inside(name))
            readers.append(decoder.read)
            min_bytes += decoder.min_bytes
        else:
            readers.append(_default_reader(spec))
    if codes:
        readers.append(_run_reader(codes))
        min_bytes += struct.calcsize(">" + codes)
    if context.is_flexible:
        readers.append(_tags_reader(cls, context))
        min_bytes += 1
    else:
        readers += [_default_reader(spec) for spec in tagged]
    return Decoder(_object_reader(cls, tuple(readers)), min_bytes)


def _object_reader(cls: type, readers: tuple[Reader, ...]) -> Reader:
    def read(data: bytes, pos: int, out: list[Any]) -> int:
        values: list[Any] = []
        for reader in readers:
            pos = reader(data, pos, values)
        out.append(cls(*values))
        return pos

    return read


def _run_reader(codes: str) -> Reader:
    run = Struct(">" + codes)
    unpack_from = run.unpack_from
    size = run.size

    def read(data: bytes, pos: int, out: list[Any]) -> int:
        out += unpack_from(data, pos)
        return pos + size

    return read


def _default_reader(spec: WireField) -> Reader:
    make_default = spec.make_default

    def read(data: bytes, pos: int, out: list[Any]) -> int:  # noqa: ARG001 - a Reader
        out.append(make_default())
        return pos

    return read


def _field_decoder(spec: WireField, context: WireContext) -> Decoder:
    nullable = spec.is_nullable(context.version)
    decoder = _type_decoder(spec.kind, nullable, context)
    if nullable and isinstance(spec.kind, type):
        prefix = _tagged_null_prefix if spec.tag is not None else _struct_null_prefix
        return Decoder(_nullable_struct_reader(decoder.read, prefix), 1)
    return decoder


def _type_decoder(kind: WireType, nullable: bool, context: WireContext) -> Decoder:
    if isinstance(kind, Scalar):
        return Decoder(_run_reader(kind.code), struct.calcsize(">" + kind.code))
    if isinstance(kind, Sized):
        make = text_reader if kind is STR else blob_reader
        length, size = _length_reader(kind, context)
        return Decoder(make(length, nullable, context.label), size)
    if isinstance(kind, ArrayOf):
        length, size = _length_reader(kind, context)
        if isinstance(kind.element, Scalar) and kind.element is not UUID:
            reader = _scalar_array_reader(kind.element.code, length, nullable, context.label)
        else:
            element = _type_decoder(kind.element, False, context)
            reader = _array_reader(element, length, nullable, context.label)
        return Decoder(reader, size)
    return _struct_decoder(kind, context)


def _length_reader(kind: Sized | ArrayOf, context: WireContext) -> tuple[LengthReader, int]:
    """Return the reader of a length or count prefix, and the prefix's smallest size in bytes."""
    if context.is_flexible:
        return read_compact_length, 1
    return (read_length16, 2) if kind is STR else (read_length32, 4)


def _array_reader(
    element: Decoder, read_length: LengthReader, nullable: bool, label: str
) -> Reader:
    read_element = element.read
    min_bytes = max(1, element.min_bytes)

    def read(data: bytes, pos: int, out: list[Any]) -> int:
        count, pos = read_length(data, pos)
        if count < 0:
            if not nullable:
                raise unexpected_null(label)
            out.append(None)
            return pos
        if count * min_bytes > len(data) - pos:
            raise _too_many(label, count)
        items: list[Any] = []
        for _ in range(count):
            pos = read_element(data, pos, items)
        out.append(items)
        return pos

    return read


def _scalar_array_reader(
    code: str, read_length: LengthReader, nullable: bool, label: str
) -> Reader:
    size = struct.calcsize(">" + code)
    # Replica lists are short: their formats are precompiled; struct caches longer ones itself.
    unpackers = [Struct(f">{count}{code}").unpack_from for count in range(_PRECOMPILED)]

    def read(data: bytes, pos: int, out: list[Any]) -> int:
        count, pos = read_length(data, pos)
        if count < 0:
            if not nullable:
                raise unexpected_null(label)
            out.append(None)
            return pos
        end = pos + count * size
        if end > len(data):
            raise _too_many(label, count)
        if count < _PRECOMPILED:
            out.append([*unpackers[count](data, pos)])
        else:
            out.append([*struct.unpack_from(f">{count}{code}", data, pos)])
        return end

    return read


def _too_many(label: str, count: int) -> ProtocolError:
    return ProtocolError(
        "malformed message", cause=f"{label} claims {count} elements, more than the bytes left hold"
    )


def _struct_null_prefix(data: bytes, pos: int) -> tuple[bool, int]:
    return data[pos] > 0x7F, pos + 1


def _tagged_null_prefix(data: bytes, pos: int) -> tuple[bool, int]:
    value, pos = read_uvarint(data, pos)
    return value == 0, pos


def _nullable_struct_reader(
    read_struct: Reader, read_prefix: Callable[[bytes, int], tuple[bool, int]]
) -> Reader:
    def read(data: bytes, pos: int, out: list[Any]) -> int:
        is_null, pos = read_prefix(data, pos)
        if is_null:
            out.append(None)
            return pos
        return read_struct(data, pos, out)

    return read


def _tags_reader(cls: type, context: WireContext) -> Reader:
    """Return the reader of a tag section; it appends a value for every tagged field of ``cls``."""
    declared = [(name, s) for name, s in wire_fields(cls).items() if s.tag is not None]
    defaults = [spec.make_default for _, spec in declared]
    readers = {
        spec.tag: (index, _field_decoder(spec, context.inside(name)).read)
        for index, (name, spec) in enumerate(declared)
        if context.version in spec.versions
    }
    label = context.label

    def read(data: bytes, pos: int, out: list[Any]) -> int:
        first = len(out)
        out += [make_default() for make_default in defaults]
        if data[pos] == 0:
            return pos + 1
        count, pos = read_uvarint(data, pos)
        previous = -1
        for _ in range(count):
            tag, pos = read_uvarint(data, pos)
            if tag <= previous:
                raise ProtocolError("malformed message", cause=f"tags of {label} are out of order")
            previous = tag
            size, pos = read_uvarint(data, pos)
            end = pos + size
            if end > len(data):
                raise ProtocolError(
                    "malformed message", cause=f"tag {tag} of {label} claims {size} bytes"
                )
            if tag in readers:
                index, read_value = readers[tag]
                value: list[Any] = []
                if read_value(data, pos, value) != end:
                    raise ProtocolError(
                        "malformed message", cause=f"tag {tag} of {label} does not fill its size"
                    )
                out[first + index] = value[0]
            pos = end
        return pos

    return read
