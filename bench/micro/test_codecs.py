"""Decompression and checksums: the functions kfast calls, against others of the same packages.

Each codec on the same bytes; the sizes are those of small, medium and full producer batches.
``codecs.pyx`` names the fastest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import cramjam
import crc32c as crc32c_package
import lz4.frame
import pytest
import zstandard

from bench.data import text_values
from kfast._native import codecs, crc32c
from tests.reference.compression import Codec, compress, snappy_raw

SIZES = (1_000, 16_000, 131_000)
CRC_SIZES = (100, 1_000, 4_096, 16_384, 131_072)


@functools.cache
def plain_bytes(size: int) -> bytes:
    return b"".join(text_values(100, count=size // 100 + 1))[:size]


def record(benchmark: Any, row: str, size: int, work: Callable[[], object]) -> None:
    benchmark(work)
    benchmark.extra_info.update(row=row, bytes=size)
    if benchmark.stats is not None:
        seconds = benchmark.stats.stats.min
        benchmark.extra_info.update(us=seconds * 1e6, gb_per_s=size / seconds / 1e9)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", [c for c in Codec if c is not Codec.NONE])
def test_kfast(benchmark: Any, codec: Codec, size: int) -> None:
    blob = compress(codec, plain_bytes(size))
    work = lambda: codecs.decompress(codec, blob, 1 << 28)  # noqa: E731
    record(benchmark, f"kfast {codec.name.lower()}", size, work)


def _zstd_one_shot(blob: bytes, size: int) -> object:
    return zstandard.ZstdDecompressor().decompress(blob, max_output_size=size + 1)


def _gzip_cramjam(blob: bytes, size: int) -> object:
    return cramjam.gzip.decompress_into(blob, bytearray(size))


def _lz4_cramjam(blob: bytes, size: int) -> object:
    return cramjam.lz4.decompress_into(blob, bytearray(size))


def _zstd_cramjam(blob: bytes, size: int) -> object:
    return cramjam.zstd.decompress_into(blob, bytearray(size))


OTHERS: dict[str, tuple[Codec, Callable[[bytes, int], object]]] = {
    "cramjam.gzip.decompress_into": (Codec.GZIP, _gzip_cramjam),
    "lz4.frame.decompress": (Codec.LZ4, lambda blob, _: lz4.frame.decompress(blob)),
    "cramjam.lz4.decompress_into": (Codec.LZ4, _lz4_cramjam),
    "zstandard one-shot, new context": (Codec.ZSTD, _zstd_one_shot),
    "cramjam.zstd.decompress_into": (Codec.ZSTD, _zstd_cramjam),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", OTHERS)
def test_other_calls(benchmark: Any, name: str, size: int) -> None:
    codec, call = OTHERS[name]
    blob = compress(codec, plain_bytes(size))
    record(benchmark, name, size, lambda: call(blob, size))


@pytest.mark.parametrize("size", SIZES)
def test_raw_snappy(benchmark: Any, size: int) -> None:
    blob = snappy_raw(plain_bytes(size))
    work = lambda: codecs.decompress(Codec.SNAPPY, blob, 1 << 28)  # noqa: E731
    record(benchmark, "kfast snappy, one raw block", size, work)


@pytest.mark.parametrize("size", CRC_SIZES)
@pytest.mark.parametrize("name", ["crc32c package", "kfast crc32c"])
def test_crc32c(benchmark: Any, name: str, size: int) -> None:
    """Both called from Python; in the decoder kfast's costs no call and no GIL."""
    data = plain_bytes(size)
    if name == "kfast crc32c":
        if crc32c.crc32c_hardware(b"") is None:
            pytest.skip("no CRC instruction here")
        record(benchmark, name, size, lambda: crc32c.crc32c_hardware(data))
    else:
        record(benchmark, name, size, lambda: crc32c_package.crc32c(data))
