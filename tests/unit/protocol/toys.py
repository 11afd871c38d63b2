"""Messages of no real API, with every feature of the schema language."""

from __future__ import annotations

from dataclasses import dataclass

from kfast.protocol.message import Message
from kfast.protocol.schema import (
    BOOL,
    BYTES,
    F64,
    I8,
    I16,
    I32,
    I64,
    STR,
    U16,
    UUID,
    ArrayOf,
    wire,
)


@dataclass(slots=True)
class Inner:
    """A struct with a tagged field."""

    number: int = wire(I16)
    text: str | None = wire(STR, nullable="3+")
    note: str = wire(STR, "2+", tag=0)


@dataclass(slots=True)
class Everything(Message):
    """Flexible from version 2; version 1 lacks some fields."""

    API_KEY = 999
    NAME = "Everything"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    flag: bool = wire(BOOL)
    tiny: int = wire(I8)
    port: int = wire(U16)
    ratio: float = wire(F64)
    topic_id: bytes = wire(UUID)
    blob: bytes | None = wire(BYTES, nullable="0+")
    numbers: list[int] | None = wire(ArrayOf(I32), nullable="2+")
    ids: list[bytes] = wire(ArrayOf(UUID), "2+", ignorable=True)
    names: list[str] = wire(ArrayOf(STR))
    inners: list[Inner] = wire(ArrayOf(Inner))
    single: Inner = wire(Inner, "2+")
    maybe: Inner | None = wire(Inner, "3+", nullable="3+", default=None)
    strict: int = wire(I64, "2+", default=-1)
    loose: int = wire(I64, "2+", default=-1, ignorable=True)
    tagged_number: int = wire(I32, "2+", tag=0, default=7, ignorable=True)
    tagged_struct: Inner = wire(Inner, "2+", tag=1, ignorable=True)
    tagged_maybe: Inner | None = wire(
        Inner, "3+", nullable="3+", tag=2, default=None, ignorable=True
    )
    tagged_list: list[Inner] = wire(ArrayOf(Inner), "2+", tag=5)


@dataclass(slots=True)
class Small(Message):
    """Two fields and a tag, flexible from version 1."""

    API_KEY = 998
    NAME = "Small"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 1

    number: int = wire(I16)
    names: list[str] = wire(ArrayOf(STR))
    extra: int = wire(I32, "1+", tag=3, ignorable=True)
