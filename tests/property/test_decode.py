"""The compiled decoder agrees with the oracle, and with two independent clients, on any input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfast._native.codecs import decompress
from kfast._native.varint import (
    decode_uvarint,
    decode_uvarlong,
    decode_varint,
    decode_varlong,
    encode_uvarint,
    encode_uvarlong,
    encode_varint,
    encode_varlong,
)
from kfast.errors import ProtocolError
from tests.property.record_data import (
    aborted_lists,
    compressed_blobs,
    message_sets,
    record_batches,
    record_lists,
    slices,
)
from tests.reference import decoder as oracle
from tests.reference.batches import encode_record_batch
from tests.reference.compression import Codec
from tests.reference.decompression import MalformedError, Source
from tests.reference.native import decode
from tests.reference.peers import (
    KAFKA_PYTHON_HAS_SNAPPY,
    aiokafka_rows,
    as_rows,
    kafka_python_rows,
)
from tests.soaking import examples

unhurried = settings(examples(100), suppress_health_check=[HealthCheck.too_slow])
"""The machine may be busy, or a sanitizer watch."""

chunk_sizes = st.sampled_from((1, 300, 1 << 20))


@unhurried
@given(
    data=slices(),
    position=st.sampled_from((0, 3, 101, 2**40 + 2)),
    aborted=aborted_lists,
    read_committed=st.booleans(),
    check_crcs=st.booleans(),
    max_bytes=chunk_sizes,
    cut=st.integers(0, 80),
)
def test_a_slice_decodes_as_the_oracle_says(
    data: bytes,
    position: int,
    aborted: list[tuple[int, int]],
    read_committed: bool,
    check_crcs: bool,
    max_bytes: int,
    cut: int,
) -> None:
    """D-02, D-05, D-11, D-12, D-18, F-04, F-05, T-01, T-02, T-03: any mix of batches."""
    data = data[: len(data) - cut]
    expected = oracle.decode_slice(
        data, position, aborted=aborted, read_committed=read_committed, check_crcs=check_crcs
    )
    got = decode(
        data,
        position,
        aborted=aborted,
        read_committed=read_committed,
        check_crcs=check_crcs,
        max_bytes=max_bytes,
    )
    assert expected.fault is None
    assert got.records == expected.records
    assert got.next_offset == expected.next_offset
    assert got.decoder.leader_epoch == expected.leader_epoch
    # A slice without one complete batch is too small for it; anything else ends in silence.
    assert (got.error is not None) == (len(data) > 0 and expected.batches == 0)


@unhurried
@given(record_lists(), st.booleans())
def test_the_codec_changes_nothing(records: list[Any], append_time: bool) -> None:
    """D-13: the same records in every codec give equal columns."""
    outcomes = [
        decode(
            encode_record_batch(records, 5, codec, log_append_time=77 if append_time else None)
        ).records
        for codec in Codec
    ]
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert len(outcomes[0]) == len(records)


@unhurried
@given(st.data())
def test_every_form_of_a_stream_decompresses(data: st.DataObject) -> None:
    """D-14: members, frames, sizes, checksums, xerial and raw blocks."""
    size = data.draw(st.sampled_from((0, 1, 50, 3000, 140_000)))
    seed = data.draw(st.binary(min_size=1, max_size=60))
    plain = (seed * (size // len(seed) + 1))[:size]
    codec, blob = data.draw(compressed_blobs(plain))
    assert bytes(decompress(codec, blob, len(plain))) == plain


# --- varints --------------------------------------------------------------------------------------

VARINTS = {
    "uvarint": (encode_uvarint, decode_uvarint, st.integers(0, 2**32 - 1)),
    "uvarlong": (encode_uvarlong, decode_uvarlong, st.integers(0, 2**64 - 1)),
    "varint": (encode_varint, decode_varint, st.integers(-(2**31), 2**31 - 1)),
    "varlong": (encode_varlong, decode_varlong, st.integers(-(2**63), 2**63 - 1)),
}


@pytest.mark.parametrize("name", VARINTS)
@unhurried
@given(data=st.data(), before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_varints_come_back(name: str, data: st.DataObject, before: bytes, after: bytes) -> None:
    """D-10: what is written is read, to its last byte and no further."""
    encode, decode_one, values = VARINTS[name]
    value = data.draw(values)
    encoded = encode(value)
    read = decode_one(before + encoded + after, len(before))
    assert read == (value, len(before) + len(encoded))


@pytest.mark.parametrize(("decode_one", "bits"), [(decode_varint, 32), (decode_varlong, 64)])
@unhurried
@given(data=st.binary(max_size=12) | st.lists(st.integers(0x7E, 0xFF), max_size=12).map(bytes))
def test_any_bytes_read_as_the_oracle_reads_them(decode_one: Any, bits: int, data: bytes) -> None:
    """D-10: too long, too wide and cut off are refused, nothing else is."""
    source = Source(data)
    try:
        expected: tuple[int, int] | None = (oracle.varint(source, bits), source.pos)
    except MalformedError:
        expected = None
    try:
        got = decode_one(data)
    except ProtocolError:
        got = None
    assert got == expected


# --- other clients --------------------------------------------------------------------------------


@unhurried
@given(record_batches(7))
def test_record_batches_read_as_other_clients_read_them(made: tuple[bytes, int]) -> None:
    """D-24: offsets, timestamps, keys, values and headers of magic 2."""
    data, _ = made
    ours = as_rows(decode(data).records)
    assert ours == aiokafka_rows(data)
    if data[22] & 7 != Codec.SNAPPY or KAFKA_PYTHON_HAS_SNAPPY:
        assert ours == kafka_python_rows(data)


@unhurried
@given(message_sets(7))
def test_message_sets_read_as_other_clients_read_them(made: tuple[bytes, int]) -> None:
    """D-24: magic 0 and 1, but for the LZ4 of magic 0: neither can read that here."""
    data, _ = made
    magic, codec = data[16], data[17] & 7
    if (magic, codec) == (0, Codec.LZ4):
        return
    ours = as_rows(decode(data).records)
    assert ours == aiokafka_rows(data)
    if codec != Codec.SNAPPY or KAFKA_PYTHON_HAS_SNAPPY:
        assert ours == kafka_python_rows(data)
