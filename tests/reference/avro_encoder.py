"""An encoder of Avro's binary encoding, slow and obvious, for schemas as JSON.

Values are Python's; a value of a union is a pair of the branch's number and the value. Named types
have to be written out where they are used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any


def long(number: int) -> bytes:
    """Zigzag, 7 bits per byte, the lowest first."""
    left = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def sized(raw: bytes) -> bytes:
    return long(len(raw)) + raw


def one_block(items: list[bytes]) -> bytes:
    return (long(len(items)) + b"".join(items) if items else b"") + long(0)


def any_blocks(rng: Random) -> Callable[[list[bytes]], bytes]:
    """Blocks of random lengths, with and without their size in bytes."""

    def blocks(items: list[bytes]) -> bytes:
        out, at = b"", 0
        while at < len(items):
            count = rng.randint(1, len(items) - at)
            part = b"".join(items[at : at + count])
            out += long(-count) + sized(part) if rng.random() < 0.5 else long(count) + part
            at += count
        return out + long(0)

    return blocks


def encode(schema: Any, value: Any, blocks: Callable[[list[bytes]], bytes] = one_block) -> bytes:
    """Return the bytes of one value."""
    if isinstance(schema, list):
        branch, inner = value
        return long(branch) + encode(schema[branch], inner, blocks)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return b"".join(
            encode(field["type"], value[field["name"]], blocks) for field in schema["fields"]
        )
    if kind == "array":
        return blocks([encode(schema["items"], item, blocks) for item in value])
    if kind == "map":
        inner = schema["values"]
        return blocks(
            [sized(key.encode()) + encode(inner, item, blocks) for key, item in value.items()]
        )
    if kind == "enum":
        return long(schema["symbols"].index(value))
    simple: dict[str, Callable[[Any], bytes]] = {
        "null": lambda _: b"",
        "boolean": lambda v: bytes([v]),
        "int": long,
        "long": long,
        "float": lambda v: struct.pack("<f", v),
        "double": lambda v: struct.pack("<d", v),
        "bytes": sized,
        "string": lambda v: sized(v.encode()),
        "fixed": bytes,
    }
    return simple[kind](value)
