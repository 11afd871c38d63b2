"""Decompression: every framing found in logs, and none of the ways to cheat."""

from __future__ import annotations

import contextlib
import importlib
import struct
import subprocess
import sys
import zlib
from importlib.util import find_spec

import pytest

from kfast._native.codecs import decompress
from kfast.errors import (
    CorruptRecordError,
    KafkaError,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
)
from tests.reference.compression import (
    XERIAL_HEADER,
    Codec,
    compress,
    gzip_compress,
    lz4_compress,
    lz4_with_legacy_checksum,
    snappy_raw,
    snappy_xerial,
    zstd_compress,
)

GZIP = importlib.import_module("isal.isal_zlib" if find_spec("isal") else "zlib")
CAP = 4 << 20
PLAIN = b"".join(b"%06d:%s;" % (i, b"abcdefgh"[: i % 9]) for i in range(20_000))
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]

every_codec = pytest.mark.parametrize("codec", COMPRESSED)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("plain", [b"", b"x", PLAIN[:1000], PLAIN])
def test_round_trip(codec: Codec, plain: bytes) -> None:
    """D-13: what a producer compressed comes back."""
    assert bytes(decompress(codec, compress(codec, plain), CAP)) == plain


@pytest.mark.parametrize(
    ("codec", "blob"),
    [
        (Codec.GZIP, gzip_compress(PLAIN[:70_000]) + gzip_compress(PLAIN[70_000:])),
        (Codec.GZIP, gzip_compress(PLAIN) + b"trailing junk is ignored"),
        (Codec.SNAPPY, snappy_raw(PLAIN)),
        (Codec.SNAPPY, snappy_xerial(PLAIN[:70_000]) + snappy_xerial(PLAIN[70_000:])),
        (Codec.SNAPPY, snappy_xerial(PLAIN, block_size=999)),
        (Codec.LZ4, lz4_compress(PLAIN, block_checksum=True)),
        (Codec.LZ4, lz4_compress(PLAIN, content_checksum=True, store_size=True)),
        (Codec.LZ4, lz4_compress(PLAIN, block_size=7)),
        (Codec.LZ4, lz4_compress(PLAIN, block_linked=True)),
        (Codec.LZ4, lz4_compress(PLAIN) + b"what follows the end mark is ignored"),
        (Codec.ZSTD, zstd_compress(PLAIN, content_size=True)),
        (Codec.ZSTD, zstd_compress(PLAIN[:9]) + zstd_compress(PLAIN[9:], content_size=True)),
        (Codec.ZSTD, struct.pack("<II", 0x184D2A53, 4) + b"skip" + zstd_compress(PLAIN)),
    ],
)
def test_framings(codec: Codec, blob: bytes) -> None:
    """D-14: several members, frames and headers; sizes and checksums present or not."""
    assert bytes(decompress(codec, blob, CAP)) == PLAIN


@every_codec
def test_a_stream_cut_short_is_corrupt(codec: Codec) -> None:
    """D-14: at any byte, even one that only ends a checksum or an end mark."""
    blob = compress(codec, PLAIN[:3000])
    # A xerial stream has no end mark; the count of records shows that blocks are missing.
    whole = {len(XERIAL_HEADER)} if codec is Codec.SNAPPY else set()
    for cut in set(range(len(blob))) - whole:
        with pytest.raises(CorruptRecordError):
            decompress(codec, blob[:cut], CAP)


@every_codec
def test_a_second_piece_cut_short_is_corrupt(codec: Codec) -> None:
    """D-14: the same for the last of several."""
    whole = compress(codec, PLAIN[:500])
    if codec is Codec.LZ4:
        return  # what follows the first frame is not looked at, as in Java
    with pytest.raises(CorruptRecordError):
        decompress(codec, whole + whole[:-3], CAP)


@every_codec
@pytest.mark.parametrize("blob", [b"", b"\xff" * 40, b"not compressed at all"])
def test_anything_else_is_corrupt(codec: Codec, blob: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(codec, blob, CAP)


# --- the cap --------------------------------------------------------------------------------------


@every_codec
def test_the_cap_is_exact(codec: Codec) -> None:
    """D-17: the cap itself is fine, one byte less is not."""
    blob = compress(codec, PLAIN)
    assert len(decompress(codec, blob, len(PLAIN))) == len(PLAIN)
    for cap in (len(PLAIN) - 1, 100, 0):
        with pytest.raises(RecordTooLargeError) as caught:
            decompress(codec, blob, cap)
        assert caught.value.hint is not None
        assert "max_decompressed_batch_bytes" in caught.value.hint


def test_plain_bytes_obey_the_cap_too() -> None:
    with pytest.raises(RecordTooLargeError):
        decompress(Codec.NONE, b"xx", 1)


BOMBS = """
import resource, sys
from kfast._native.codecs import decompress
from kfast.errors import RecordTooLargeError
from tests.reference.compression import Codec, compress
import cramjam, lz4.block, lz4.frame, zlib, zstandard  # not counted
codecs = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
blobs = {codec: compress(codec, bytes(256 << 20)) for codec in codecs}
for codec, blob in blobs.items():
    decompress(codec, compress(codec, b"warm"), 100)
status = open("/proc/self/statm").read().split()
used = int(status[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
for codec, blob in blobs.items():
    try:
        decompress(codec, blob, 8 << 20)
    except RecordTooLargeError:
        print(codec.name)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_bomb_costs_no_more_than_the_cap() -> None:
    """D-17: 256 MiB of zeros with a cap of 8 MiB, in a process with 64 MiB to spare."""
    done = subprocess.run(
        [sys.executable, "-c", BOMBS], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.split() == [codec.name for codec in COMPRESSED], done.stderr


def test_no_memory_in_a_codec_is_not_corruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """B-27: it is tried again; the data may be fine."""
    blob = gzip_compress(PLAIN)

    class Starved:
        eof = False

        def decompress(self, *_: object) -> bytes:
            raise GZIP.error("Error -4 while decompressing data")

    monkeypatch.setattr(GZIP, "decompressobj", lambda _: Starved())
    with pytest.raises(MemoryError):
        decompress(Codec.GZIP, blob, CAP)
    monkeypatch.undo()
    assert bytes(decompress(Codec.GZIP, blob, CAP)) == PLAIN


WINDOW = """
import resource
from kfast._native.codecs import decompress
from tests.unit._native.test_codecs import lying_zstd
assert len(decompress(4, lying_zstd(20), 100)) == 0
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20),) * 2)
try:
    decompress(4, lying_zstd(27), 100)
except MemoryError as error:
    print(error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_memory_for_a_window_is_not_corruption() -> None:
    """B-27: the window of a zstd frame is the codec's own memory."""
    done = subprocess.run(
        [sys.executable, "-c", WINDOW], capture_output=True, text=True, check=True
    )
    assert "not enough memory" in done.stdout, done.stderr


def lying_zstd(window_log: int) -> bytes:
    """A frame that claims a window and holds one empty block."""
    return bytes.fromhex("28b52ffd00") + bytes([(window_log - 10) << 3]) + b"\x01\x00\x00"


def test_declared_sizes_are_not_believed() -> None:
    """D-17: content size, window and preamble are claims."""
    assert bytes(decompress(Codec.ZSTD, lying_zstd(27), CAP)) == b""
    for window_log in (28, 31, 41):
        with pytest.raises(CorruptRecordError, match="malformed"):
            decompress(Codec.ZSTD, lying_zstd(window_log), CAP)
    gigabytes = bytes.fromhex("28b52ffde0") + struct.pack("<Q", 64 << 30) + b"\x01\x00\x00"
    with pytest.raises(CorruptRecordError):
        decompress(Codec.ZSTD, gigabytes, CAP)
    with pytest.raises(CorruptRecordError, match="malformed"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\x00\x00", CAP)
    frame = bytearray(lz4_compress(b"abc", store_size=True))
    frame[6:14] = struct.pack("<Q", 1 << 60)
    assert bytes(decompress(Codec.LZ4, bytes(frame), CAP, 0)) == b"abc"


# --- snappy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "blob",
    [
        XERIAL_HEADER[:8] + struct.pack(">ii", 0, 1) + struct.pack(">i", 0),
        XERIAL_HEADER + struct.pack(">i", -1),
        XERIAL_HEADER + struct.pack(">i", 100) + snappy_raw(b"abc"),
        XERIAL_HEADER + struct.pack(">i", 513 << 20) + snappy_raw(b"abc"),
        XERIAL_HEADER + struct.pack(">i", 0),
        XERIAL_HEADER + b"\x00\x00",
        snappy_xerial(b"abc") + XERIAL_HEADER[:12],
        b"\x05" + snappy_raw(b"abc")[1:],
        b"\x02" + snappy_raw(b"abc")[1:],
    ],
)
def test_bad_snappy(blob: bytes) -> None:
    """D-14: versions, block lengths and preambles."""
    with pytest.raises(CorruptRecordError):
        decompress(Codec.SNAPPY, blob, CAP)


def test_a_xerial_header_alone_is_empty() -> None:
    assert bytes(decompress(Codec.SNAPPY, XERIAL_HEADER * 2, CAP)) == b""


# --- lz4 ------------------------------------------------------------------------------------------


def test_the_header_checksum_counts_from_magic_1_on() -> None:
    """D-15: writers of magic 0 got it wrong, so there it is ignored."""
    good = lz4_compress(PLAIN[:100])
    assert good[6] == 0x82
    legacy = lz4_with_legacy_checksum(good)
    assert legacy[6] == 0x1A
    for frame in (good, legacy, good[:6] + b"\x55" + good[7:]):
        assert bytes(decompress(Codec.LZ4, frame, CAP, 0)) == PLAIN[:100]
    for magic in (1, 2):
        assert bytes(decompress(Codec.LZ4, good, CAP, magic)) == PLAIN[:100]
        with pytest.raises(CorruptRecordError, match="malformed") as caught:
            decompress(Codec.LZ4, legacy, CAP, magic)
        assert caught.value.cause == "the frame header checksum does not match"


def test_block_checksums_are_verified() -> None:
    """D-14: a flipped bit in a block with a checksum never comes through."""
    frame = bytearray(lz4_compress(bytes(range(256)), block_checksum=True))
    frame[40] ^= 1
    with pytest.raises(CorruptRecordError):
        decompress(Codec.LZ4, bytes(frame), CAP)


@pytest.mark.parametrize(
    ("position", "value"),
    [(4, 0xA0), (4, 0x62), (4, 0x61), (5, 0x30), (5, 0xC0), (5, 0x41), (0, 0x05)],
)
def test_lz4_descriptors_java_refuses(position: int, value: int) -> None:
    """D-15: version, reserved bits, dictionary, block size, magic."""
    frame = bytearray(lz4_compress(PLAIN[:100]))
    frame[position] = value
    with pytest.raises(CorruptRecordError):
        decompress(Codec.LZ4, bytes(frame), CAP, 0)


def test_an_lz4_block_may_not_exceed_its_frames_block_size() -> None:
    """D-17: 4 MiB in one block of a frame that says 64 KiB."""
    frame = bytearray(lz4_compress(bytes(4 << 20), block_size=7))
    frame[5] = 0x40
    with pytest.raises(CorruptRecordError):
        decompress(Codec.LZ4, bytes(frame), 8 << 20, 0)


# --- gzip and zstd --------------------------------------------------------------------------------


def test_gzip_checksums_are_verified() -> None:
    blob = bytearray(gzip_compress(PLAIN[:500]))
    for position in (-1, -8):
        bent = bytearray(blob)
        bent[position] ^= 1
        with pytest.raises(CorruptRecordError):
            decompress(Codec.GZIP, bytes(bent), CAP)


def test_zlib_streams_are_not_gzip() -> None:
    with pytest.raises(CorruptRecordError):
        decompress(Codec.GZIP, zlib.compress(b"abc"), CAP)


def test_junk_after_zstd_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError):
        decompress(Codec.ZSTD, zstd_compress(b"abc") + b"junk and more junk", CAP)


def test_flipped_bits_never_crash() -> None:
    """D-20: each byte of each stream, one bit at a time; only errors of kfast come out."""
    for codec in COMPRESSED:
        blob = compress(codec, PLAIN[:300])
        for position in range(len(blob)):
            bent = bytearray(blob)
            bent[position] ^= 1 << (position % 8)
            with contextlib.suppress(KafkaError):
                decompress(codec, bytes(bent), 1 << 16)


# --- what is not there ----------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [5, 6, 7, 42, -1])
def test_unknown_ids_are_named(codec: int) -> None:
    """D-16: the id is in the message."""
    with pytest.raises(UnsupportedCompressionTypeError, match=f"codec id {codec}"):
        decompress(codec, b"", CAP)


WITHOUT = """
import sys
from kfast.errors import UnsupportedCompressionTypeError
from tests.reference.batches import Record, encode_record_batch
from tests.reference.compression import Codec
from tests.reference.native import decode
batches = {{c: encode_record_batch([Record(value=bytes(999))], c, c) for c in Codec}}
sys.modules[{package!r}] = None  # kfast imports it when it first needs it
got = decode(batches[Codec.NONE] + batches[Codec.{codec}])
assert len(got.records) == 1
assert isinstance(got.error, UnsupportedCompressionTypeError)
assert {package!r} in str(got.error)
assert len(decode(batches[Codec.{other}]).records) == 1
"""


@pytest.mark.parametrize(
    ("codec", "package", "other"),
    [("ZSTD", "zstandard", "GZIP"), ("SNAPPY", "cramjam", "ZSTD"), ("LZ4", "cramjam", "GZIP")],
)
def test_a_missing_package_is_named(codec: str, package: str, other: str) -> None:
    """D-16: what needs it fails with its name, what does not need it works."""
    code = WITHOUT.format(codec=codec, package=package, other=other)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_gzip_without_isal() -> None:
    """D-16: the accelerator is optional."""
    code = (
        "import sys; sys.modules['isal'] = None\n"
        "from kfast._native.codecs import decompress\n"
        "from tests.reference.compression import gzip_compress\n"
        "assert bytes(decompress(1, gzip_compress(b'abc') * 2 + b'junk', 100)) == b'abcabc'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
