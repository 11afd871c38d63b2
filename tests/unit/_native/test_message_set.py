"""Messages of magic 0 and 1: plain, wrapped, mixed with record batches, and damaged."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest

from kfast.errors import CorruptRecordError, UnsupportedCompressionTypeError
from kfast.testing.batches import Record
from tests.reference import golden
from tests.reference.batches import encode_message, encode_message_set, encode_record_batch
from tests.reference.compression import Codec, compress
from tests.reference.decoder import DecodedRecord
from tests.reference.native import decode

RECORDS = [Record(b"k", b"v", (), 1000), Record(None, b"w", (), 1005)]
LEGACY_CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


def corrupt(data: bytes) -> CorruptRecordError:
    got = decode(data)
    assert got.records == []
    assert isinstance(got.error, CorruptRecordError)
    return got.error


@pytest.mark.parametrize("name", golden.MESSAGE_SETS)
def test_golden_message_sets(name: str) -> None:
    """D-01, D-15, D-18: what Java wrote; LZ4 in magic 0 has the odd header checksum."""
    got = decode(golden.MESSAGE_SETS[name])
    assert got.error is None
    if name.startswith("v0"):
        times = [(-1, -1), (-1, -1)]
    elif "LogAppendTime" in name:
        times = [(golden.LOG_APPEND_TIME, 1)] * 2
    else:
        times = [(1000, 0), (1005, 0)]
    assert got.records == [
        DecodedRecord(100, *times[0], b"k", b"v"),
        DecodedRecord(101, *times[1], None, b"w"),
    ]
    assert got.next_offset == 102
    assert got.decoder.leader_epoch == -1


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, *LEGACY_CODECS])
def test_plain_and_wrapped(magic: int, codec: Codec) -> None:
    """D-02, D-18: null and empty, holes in the offsets."""
    records = [
        Record(None, None, (), 5, 0),
        Record(b"", b"", (), 6, 3),
        Record(b"key", b"x" * 300, (), 7, 4),
    ]
    got = decode(encode_message_set(records, 10, codec, magic=magic))
    assert [(r.offset, r.key, r.value) for r in got.records] == [
        (10, None, None),
        (13, b"", b""),
        (14, b"key", b"x" * 300),
    ]
    assert [r.timestamp for r in got.records] == ([5, 6, 7] if magic else [-1] * 3)
    assert got.next_offset == 15


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_append_time(codec: Codec) -> None:
    """D-12, D-18: on the entry, or on the wrapper for all inside."""
    got = decode(encode_message_set(RECORDS, 0, codec, log_append_time=99)).records
    assert [(r.timestamp, r.timestamp_type) for r in got] == [(99, 1), (99, 1)]


def test_old_producers_wrote_offset_0_on_the_wrapper() -> None:
    """D-18, D-19: then inner offsets count from 0."""
    data = encode_message_set(RECORDS, 0, Codec.GZIP, wrapper_offset=0)
    got = decode(data)
    assert [r.offset for r in got.records] == [0, 1]
    assert got.next_offset == 2
    # The wrapper does not have the offsets, so it has to be decompressed.
    assert [r.offset for r in decode(data, 1).records] == [1]
    assert decode(data, 2).records == []


def test_one_response_mixes_everything() -> None:
    """D-18: magics, codecs and timestamp types, in one chunk and in many."""
    parts = [
        encode_message_set(RECORDS, 0, magic=0),
        encode_message_set(RECORDS, 2, Codec.LZ4, magic=0),
        encode_message_set(RECORDS, 4, magic=1),
        encode_message_set(RECORDS, 6, Codec.SNAPPY, magic=1, log_append_time=50),
        encode_record_batch([replace(r, headers=(("h", b"1"),)) for r in RECORDS], 8),
        encode_record_batch(RECORDS, 10, Codec.ZSTD, log_append_time=60),
        encode_message_set(RECORDS, 12, magic=1, log_append_time=70),
        encode_message_set(RECORDS, 14, magic=0),
    ]
    for max_bytes in (1, 1 << 20):
        got = decode(b"".join(parts), max_bytes=max_bytes)
        assert got.error is None
        rows = got.records
        assert [r.offset for r in rows] == list(range(16))
        assert [(r.key, r.value) for r in rows] == [(b"k", b"v"), (None, b"w")] * 8
        assert [r.timestamp_type for r in rows] == [-1] * 4 + [0, 0, 1, 1, 0, 0, 1, 1, 1, 1, -1, -1]
        assert [r.timestamp for r in rows[4:12]] == [1000, 1005, 50, 50, 1000, 1005, 60, 60]
        assert [len(r.headers) for r in rows] == [0] * 8 + [1, 1] + [0] * 6


def test_entries_before_the_position_are_left_out() -> None:
    """F-04: plain ones and those inside a wrapper."""
    plain = encode_message_set(RECORDS, 10)
    wrapped = encode_message_set(RECORDS, 12, Codec.GZIP)
    assert [r.offset for r in decode(plain + wrapped, 11).records] == [11, 12, 13]
    assert [r.offset for r in decode(plain + wrapped, 13).records] == [13]


def test_wrappers_before_the_position_are_not_decompressed() -> None:
    """F-04: their bytes do not even have to be a stream."""
    bad = encode_message_set(RECORDS, 10, Codec.GZIP, payload=b"no stream")
    assert decode(bad, 12).error is None
    assert isinstance(decode(bad, 11).error, CorruptRecordError)


def test_a_partial_entry_ends_in_silence() -> None:
    """D-05: as with record batches."""
    data = encode_message_set(RECORDS, 10)
    for cut in range(1, 37):
        got = decode(data[:-cut])
        if len(got.records) == 0:
            break
        assert (got.error, got.next_offset) == (None, 11)


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
def test_checksums(magic: int) -> None:
    """D-03, D-04: CRC-32 over everything from the magic on."""
    data = encode_message_set(RECORDS[:1], 0, magic=magic)
    for bit in range(16 * 8 + 8, len(data) * 8):
        bent = bytearray(data)
        bent[bit // 8] ^= 1 << bit % 8
        assert corrupt(bytes(bent)).next_offset == 1
    wrong = data[:12] + b"\0\0\0\0" + data[16:]
    assert len(decode(wrong, check_crcs=False).records) == 1


def reseal(entry: bytes) -> bytes:
    return entry[:12] + struct.pack(">I", zlib.crc32(entry[16:])) + entry[16:]


@pytest.mark.parametrize("length", [-1, 0, 13, 21, 2**31 - 1])
def test_impossible_lengths(length: int) -> None:
    """D-07: below the fields of the magic, or beyond an int32."""
    data = encode_message_set(RECORDS[:1], 0, magic=1)
    assert "length" in (corrupt(data[:8] + struct.pack(">i", length) + data[12:]).cause or "")


@pytest.mark.parametrize("position", [26, 31])
@pytest.mark.parametrize("length", [-2, 2, 100, 2**31 - 1, -(2**31)])
def test_lengths_that_do_not_add_up(position: int, length: int) -> None:
    """D-09: of key and value."""
    data = encode_message_set(RECORDS[:1], 0, magic=1)
    assert corrupt(reseal(data[:position] + struct.pack(">i", length) + data[position + 4 :]))


def wrapper(
    payload: bytes | None, codec: int = Codec.GZIP, magic: int = 1, offset: int = 1
) -> bytes:
    return encode_message(Record(value=payload), offset, magic, codec)


def plain_set(magic: int = 1, offsets: tuple[int, ...] = (0, 1), attributes: int = 0) -> bytes:
    return b"".join(encode_message(Record(value=b"v"), o, magic, attributes) for o in offsets)


BAD_WRAPPERS = {
    "null value": wrapper(None),
    "empty value": wrapper(b""),
    "nothing inside": wrapper(compress(Codec.GZIP, b"")),
    "compressed twice": wrapper(compress(Codec.GZIP, plain_set(attributes=Codec.GZIP))),
    "another magic inside": wrapper(compress(Codec.GZIP, plain_set(magic=0))),
    "magic 2 inside": wrapper(compress(Codec.GZIP, encode_record_batch(RECORDS))),
    "cut short inside": wrapper(compress(Codec.GZIP, plain_set()[:-1])),
    "a few bytes more": wrapper(compress(Codec.GZIP, plain_set() + bytes(5))),
    "offset below the last inside": wrapper(compress(Codec.GZIP, plain_set(offsets=(0, 5)))),
    "offsets not ascending": wrapper(compress(Codec.GZIP, plain_set(offsets=(1, 1)))),
    "negative offset inside": wrapper(compress(Codec.GZIP, plain_set(offsets=(-1, 1)))),
    "magic 0, offset below": wrapper(compress(Codec.GZIP, plain_set(0, (7, 8))), magic=0, offset=5),
    "zstd": wrapper(compress(Codec.ZSTD, plain_set()), Codec.ZSTD),
}


@pytest.mark.parametrize("name", BAD_WRAPPERS)
def test_bad_wrappers(name: str) -> None:
    """D-19, D-06: nothing of such a wrapper comes out."""
    got = decode(encode_message_set(RECORDS[:1], 0) + BAD_WRAPPERS[name], 0)
    assert [r.offset for r in got.records] == [0]
    assert isinstance(got.error, CorruptRecordError)
    assert got.next_offset == 1


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    """D-16: as in magic 2."""
    got = decode(wrapper(b"x", codec))
    assert isinstance(got.error, UnsupportedCompressionTypeError)
    assert f"codec id {codec}" in str(got.error)


def test_the_wrapper_is_capped() -> None:
    """D-17: old formats too."""
    data = encode_message_set([Record(value=bytes(100_000))], 0, Codec.GZIP)
    assert len(decode(data, limit=200_000).records) == 1
    assert decode(data, limit=50_000).error is not None
