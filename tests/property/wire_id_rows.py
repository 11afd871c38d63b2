"""A slow, obvious reader of schema ids."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from tests.unit._native.framed_values import GUID

Row = tuple[Any, int, str]
"""The key, None without one; the offset of the payload; the status."""


def reference(value: bytes | None, header: bytes | None, framing: str, has_indexes: bool) -> Row:
    """Return what is in front of one payload."""
    if value is None:
        return None, 0, "null"
    if header is not None:
        if header[:1] not in {b"\0", b"\1"}:
            return None, 0, "magic"
        size = 16 if header[0] else 4
        if len(header) < 1 + size:
            return None, 0, "truncated"
        raw = header[1 : 1 + size]
        path, end, wrong = path_of(header, 1 + size, has_indexes)
        if wrong:
            return None, 0, wrong
        if end != len(header):
            return None, 0, "magic"
        return (
            (*(("guid", raw) if size == 16 else ("id", *struct.unpack(">i", raw))), path),
            0,
            "value",
        )
    if not value:
        return None, 0, "empty"
    if framing == "avro-single-object":
        if value[0] != 0xC3 or value[1:2] not in {b"\1", b""}:
            return None, 0, "magic"
        if len(value) < 10:
            return None, 0, "truncated"
        return ("fingerprint", struct.unpack("<Q", value[2:10])[0], None), 10, "value"
    if value[0] != 0:
        is_glue = value[0] == 3 and len(value) >= 18 and value[1] in {0, 5}
        return None, 0, "glue" if is_glue else "magic"
    size, letter, kind = (4, "i", "id") if framing == "confluent" else (8, "q", "global_id")
    if len(value) < 1 + size:
        return None, 0, "truncated"
    path, end, wrong = path_of(value, 1 + size, has_indexes)
    if wrong:
        return None, 0, wrong
    return (kind, struct.unpack(">" + letter, value[1 : 1 + size])[0], path), end, "value"


def path_of(data: bytes, at: int, has_indexes: bool) -> tuple[tuple[int, ...] | None, int, str]:
    if not has_indexes:
        return None, at, ""
    numbers: list[int] = []
    wanted = 1
    while len(numbers) < wanted:
        number = shift = 0
        while True:
            if at == len(data):
                return None, at, "truncated"
            byte = data[at]
            at += 1
            if shift == 28 and byte > 0x0F:
                return None, at, "indexes"
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        number = (number >> 1) ^ -(number & 1)
        if number < 0 or (not numbers and number > 32):
            return None, at, "indexes"
        numbers.append(number)
        wanted = 1 + numbers[0]
    return tuple(numbers[1:]) or (0,), at, ""


numbers = st.sampled_from([1, 2, 77, -1, 2**31 - 1])
glue = st.just(b"\3\0" + GUID + b"x")
