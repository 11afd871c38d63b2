"""Slow, plain decompressors for the oracle: snappy and LZ4 by hand, gzip and zstd by stock streams.

They share no code with kfast and no library with it where one can do without.
"""

from __future__ import annotations

import struct
import zlib

import zstandard

from tests.reference.compression import Codec, xxh32


class MalformedError(Exception):
    """The bytes are not what they should be."""


UNDEFINED = "an LZ4 match at distance 0: illegal, but the LZ4 library reads it as zeros"


class TooLargeError(Exception):
    """More output than allowed."""


class Source:
    """A cursor whose every read is checked."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.pos

    def take(self, size: int) -> bytes:
        if size < 0 or size > self.left:
            raise MalformedError(f"{size} bytes wanted, {self.left} left")
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def u8(self) -> int:
        return self.take(1)[0]

    def u32_le(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def i32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)


def _copy_back(out: bytearray, distance: int, length: int, start: int = 0) -> None:
    if not 0 < distance <= len(out) - start:
        raise MalformedError("a copy reaches back before the beginning")
    for _ in range(length):
        out.append(out[-distance])


def _check(out: bytearray, limit: int) -> None:
    if len(out) > limit:
        raise TooLargeError


# --- snappy ---------------------------------------------------------------------------------------


def _snappy_block(block: bytes, limit: int) -> bytes:
    source = Source(block)
    declared = shift = 0
    while True:
        byte = source.u8()
        declared |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise MalformedError("the preamble is too long")
    if declared > 22 * len(block):
        raise MalformedError("the preamble lies")
    if declared > limit:
        raise TooLargeError
    out = bytearray()
    while source.left:
        tag = source.u8()
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                length = int.from_bytes(source.take(length - 59), "little")
            out += source.take(length + 1)
        elif tag & 3 == 1:
            _copy_back(out, (tag >> 5) << 8 | source.u8(), (tag >> 2 & 7) + 4)
        else:
            size = 2 if tag & 3 == 2 else 4
            _copy_back(out, int.from_bytes(source.take(size), "little"), (tag >> 2) + 1)
        if len(out) > declared:
            raise MalformedError("more than declared")
    if len(out) != declared:
        raise MalformedError("less than declared")
    return bytes(out)


_XERIAL = bytes.fromhex("82534e4150505900")


def _snappy(data: bytes, limit: int) -> bytes:
    if len(data) < 16 or data[:8] != _XERIAL:
        return _snappy_block(data, limit)
    source = Source(data)
    out = bytearray()
    while source.left:
        if source.left >= 16 and data[source.pos : source.pos + 8] == _XERIAL:
            _, version, _ = struct.unpack(">8sii", source.take(16))
            if version < 1:
                raise MalformedError("xerial version")
            continue
        out += _snappy_block(source.take(source.i32()), limit - len(out))
    return bytes(out)


# --- lz4 ------------------------------------------------------------------------------------------


def _lz4_length(source: Source, nibble: int) -> int:
    length = nibble
    while nibble == 15:
        byte = source.u8()
        length += byte
        if byte != 255:
            break
    return length


def _lz4_block(block: bytes, out: bytearray, start: int, most: int) -> None:
    """Append a block; matches may reach back to ``start``."""
    source = Source(block)
    before = len(out)
    while True:
        token = source.u8()
        out += source.take(_lz4_length(source, token >> 4))
        if not source.left:
            break
        distance = int.from_bytes(source.take(2), "little")
        length = _lz4_length(source, token & 15) + 4
        if len(out) - before + length > most:
            raise MalformedError("the block is too large")
        if distance == 0:
            raise MalformedError(UNDEFINED)
        _copy_back(out, distance, length, start)
    if len(out) - before > most:
        raise MalformedError("the block is too large")


def _lz4(data: bytes, limit: int, magic: int) -> bytes:
    source = Source(data)
    if source.u32_le() != 0x184D2204:
        raise MalformedError("frame magic")
    flags, descriptor = source.u8(), source.u8()
    if flags >> 6 != 1 or flags & 0x03 or descriptor & 0x8F or descriptor >> 4 < 4:
        raise MalformedError("frame descriptor")
    if flags & 0x08:
        source.take(8)
    expected = xxh32(data[4 : source.pos]) >> 8 & 0xFF
    if source.u8() != expected and magic != 0:
        raise MalformedError("header checksum")
    most = 1 << (8 + 2 * (descriptor >> 4))
    out = bytearray()
    while word := source.u32_le():
        block = source.take(word & 0x7FFFFFFF)
        if len(block) > most:
            raise MalformedError("block size")
        if flags & 0x10 and source.u32_le() != xxh32(block):
            raise MalformedError("block checksum")
        if word >> 31:
            out += block
        else:
            _lz4_block(block, out, len(out) if flags & 0x20 else 0, most)
        _check(out, limit)
    return bytes(out)


# --- gzip and zstd --------------------------------------------------------------------------------


def _gzip(data: bytes, limit: int) -> bytes:
    out = bytearray()
    while True:
        # Java and isal do not look at the reserved flags; zlib does.
        data = data[:3] + bytes(flags & 0x1F for flags in data[3:4]) + data[4:]
        member = zlib.decompressobj(31)
        try:
            out += member.decompress(data, limit + 1 - len(out))
        except zlib.error as error:
            raise MalformedError(str(error)) from error
        _check(out, limit)
        if not member.eof:
            raise MalformedError("cut short")
        data = member.unused_data
        if len(data) < 10 or data[:3] != b"\x1f\x8b\x08":
            return bytes(out)


def _zstd(data: bytes, limit: int) -> bytes:
    out = bytearray()
    while True:
        frame = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        try:
            out += frame.decompress(data)
        except zstandard.ZstdError as error:
            raise MalformedError(str(error)) from error
        _check(out, limit)
        if not frame.eof:
            raise MalformedError("cut short")
        data = frame.unused_data
        if not data:
            return bytes(out)


def decompress(codec: int, data: bytes, limit: int, magic: int = 2) -> bytes:
    """What a batch's blob holds; ``limit`` bounds the output."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _gzip(data, limit)
        case Codec.SNAPPY:
            return _snappy(data, limit)
        case Codec.LZ4:
            return _lz4(data, limit, magic)
        case Codec.ZSTD:
            return _zstd(data, limit)
        case _:
            raise MalformedError(f"codec {codec}")
