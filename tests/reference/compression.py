"""Compressors for test data, in the framings that Kafka producers use (KIP-57, KIP-110).

Owns nothing of kfast: stock libraries plus the parts that no library writes (xerial blocks, the
odd header checksum of LZ4 in magic 0). The matching decompressors are in ``decompression.py``.
"""

from __future__ import annotations

import gzip
import struct
from enum import IntEnum

import cramjam
import lz4.frame
import zstandard


class Codec(IntEnum):
    """Codec ids: bits 0-2 of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


XERIAL_HEADER = bytes.fromhex("82534e41505059000000000100000001")
XERIAL_BLOCK = 32 * 1024
LZ4_MAGIC = bytes.fromhex("04224d18")


def xxh32(data: bytes, seed: int = 0) -> int:
    """Plain xxHash32 (the LZ4 frame header checksum is its second byte)."""
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF

    def rotl(x: int, r: int) -> int:
        return ((x << r) | (x >> (32 - r))) & mask

    position = 0
    if len(data) >= 16:
        lanes = [(seed + p1 + p2) & mask, (seed + p2) & mask, seed, (seed - p1) & mask]
        while position + 16 <= len(data):
            for i, word in enumerate(struct.unpack_from("<4I", data, position)):
                lanes[i] = rotl((lanes[i] + word * p2) & mask, 13) * p1 & mask
            position += 16
        acc = sum(rotl(lane, r) for lane, r in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    else:
        acc = (seed + p5) & mask
    acc = (acc + len(data)) & mask
    while position + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, position)
        acc = rotl((acc + word * p3) & mask, 17) * p4 & mask
        position += 4
    for byte in data[position:]:
        acc = rotl((acc + byte * p5) & mask, 11) * p1 & mask
    acc = (acc ^ (acc >> 15)) * p2 & mask
    acc = (acc ^ (acc >> 13)) * p3 & mask
    return acc ^ (acc >> 16)


def gzip_compress(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def snappy_raw(data: bytes) -> bytes:
    """One bare snappy block, as some non-Java producers write."""
    return bytes(cramjam.snappy.compress_raw(data))


def snappy_xerial(data: bytes, block_size: int = XERIAL_BLOCK) -> bytes:
    """The xerial stream of the Java client: a header, then length-prefixed blocks."""
    out = [XERIAL_HEADER]
    for start in range(0, len(data), block_size):
        block = snappy_raw(data[start : start + block_size])
        out.append(struct.pack(">i", len(block)) + block)
    return b"".join(out)


def lz4_compress(
    data: bytes,
    *,
    block_size: int = lz4.frame.BLOCKSIZE_MAX64KB,
    block_checksum: bool = False,
    content_checksum: bool = False,
    store_size: bool = False,
    block_linked: bool = False,
) -> bytes:
    """An LZ4 frame; the defaults are what the Java producer writes."""
    return bytes(
        lz4.frame.compress(
            data,
            block_size=block_size,
            block_linked=block_linked,
            block_checksum=block_checksum,
            content_checksum=content_checksum,
            store_size=store_size,
        )
    )


def lz4_with_legacy_checksum(frame: bytes) -> bytes:
    """The same frame with the header checksum of magic 0 writers, who hash the magic as well."""
    end = 6 + (8 if frame[4] & 0x08 else 0)
    return frame[:end] + bytes([xxh32(frame[:end]) >> 8 & 0xFF]) + frame[end + 1 :]


def zstd_compress(data: bytes, level: int = 3, *, content_size: bool = False) -> bytes:
    """One zstd frame; Java writes no content size."""
    compressor = zstandard.ZstdCompressor(level=level, write_content_size=content_size)
    if content_size:
        return compressor.compress(data)
    chunks = compressor.compressobj()
    return chunks.compress(data) + chunks.flush()


def compress(codec: int, data: bytes, *, magic: int = 2) -> bytes:
    """What a Kafka producer writes for ``data`` with this codec."""
    match Codec(codec):
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return gzip_compress(data)
        case Codec.SNAPPY:
            return snappy_xerial(data)
        case Codec.LZ4:
            frame = lz4_compress(data)
            return lz4_with_legacy_checksum(frame) if magic == 0 else frame
        case Codec.ZSTD:
            return zstd_compress(data)
