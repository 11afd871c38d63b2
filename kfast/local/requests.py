"""Requests to one broker of a LocalKafka, over its plaintext listener, written out byte by byte.

Owns the layout of the few requests that set a cluster up; the brokers of tests must not depend on
the code under test. A request and its response are::

    int32 size | int16 api_key | int16 version | int32 correlation_id = 1 | int16 -1 (no client id)
        | byte 0 (no tagged fields; flexible versions only) | body
    int32 size | int32 correlation_id | byte 0 (flexible versions only) | body

In flexible versions (KIP-482) strings, bytes and arrays have their length + 1 as an unsigned varint
before them, and every structure ends with its tagged fields: one zero byte.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 30
NO_TAGS: Final = b"\x00"

Address = tuple[str, int]


def send_request(
    address: Address, api_key: int, version: int, body: bytes, *, is_flexible: bool = False
) -> Reader:
    """Send one request over a connection of its own and return the response's body."""
    header = struct.pack(">hhih", api_key, version, 1, -1) + (NO_TAGS if is_flexible else b"")
    with socket.create_connection(address, TIMEOUT_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            reader = Reader(stream.read(size))
    reader.number(">i")  # correlation id
    if is_flexible:
        reader.tags()
    return reader


class Reader:
    """Reads the values of a response one after another."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def _take(self, size: int) -> bytes:
        self._position += size
        return self._data[self._position - size : self._position]

    def number(self, layout: str) -> int:
        """Read one number, by its ``struct`` format."""
        value: int = struct.unpack_from(layout, self._data, self._position)[0]
        self._position += struct.calcsize(layout)
        return value

    def string(self) -> str | None:
        """Read a string; None for null."""
        size = self.number(">h")
        return None if size < 0 else self._take(size).decode()

    def array(self, read: Callable[[Reader], T]) -> list[T]:
        """Read an array whose elements ``read`` reads."""
        return [read(self) for _ in range(self.number(">i"))]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.number("B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def compact_string(self) -> str | None:
        """Read a string of a flexible version; None for null."""
        size = self._varint() - 1
        return None if size < 0 else self._take(size).decode()

    def compact_array(self, read: Callable[[Reader], T]) -> list[T]:
        """Read an array of a flexible version."""
        return [read(self) for _ in range(self._varint() - 1)]

    def tags(self) -> None:
        """Skip the tagged fields that end a structure."""
        for _ in range(self._varint()):
            self._varint()
            self._take(self._varint())


def string(text: str | None) -> bytes:
    """Return a string as it is written, or null."""
    if text is None:
        return struct.pack(">h", -1)
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def array(elements: Iterable[bytes]) -> bytes:
    """Return an array of written elements."""
    made = list(elements)
    return struct.pack(">i", len(made)) + b"".join(made)


def compact_bytes(data: bytes) -> bytes:
    """Return bytes, or the bytes of a string, as flexible versions write them."""
    return _varint(len(data) + 1) + data


def compact_array(elements: Iterable[bytes]) -> bytes:
    """Return an array of written elements as flexible versions write it."""
    made = list(elements)
    return _varint(len(made) + 1) + b"".join(made)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
