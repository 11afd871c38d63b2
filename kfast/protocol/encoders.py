"""Encoders of messages, made from a definition and a version.

The counterpart of ``decoders``: closures built once per (class, version), neighbouring fixed-size
fields packed at once. A value that the version cannot carry raises before anything is sent, unless
the definition marks the field as ignorable.

Owns no bytes. Any thread: an encoder is immutable.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from struct import Struct
from typing import Any, Final

from kfast.errors import ProtocolError, UnsupportedVersionError
from kfast.protocol.primitives import (
    Writer,
    blob_writer,
    null_not_expressible,
    text_writer,
    write_compact_length,
    write_length16,
    write_length32,
    write_uvarint,
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

_PRESENT: Final = b"\x01"
_NULL_STRUCT: Final = b"\xff"


@cache
def message_encoder(cls: type, version: int, is_flexible: bool) -> Writer:
    """Return the encoder of a message: a dataclass whose fields are declared with ``wire``."""
    return _struct_writer(cls, WireContext(version, is_flexible, cls.__name__))


def _struct_writer(cls: type, context: WireContext) -> Writer:
    fields = wire_fields(cls)
    present = {name: spec for name, spec in fields.items() if context.version in spec.versions}
    writers: list[Writer] = []
    run: dict[str, str] = {}
    absent = {
        name: spec for name, spec in fields.items() if name not in present and not spec.ignorable
    }
    if absent:
        writers.append(_default_check(absent, context))
    for name, spec in present.items():
        if spec.tag is not None:
            continue
        if isinstance(spec.kind, Scalar) and spec.kind is not UUID:
            run[name] = spec.kind.code
            continue
        if run:
            writers.append(_run_writer(run))
            run = {}
        writers.append(_attribute_writer(name, _field_writer(spec, context.inside(name))))
    if run:
        writers.append(_run_writer(run))
    if context.is_flexible:
        tagged = {name: spec for name, spec in present.items() if spec.tag is not None}
        writers.append(_tags_writer(tagged, context))

    def write(out: bytearray, value: object) -> None:
        for writer in writers:
            writer(out, value)

    return write


def _default_check(absent: dict[str, WireField], context: WireContext) -> Writer:
    """Return a writer of fields that the version lacks: it writes nothing and checks the values."""
    checks = [(name, spec.make_default()) for name, spec in absent.items()]

    def check(out: bytearray, value: object) -> None:  # noqa: ARG001 - a Writer
        for name, default in checks:
            actual = getattr(value, name)
            if actual != default:
                raise UnsupportedVersionError(
                    f"{context.label}.{name} cannot be sent in version {context.version}",
                    cause=f"this version supports only the default, {name}={default!r}",
                )

    return check


def _run_writer(run: dict[str, str]) -> Writer:
    pack = Struct(">" + "".join(run.values())).pack
    get = attrgetter(*run)
    if len(run) == 1:

        def write_one(out: bytearray, value: object) -> None:
            out += pack(get(value))

        return write_one

    def write(out: bytearray, value: object) -> None:
        out += pack(*get(value))

    return write


def _attribute_writer(name: str, write_value: Writer) -> Writer:
    get = attrgetter(name)

    def write(out: bytearray, value: object) -> None:
        write_value(out, get(value))

    return write


def _field_writer(spec: WireField, context: WireContext) -> Writer:
    nullable = spec.is_nullable(context.version)
    writer = _type_writer(spec.kind, nullable, context)
    if isinstance(spec.kind, type):
        null = b"" if not nullable else b"\x00" if spec.tag is not None else _NULL_STRUCT
        return _nullable_struct_writer(writer, null, context.label)
    return writer


def _type_writer(kind: WireType, nullable: bool, context: WireContext) -> Writer:
    if kind is UUID:
        return _uuid_writer(context.label)
    if isinstance(kind, Scalar):
        return _scalar_writer(kind.code)
    if isinstance(kind, Sized):
        make = text_writer if kind is STR else blob_writer
        length = (
            write_compact_length
            if context.is_flexible
            else write_length16
            if kind is STR
            else write_length32
        )
        return make(length, nullable, context.label)
    if isinstance(kind, ArrayOf):
        return _array_writer(kind, nullable, context)
    return _struct_writer(kind, context)


def _scalar_writer(code: str) -> Writer:
    pack = Struct(">" + code).pack

    def write(out: bytearray, value: object) -> None:
        out += pack(value)

    return write


def _uuid_writer(label: str) -> Writer:
    def write(out: bytearray, value: bytes) -> None:
        if len(value) != 16:  # struct would pad it without an error
            raise ProtocolError(f"{label} has {len(value)} bytes, an id has 16")
        out += value

    return write


def _array_writer(kind: ArrayOf, nullable: bool, context: WireContext) -> Writer:
    write_length = write_compact_length if context.is_flexible else write_length32
    write_element = _type_writer(kind.element, False, context)

    def write(out: bytearray, value: list[Any] | None) -> None:
        if value is None:
            if not nullable:
                raise null_not_expressible(context.label)
            write_length(out, -1)
            return
        write_length(out, len(value))
        for item in value:
            write_element(out, item)

    return write


def _nullable_struct_writer(write_struct: Writer, null: bytes, label: str) -> Writer:
    """Return a writer of a struct field; ``null`` is empty where null is not allowed."""
    present = _PRESENT if null else b""

    def write(out: bytearray, value: object) -> None:
        if value is not None:
            out += present
            write_struct(out, value)
        elif null:
            out += null
        else:
            raise null_not_expressible(label)

    return write


def _tags_writer(tagged: dict[str, WireField], context: WireContext) -> Writer:
    """Return the writer of a tag section; fields with their default value are omitted."""
    writers = sorted(
        (
            (spec.tag or 0, name, spec.make_default(), _field_writer(spec, context.inside(name)))
            for name, spec in tagged.items()
        ),
        key=lambda writer: writer[0],
    )

    def write(out: bytearray, value: object) -> None:
        bodies: list[tuple[int, bytearray]] = []
        for tag, name, default, write_value in writers:
            item = getattr(value, name)
            if item != default:
                body = bytearray()
                write_value(body, item)
                bodies.append((tag, body))
        write_uvarint(out, len(bodies))
        for tag, body in bodies:
            write_uvarint(out, tag)
            write_uvarint(out, len(body))
            out += body

    return write
