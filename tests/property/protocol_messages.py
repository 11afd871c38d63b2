"""Hypothesis strategies for protocol messages, drawn from their declarations."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, TypeVar, cast

from hypothesis import strategies as st

from kfast.protocol.message import Message
from kfast.protocol.messages import REQUESTS
from kfast.protocol.schema import (
    BOOL,
    F64,
    STR,
    UUID,
    ArrayOf,
    Scalar,
    Sized,
    WireType,
    wire_fields,
)

T = TypeVar("T")

EVERY_MESSAGE: list[type[Message]] = [
    cls for request in REQUESTS.values() for cls in (request, request.RESPONSE)
]
EVERY_VERSION: list[tuple[type[Message], int]] = [
    (cls, version)
    for cls in EVERY_MESSAGE
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
]
EVERY_VERSION_IDS = [f"{cls.__name__}-{version}" for cls, version in EVERY_VERSION]


@cache  # to make a strategy takes longer than to draw from it
def messages(cls: type[T], version: int) -> st.SearchStrategy[T]:
    """Return messages or structs of a class that a version can carry without loss."""
    return st.builds(cls, **_fields(cls, version))


def _fields(cls: type, version: int) -> dict[str, st.SearchStrategy[Any]]:
    return {
        name: st.none() | values(spec.kind, version)
        if spec.is_nullable(version)
        else values(spec.kind, version)
        for name, spec in wire_fields(cls).items()
        if version in spec.versions
    }


def values(kind: WireType, version: int) -> st.SearchStrategy[Any]:
    """Return values of one type."""
    if isinstance(kind, ArrayOf):
        return st.lists(values(kind.element, version), max_size=3)
    if isinstance(kind, Scalar):
        return scalars(kind)
    if isinstance(kind, Sized):
        return st.text(max_size=5) if kind is STR else st.binary(max_size=12)
    return messages(cast("Any", kind), version)


def scalars(kind: Scalar) -> st.SearchStrategy[Any]:
    """Return values of a type of fixed size."""
    if kind is UUID:
        return st.binary(min_size=16, max_size=16)
    if kind is BOOL:
        return st.booleans()
    if kind is F64:
        return st.floats(allow_nan=False)
    bits = 8 * struct.calcsize(">" + kind.code)
    if kind.code.isupper():
        return st.integers(0, 2**bits - 1)
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Return bytes with a few of them changed, inserted, removed or cut off."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(changed)))
        piece = draw(st.sampled_from(HOSTILE_PIECES) | st.binary(max_size=4))
        match draw(st.sampled_from(("overwrite", "insert", "remove", "cut"))):
            case "overwrite":
                changed[at : at + len(piece)] = piece
            case "insert":
                changed[at:at] = piece
            case "remove":
                del changed[at : at + len(piece)]
            case _:
                del changed[at:]
    return bytes(changed)


HOSTILE_PIECES = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x10",
    b"\x80\x80\x80\x80\x08",
)
