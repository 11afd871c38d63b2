"""Record batches of magic 2: the golden bytes, every field's rule, and what damage does."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kfast.errors import CorruptRecordError, UnsupportedCompressionTypeError
from kfast.testing.batches import HEADER_SIZE, Record, encode_record, encode_records, varint
from tests.reference import golden
from tests.reference.batches import encode_batch_header, encode_record_batch, with_crc
from tests.reference.compression import Codec, compress
from tests.reference.decoder import DecodedRecord
from tests.reference.native import Decoded, decode

MAX = 2**63 - 1
RECORDS = [Record(b"key", b"value", (("h", b"x"),), 1000), Record(None, b"", (), 1005)]


def corrupt(data: bytes, *, check_crcs: bool = True) -> CorruptRecordError:
    """Decode a batch that must be refused, with nothing handed out."""
    got = decode(data, check_crcs=check_crcs)
    assert got.records == []
    assert got.next_offset == 0
    assert isinstance(got.error, CorruptRecordError)
    return got.error


def cause(data: bytes) -> str:
    text = corrupt(data).cause
    assert text is not None
    return text


def batch_of(payload: bytes, count: int = 1, **fields: int) -> bytes:
    """A batch around a records section made by hand; the checksum is right."""
    fields.setdefault("last_offset_delta", max(count - 1, 0))
    return encode_batch_header(payload, records_count=count, **fields)


# --- golden ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", golden.V2)
def test_golden_batches(codec: str) -> None:
    """D-01: what the Java client wrote, in each codec."""
    got = decode(golden.V2[codec])
    assert got.error is None
    assert got.records == [
        DecodedRecord(0, 1000, 0, b"k", b"v", ((b"h", b"x"),)),
        DecodedRecord(1, 1005, 0, None, b"", ((b"n", None),)),
    ]
    assert got.next_offset == 2
    assert got.decoder.leader_epoch == -1


def test_golden_transaction_data() -> None:
    """D-01: a transactional batch, both markers, an emptied batch."""
    data = golden.TRANSACTION_DATA + golden.COMMIT_MARKER + golden.EMPTIED
    got = decode(data)
    assert [(r.offset, r.timestamp, r.value) for r in got.records] == [
        (3, 1000, b"a"),
        (4, 1001, b"b"),
    ]
    assert got.next_offset == 20
    assert got.decoder.leader_epoch == 4
    assert decode(golden.ABORT_MARKER).records == []


# --- content --------------------------------------------------------------------------------------


def test_null_and_empty_stay_apart() -> None:
    """D-02: keys, values and header values, with repeated header keys in order."""
    headers = (("a", None), ("a", b""), ("", b"x"), ("a", b"y"))
    records = [
        Record(key, value, headers) for key in (None, b"", b"k") for value in (None, b"", b"v")
    ]
    got = decode(encode_record_batch(records)).records
    assert [(r.key, r.value) for r in got] == [(r.key, r.value) for r in records]
    expected = tuple((str(key).encode(), value) for key, value in headers)
    assert all(r.headers == expected for r in got)


def test_header_columns_exist_only_when_needed() -> None:
    """D-02: a record without headers beside one with; none at all means no columns."""
    plain = encode_record_batch([Record(value=b"v")] * 3)
    (chunk,) = decode(plain).chunks
    assert chunk.header_starts is None
    assert chunk.header_counts is None
    mixed = encode_record_batch([Record(), replace(RECORDS[0]), Record()], base_offset=3)
    got = decode(plain + mixed)
    assert [len(r.headers) for r in got.records] == [0, 0, 0, 0, 1, 0]


def test_offsets_come_from_the_records() -> None:
    """D-11: holes left by compaction, at the end too."""
    records = [Record(value=b"v", offset_delta=delta) for delta in (2, 3, 7)]
    got = decode(encode_record_batch(records, base_offset=100, last_offset_delta=9))
    assert [r.offset for r in got.records] == [102, 103, 107]
    assert got.next_offset == 110


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_emptied_batches_move_on(codec: Codec) -> None:
    """D-11, F-05: no record, but offsets; the codec bits may have stayed."""
    data = encode_batch_header(b"", base_offset=10, attributes=codec, last_offset_delta=9)
    got = decode(data)
    assert (got.records, got.next_offset, got.error) == ([], 20, None)
    (chunk,) = got.chunks
    assert (len(chunk), chunk.base_offset, chunk.next_offset) == (0, 20, 20)


def test_create_time_and_append_time() -> None:
    """D-12: base + delta, also negative and with the delete horizon bit; or one for all."""
    records = [Record(value=b"v", timestamp=t) for t in (50, 20, 2**41, -1)]
    create = decode(encode_record_batch(records)).records
    assert [(r.timestamp, r.timestamp_type) for r in create] == [
        (50, 0),
        (20, 0),
        (2**41, 0),
        (-1, 0),
    ]
    horizon = decode(encode_record_batch(records, delete_horizon=10**12)).records
    assert [r.timestamp for r in horizon] == [50, 20, 2**41, -1]
    append = decode(encode_record_batch(records, log_append_time=77)).records
    assert [(r.timestamp, r.timestamp_type) for r in append] == [(77, 1)] * 4


def test_timestamp_types_may_differ_within_a_chunk() -> None:
    """D-12: one int while they agree, a column once they do not."""
    create = encode_record_batch([Record(timestamp=5)] * 2)
    append = encode_record_batch([Record(timestamp=5)], 2, log_append_time=9)
    again = encode_record_batch([Record(timestamp=6)], 3)
    assert decode(create).chunks[0].timestamp_types == 0
    assert decode(append).chunks[0].timestamp_types == 1
    (chunk,) = decode(create + append + again).chunks
    assert not isinstance(chunk.timestamp_types, int)
    assert bytes(chunk.timestamp_types) == bytes([0, 0, 1, 0])
    got = decode(create + append + again).records
    assert [r.timestamp for r in got] == [5, 5, 9, 6]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_gives_the_same_columns(codec: Codec) -> None:
    """D-13: and so does a mix of them in one response."""
    expected = decode(encode_record_batch(RECORDS)).records
    assert decode(encode_record_batch(RECORDS, codec=codec)).records == expected
    data = b"".join(encode_record_batch(RECORDS, 2 * i, c) for i, c in enumerate([*Codec] * 2))
    got = decode(data).records
    assert [r.offset for r in got] == list(range(20))
    assert [replace(r, offset=0) for r in got] == [replace(r, offset=0) for r in expected] * 10


def test_sizes_around_every_varint_boundary() -> None:
    """D-10: keys and values whose lengths take one, two, three and four bytes."""
    sizes = (0, 1, 63, 64, 65, 8191, 8192, 1 << 20, (1 << 20) + 1)
    records = [Record(bytes(k), bytes(v)) for k in sizes[:6] for v in sizes]
    got = decode(encode_record_batch(records), max_bytes=1 << 26).records
    assert [(len(r.key or b""), len(r.value or b"")) for r in got] == [
        (len(r.key or b""), len(r.value or b"")) for r in records
    ]


# --- the header -----------------------------------------------------------------------------------

GOOD = encode_record_batch(RECORDS)


def with_field(position: int, code: str, value: int, *, fix: bool = True) -> bytes:
    size = struct.calcsize(code)
    bent = GOOD[:position] + struct.pack(f">{code}", value) + GOOD[position + size :]
    return with_crc(bent) if fix else bent


def test_a_bad_checksum_is_loud() -> None:
    """D-03: topic, partition, base and next offset; no records unless check_crcs=False."""
    data = encode_record_batch(RECORDS, base_offset=40)
    bent = bytearray(data)
    bent[-3] ^= 1
    got = decode(bytes(bent))
    error = got.error
    assert isinstance(error, CorruptRecordError)
    assert (error.topic, error.partition, error.offset, error.next_offset) == ("t", 3, 40, 42)
    assert got.records == []
    assert "t-3: the batch at offset 40 is corrupt" in str(error)
    assert "checksum" in str(error)
    assert "seek to offset 42" in str(error)
    assert not error.retriable
    wrong_crc = data[:17] + b"\0\0\0\0" + data[21:]
    assert isinstance(decode(wrong_crc).error, CorruptRecordError)
    assert len(decode(wrong_crc, check_crcs=False).records) == 2


@pytest.mark.parametrize("size", [100, 5000, 100_000])
def test_checksums_are_verified_at_every_size(size: int) -> None:
    """D-03: short batches and long ones take different ways."""
    data = bytearray(encode_record_batch([Record(value=bytes(size))]))
    assert len(decode(bytes(data)).records) == 1
    data[-2] ^= 0x80
    assert "checksum" in cause(bytes(data))


@pytest.mark.parametrize("codec", list(Codec))
def test_no_flipped_bit_gives_wrong_records(codec: Codec) -> None:
    """D-04: every bit from byte 16 on."""
    data = encode_record_batch(RECORDS, codec=codec)
    expected = decode(data).records
    assert len(expected) == 2
    for bit in range(16 * 8, len(data) * 8):
        bent = bytearray(data)
        bent[bit // 8] ^= 1 << bit % 8
        got = decode(bytes(bent))
        assert got.records == []
        assert got.next_offset == 0
        assert isinstance(got.error, CorruptRecordError)


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (-1, "length"),
        (-(2**31), "length"),
        (0, "length"),
        (48, "length"),
        (2**31 - 1, "length"),
        (2**31 - 12, "length"),
    ],
)
def test_impossible_lengths(length: int, text: str) -> None:
    """D-07: negative, below the header, or past an int32 with what precedes it."""
    error = corrupt(with_field(8, "i", length, fix=False) + bytes(100))
    assert text in (error.cause or "")
    assert str(length) in (error.found or "")
    assert error.next_offset == 1


def test_the_greatest_length_is_a_partial_batch() -> None:
    """D-07: the largest legal length is only not there yet."""
    got = decode(GOOD + with_field(8, "i", 2**31 - 13, fix=False))
    assert (len(got.records), got.error) == (2, None)


@pytest.mark.parametrize(
    ("position", "code", "value", "text"),
    [
        (23, "i", -1, "last offset delta"),
        (23, "i", -(2**31), "last offset delta"),
        (57, "i", -1, "record count"),
        (57, "i", -(2**31), "record count"),
        (57, "i", 2**31 - 1, "record count"),
        (57, "i", 1000, "record count"),
        (57, "i", 3, "its count"),
        (57, "i", 1, "its count"),
        (57, "i", 0, "its count"),
    ],
)
def test_impossible_header_fields(position: int, code: str, value: int, text: str) -> None:
    """D-07, D-08: refused before anything of that size is allocated."""
    assert text in cause(with_field(position, code, value))


@pytest.mark.parametrize(
    ("base", "delta"), [(-1, 1), (-(2**63), 1), (MAX, 1), (MAX - 1, 1), (MAX - 5, 2**31 - 1)]
)
def test_offsets_beyond_64_bits(base: int, delta: int) -> None:
    """D-07: negative, or past the last offset that has a next one."""
    data = encode_record_batch(RECORDS, base_offset=abs(base) % 2**62, last_offset_delta=delta)
    bent = struct.pack(">q", base) + data[8:]
    error = corrupt(bent)
    assert "offsets" in (error.cause or "")
    assert error.next_offset > 0


def test_the_last_offsets_of_all_work() -> None:
    data = encode_record_batch(RECORDS, base_offset=MAX - 2)
    assert [r.offset for r in decode(data).records] == [MAX - 2, MAX - 1]
    assert decode(data).next_offset == MAX


@pytest.mark.parametrize("magic", [3, 4, 127, -1, -128])
def test_unknown_magic(magic: int) -> None:
    """D-16: never skipped; offset and value are named."""
    got = decode(encode_record_batch(RECORDS) + with_field(16, "b", magic, fix=False))
    assert len(got.records) == 2
    assert isinstance(got.error, CorruptRecordError)
    assert f"magic {magic}" in str(got.error)
    assert got.error.offset == 0


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    """D-16: never skipped; offset and id are named."""
    data = encode_record_batch(RECORDS, base_offset=8)
    bent = with_crc(data[:21] + struct.pack(">h", codec) + data[23:])
    got = decode(bent)
    assert got.records == []
    assert isinstance(got.error, UnsupportedCompressionTypeError)
    assert got.error.offset == 8
    assert f"codec id {codec}" in str(got.error)


def test_other_attribute_bits_do_not_matter() -> None:
    data = with_crc(GOOD[:21] + struct.pack(">h", 0x7F80 - 2**15 + 0x8000 - 0x80) + GOOD[23:])
    assert len(decode(data).records) == 2


# --- records --------------------------------------------------------------------------------------


def record_of(*fields: bytes) -> bytes:
    body = b"".join(fields)
    return varint(len(body)) + body


HEAD = b"\0" + varint(0) + varint(0)
NULL = varint(-1)

BAD_RECORDS = {
    "length below the least": varint(5) + HEAD + NULL * 2,
    "negative length": varint(-1) + bytes(7),
    "length past the end": varint(100) + HEAD + NULL * 2 + b"\0" * 4,
    "length larger than the fields": record_of(HEAD, NULL, NULL, varint(0), b"\0"),
    "length smaller than the fields": varint(6) + HEAD + NULL + varint(1) + b"v" + varint(0),
    "key length -2": record_of(HEAD, varint(-2), NULL, varint(0)),
    "key past the record": record_of(HEAD, varint(9), NULL, varint(0)),
    "key length 2^31-1": record_of(HEAD, varint(2**31 - 1), NULL, varint(0)),
    "value length -2": record_of(HEAD, NULL, varint(-2), varint(0)),
    "value past the record": record_of(HEAD, NULL, varint(9), varint(0)),
    "value length -2^31": record_of(HEAD, NULL, varint(-(2**31)), varint(0)),
    "header count -1": record_of(HEAD, NULL, NULL, varint(-1)),
    "header count too large": record_of(HEAD, NULL, NULL, varint(3), b"\0\0"),
    "header count 2^31-1": record_of(HEAD, NULL, NULL, varint(2**31 - 1), bytes(20)),
    "header key null": record_of(HEAD, NULL, NULL, varint(1), NULL, NULL),
    "header key past the record": record_of(HEAD, NULL, NULL, varint(1), varint(5), NULL),
    "header value -2": record_of(HEAD, NULL, NULL, varint(1), varint(0), varint(-2)),
    "header value past the record": record_of(HEAD, NULL, NULL, varint(1), varint(0), varint(3)),
    "fewer headers than bytes": record_of(HEAD, NULL, NULL, varint(1), varint(0), NULL, b"\0\0"),
    "no header count": record_of(HEAD, NULL, varint(1), b"v"),
    "six-byte varint": record_of(HEAD, b"\x81\x80\x80\x80\x80\x00", NULL, varint(0)),
    "varint beyond 32 bits": record_of(HEAD, b"\xff\xff\xff\xff\x1f", NULL, varint(0)),
    "eleven-byte varlong": record_of(b"\0" + b"\x80" * 10 + b"\0\0", NULL, NULL, varint(0)),
    "varlong beyond 64 bits": record_of(b"\0" + b"\x80" * 9 + b"\x02\0", NULL, NULL, varint(0)),
    "length in six bytes": b"\x8e\x80\x80\x80\x80\x00" + HEAD + NULL * 2 + varint(0),
    "varint cut by the end": record_of(HEAD, NULL, NULL, b"\x80"),
    "offset delta cut by the end": varint(6) + b"\0\0" + b"\x80" * 4,
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_bad_records(name: str) -> None:
    """D-06, D-09, D-10: whatever does not add up inside a record, alone, last or in the middle."""
    bad = BAD_RECORDS[name]
    good = encode_record(Record(b"k", b"v" * 30), 1, 0)
    assert cause(batch_of(bad))
    assert cause(batch_of(bad + good, 2))
    assert cause(batch_of(encode_record(Record(), 0, 0) + bad, 2))
    for codec in (Codec.GZIP, Codec.LZ4):
        assert cause(batch_of(compress(codec, bad), attributes=codec))


@pytest.mark.parametrize("length", [-(2**31), -(2**30), -12, -11, 0, 50, 2**31 - 1])
def test_a_length_beside_a_bad_magic_is_not_believed(length: int) -> None:
    """D-06: nothing is read where it points to."""
    data = struct.pack(">qiib", 5, length, 0, 9) + bytes(100)
    error = decode(data, position=5).error
    assert isinstance(error, CorruptRecordError)
    assert error.following_offset <= 0  # of the zeros behind, if any
    assert error.batch_bytes == (length + 12 if length > -12 else -1)


def test_a_bad_last_batch_is_not_a_truncated_tail() -> None:
    """D-06: after good ones, at the very end of the response."""
    data = encode_record_batch(RECORDS) + batch_of(BAD_RECORDS["key length -2"], base_offset=2)
    got = decode(data)
    assert len(got.records) == 2
    assert got.next_offset == 2
    assert isinstance(got.error, CorruptRecordError)


@pytest.mark.parametrize(
    "payload",
    [
        encode_records(RECORDS, 0) + b"\0",
        encode_records(RECORDS, 0) + bytes(20),
        encode_records(RECORDS[:1], 0),
        b"",
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_count_must_fit_the_records(payload: bytes, codec: Codec) -> None:
    """D-08: surplus bytes, missing records, nothing at all where there should be some."""
    body = compress(codec, payload)
    assert "count" in cause(batch_of(body, 2, attributes=codec)) or "record" in cause(
        batch_of(body, 2, attributes=codec)
    )


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (-1, 0), (0, 2), (0, 2**31 - 1)])
def test_offset_deltas_ascend_within_the_batch(deltas: Sequence[int]) -> None:
    """D-09, F-11: no offset twice, backwards, or past what the header says."""
    payload = b"".join(encode_record(Record(), delta, 0) for delta in deltas)
    assert "offsets do not ascend" in cause(batch_of(payload, 2))


def test_record_attributes_are_ignored() -> None:
    """Reserved by KIP-98, and never read."""
    record = record_of(b"\x7f" + HEAD[1:], NULL, NULL, varint(0))
    assert len(decode(batch_of(record)).records) == 1


def test_damage_in_a_stream_names_the_codec() -> None:
    """D-14: the codec's own words are in the message, the place is the batch's."""
    data = encode_record_batch(RECORDS, base_offset=4, codec=Codec.ZSTD)
    bent = with_crc(data[:HEADER_SIZE] + bytes(4) + data[HEADER_SIZE + 4 :])
    got = decode(bent)
    assert isinstance(got.error, CorruptRecordError)
    assert "zstd data is malformed: the frame magic is missing" in str(got.error)
    assert (got.error.offset, got.error.next_offset) == (4, 6)


def test_columns_are_alike_whether_or_not_they_fill_a_chunk() -> None:
    """D-13: many records over many chunks, plain and compressed, in order and complete."""
    records = [Record(b"%d" % i, b"v" * (i % 90)) for i in range(500)]
    data = b"".join(
        encode_record_batch(records[i : i + 7], i, Codec.LZ4 if i % 3 else Codec.NONE)
        for i in range(0, 497, 7)
    )
    outcomes: list[Decoded] = [decode(data, max_bytes=size) for size in (1, 700, 10_000, 1 << 30)]
    assert all(outcome.error is None for outcome in outcomes)
    rows = outcomes[0].records
    assert [r.key for r in rows] == [b"%d" % i for i in range(497)]
    assert all(outcome.records == rows for outcome in outcomes)
    assert len(outcomes[0].chunks) > len(outcomes[1].chunks) > len(outcomes[3].chunks)
