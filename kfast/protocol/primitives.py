"""Readers and writers of Kafka's variable-length primitives.

Owns varints, length prefixes, strings and byte strings. Fixed-size values are read and written in
runs with ``struct``, by the decoders and encoders. Stateless; any thread.

A *reader* takes ``(data, pos, out)``, appends what it read to the list ``out`` and returns the new
position. A *writer* takes ``(out, value)`` and appends to the bytearray ``out``.

Wire layout (KIP-482 calls the second form compact)::

    string   i16 length, UTF-8            uvarint length + 1, UTF-8
    bytes    i32 length, bytes            uvarint length + 1, bytes
    array    i32 count, elements          uvarint count + 1, elements
    null     -1                           0

Every length is hostile until it has been compared with the bytes left. Readers may let
``IndexError``, ``struct.error`` and ``UnicodeDecodeError`` escape: the message's ``decode`` turns
them into ``ProtocolError``, once, instead of a check at every byte.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, TypeAlias

from kfast.errors import ProtocolError, UnsupportedVersionError

Reader: TypeAlias = Callable[[bytes, int, list[Any]], int]
Writer: TypeAlias = Callable[[bytearray, Any], None]
LengthReader: TypeAlias = Callable[[bytes, int], tuple[int, int]]
LengthWriter: TypeAlias = Callable[[bytearray, int], None]

MAX_STRING_BYTES: Final = 0x7FFF
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")


# --- varints and lengths --------------------------------------------------------------------------


def read_uvarint(data: bytes, pos: int) -> tuple[int, int]:
    """Return an unsigned 32-bit varint and the position after it.

    Stricter than Java, which drops surplus bits of the fifth byte: no encoder writes them, so they
    mean corrupt bytes.

    Raises
    ------
    ProtocolError
        The value does not fit 32 bits.
    IndexError
        The bytes end inside the varint.
    """
    byte = data[pos]
    if byte < 0x80:
        return byte, pos + 1
    value = byte & 0x7F
    for shift in (7, 14, 21):
        pos += 1
        byte = data[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos + 1
    pos += 1
    byte = data[pos]
    if byte > 0x0F:
        raise ProtocolError("malformed message", cause="a varint does not fit 32 bits")
    return value | byte << 28, pos + 1


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_compact_length(data: bytes, pos: int) -> tuple[int, int]:
    """Return a length written as uvarint length + 1; -1 is null."""
    byte = data[pos]
    if byte < 0x80:
        return byte - 1, pos + 1
    value, pos = read_uvarint(data, pos)
    return value - 1, pos


def read_length16(data: bytes, pos: int) -> tuple[int, int]:
    """Return a classic string length; -1 is null."""
    length = _I16.unpack_from(data, pos)[0]
    if length < -1:
        raise ProtocolError("malformed message", cause=f"a string has length {length}")
    return length, pos + 2


def read_length32(data: bytes, pos: int) -> tuple[int, int]:
    """Return a classic byte string length or array count; -1 is null."""
    length = _I32.unpack_from(data, pos)[0]
    if length < -1:
        raise ProtocolError("malformed message", cause=f"a length or count is {length}")
    return length, pos + 4


def write_compact_length(out: bytearray, length: int) -> None:
    """Append a length as uvarint length + 1; -1 is null."""
    write_uvarint(out, length + 1)


def write_length16(out: bytearray, length: int) -> None:
    """Append a classic string length; -1 is null."""
    out += _I16.pack(length)


def write_length32(out: bytearray, length: int) -> None:
    """Append a classic byte string length or array count; -1 is null."""
    out += _I32.pack(length)


# --- null -----------------------------------------------------------------------------------------


def unexpected_null(label: str) -> ProtocolError:
    """Return the error for a null that the schema does not allow."""
    return ProtocolError("malformed message", cause=f"{label} must not be null")


def null_not_expressible(label: str) -> UnsupportedVersionError:
    """Return the error for a null that this version of the message cannot carry."""
    return UnsupportedVersionError(f"{label} cannot be null in this version of the request")


# --- strings and byte strings ---------------------------------------------------------------------


def text_reader(read_length: LengthReader, nullable: bool, label: str) -> Reader:
    """Return a reader of strings; ``label`` names the field in errors."""

    def read(data: bytes, pos: int, out: list[Any]) -> int:
        length, pos = read_length(data, pos)
        if length < 0:
            if not nullable:
                raise unexpected_null(label)
            out.append(None)
            return pos
        end = pos + length
        if end > len(data) or length > MAX_STRING_BYTES:
            raise ProtocolError("malformed message", cause=f"{label} claims {length} bytes")
        out.append(data[pos:end].decode())
        return end

    return read


def blob_reader(read_length: LengthReader, nullable: bool, label: str) -> Reader:
    """Return a reader of byte strings."""

    def read(data: bytes, pos: int, out: list[Any]) -> int:
        length, pos = read_length(data, pos)
        if length < 0:
            if not nullable:
                raise unexpected_null(label)
            out.append(None)
            return pos
        end = pos + length
        if end > len(data):
            raise ProtocolError("malformed message", cause=f"{label} claims {length} bytes")
        out.append(data[pos:end])
        return end

    return read


def text_writer(write_length: LengthWriter, nullable: bool, label: str) -> Writer:
    """Return a writer of strings."""

    def write(out: bytearray, value: str | None) -> None:
        if value is None:
            if not nullable:
                raise null_not_expressible(label)
            write_length(out, -1)
            return
        encoded = value.encode()
        if len(encoded) > MAX_STRING_BYTES:
            raise ProtocolError(
                f"{label} is too long for the protocol",
                found=f"{len(encoded)} bytes of UTF-8, at most {MAX_STRING_BYTES} fit",
            )
        write_length(out, len(encoded))
        out += encoded

    return write


def blob_writer(write_length: LengthWriter, nullable: bool, label: str) -> Writer:
    """Return a writer of byte strings."""

    def write(out: bytearray, value: bytes | memoryview | None) -> None:
        if value is None:
            if not nullable:
                raise null_not_expressible(label)
            write_length(out, -1)
            return
        write_length(out, len(value))
        out += value

    return write
