"""User data of the sticky assignors: the last assignment of a member, as bytes.

Stateless; network thread. Written by other members, so every length is checked and what cannot be
decoded counts as no claim: a member must not be able to fail the whole group.

| assignor | layout (big endian, never flexible) |
|---|---|
| sticky v1 | [topic string, [partition i32]], generation i32 |
| sticky v0 | the same without the generation |
| cooperative-sticky | generation i32 |
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kfast.consumer.group.assignors.assignor import NO_GENERATION
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")

Claim = tuple[tuple[TopicPartition, ...], int]
"""Partitions, and the generation they were owned in."""

NOTHING: Final[Claim] = ((), NO_GENERATION)


def encode_assignment(partitions: Iterable[TopicPartition], generation_id: int) -> bytes:
    """Return the user data of ``sticky``, version 1."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    out = bytearray(_I32.pack(len(by_topic)))
    for topic, numbers in by_topic.items():
        name = topic.encode()
        out += _I16.pack(len(name)) + name
        out += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return bytes(out + _I32.pack(generation_id))


def decode_assignment(data: bytes | None) -> Claim:
    """Return the claim in a member's user data of ``sticky``, in either version."""
    if not data:
        return NOTHING
    try:
        partitions, pos = _read_partitions(data)
        generation_id = NO_GENERATION if pos == len(data) else _I32.unpack_from(data, pos)[0]
    except (struct.error, UnicodeDecodeError, ValueError):
        return NOTHING
    return tuple(partitions), max(generation_id, NO_GENERATION)


def _read_partitions(data: bytes) -> tuple[list[TopicPartition], int]:
    partitions: list[TopicPartition] = []
    pos = _I32.size
    for _ in range(_size(_I32.unpack_from(data)[0], 6, data)):
        start = pos + _I16.size
        pos = start + _size(_I16.unpack_from(data, pos)[0], 1, data)
        topic = data[start:pos].decode()
        count = _size(_I32.unpack_from(data, pos)[0], 4, data)
        numbers = struct.unpack_from(f">{count}i", data, pos + _I32.size)
        pos += _I32.size + count * 4
        partitions += [TopicPartition(topic, number) for number in numbers]
    return partitions, pos


def _size(count: int, least: int, data: bytes) -> int:
    """Return a count of items of at least so many bytes if the data can contain them."""
    if not 0 <= count * least <= len(data):
        raise ValueError("more than the data can contain")
    return count


def encode_generation(generation_id: int) -> bytes:
    """Return the user data of ``cooperative-sticky``."""
    return _I32.pack(generation_id)


def decode_generation(data: bytes | None) -> int:
    """Return the generation in a member's user data of ``cooperative-sticky``, -1 if none."""
    if data is None or len(data) < _I32.size:
        return NO_GENERATION
    generation_id: int = _I32.unpack_from(data)[0]
    return max(generation_id, NO_GENERATION)
