"""Encodes messages from Kafka's own schemas: slow, obvious, and independent of kfast.

A message is a dict of its fields. Written from the description of the protocol (KIP-482) as an
oracle for kfast's encoders; it shares no code with them.
"""

from __future__ import annotations

import struct
from typing import Any

from tests.conformance.json_schema import Field, Schema, Struct

FIXED = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}


def encode(schema: Schema, message: dict[str, Any], version: int) -> bytes:
    """Return the body of a message in one version."""
    return _struct(schema.body, message, version, version in schema.flexible)


def _struct(kind: Struct, value: dict[str, Any], version: int, flexible: bool) -> bytes:
    out = b""
    tags: dict[int, bytes] = {}
    for field in kind.fields:
        if version not in field.versions:
            continue
        item = value[field.name]
        if version not in field.tagged:
            out += _field(field, item, version, flexible)
        elif item != field.default:
            assert field.tag is not None
            tags[field.tag] = _field(field, item, version, flexible)
    if flexible:
        out += _uvarint(len(tags))
        for tag in sorted(tags):
            out += _uvarint(tag) + _uvarint(len(tags[tag])) + tags[tag]
    return out


def _field(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    if field.is_array:
        if value is None:
            return _length(-1, 4, flexible)
        items = [_one(field, item, version, flexible) for item in value]
        return _length(len(items), 4, flexible) + b"".join(items)
    return _one(field, value, version, flexible)


def _one(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    if field.struct is not None:
        if not field.is_array and version in field.nullable:
            assert version not in field.tagged
            if value is None:
                return b"\xff"
            return b"\x01" + _struct(field.struct, value, version, flexible)
        return _struct(field.struct, value, version, flexible)
    match field.element:
        case "uuid":
            assert len(value) == 16
            return bytes(value)
        case "string":
            encoded = None if value is None else value.encode()
            return _sized(encoded, 2, flexible)
        case "bytes" | "records":
            return _sized(value, 4, flexible)
        case kind:
            return struct.pack(FIXED[kind], value)


def _sized(value: bytes | None, width: int, flexible: bool) -> bytes:
    if value is None:
        return _length(-1, width, flexible)
    return _length(len(value), width, flexible) + value


def _length(length: int, width: int, flexible: bool) -> bytes:
    return _uvarint(length + 1) if flexible else length.to_bytes(width, "big", signed=True)


def _uvarint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _uvarint(rest) if rest else bytes([low])
