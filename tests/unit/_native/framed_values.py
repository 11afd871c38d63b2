"""Values with a schema id, by each framing."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence

GUID = uuid.UUID("8f2b2c4e-0000-4000-8000-1234567890ab").bytes
NAME = b"__value_schema_id"
Header = tuple[bytes, bytes | None]


def varint(value: int) -> bytes:
    """Return a zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def indexes(*path: int) -> bytes:
    return varint(len(path)) + b"".join(map(varint, path))


def confluent(number: int, payload: bytes = b"p") -> bytes:
    return struct.pack(">bi", 0, number) + payload


def header_block(headers: Sequence[Header]) -> bytes:
    out = b""
    for key, value in headers:
        out += varint(len(key)) + key
        out += varint(-1) if value is None else varint(len(value)) + value
    return out
