"""SliceDecoder as an object: chunks, positions, ends, errors that stay, memory, threads."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import cramjam
import numpy as np
import pytest

from kfast._native.buffers import copy_of, live_bytes, live_count
from kfast._native.record_batch import RecordIndex, SliceDecoder
from kfast.errors import CorruptRecordError, KafkaError, RecordTooLargeError
from kfast.testing.batches import Record
from tests.reference.batches import (
    encode_control_batch,
    encode_message_set,
    encode_record_batch,
    with_crc,
)
from tests.reference.compression import Codec, lz4_compress
from tests.reference.decoder import DecodedRecord
from tests.reference.native import GUARD, decode, ints, new_decoder, records_of, run


def batches(
    count: int, per_batch: int = 4, codec: Codec = Codec.NONE, value: bytes = b"v" * 50
) -> list[bytes]:
    return [
        encode_record_batch(
            [Record(b"%d" % i, value, (), i)] * per_batch, i * per_batch, codec, leader_epoch=7
        )
        for i in range(count)
    ]


GOOD = batches(3)
BAD = GOOD[1][:17] + b"\0\0\0\0" + GOOD[1][21:]


# --- chunks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_chunks_are_bounded_and_whole(codec: Codec) -> None:
    """B-05: about as large as asked, a batch at the least, and together everything."""
    data = b"".join(batches(40, codec=codec))
    decoder = new_decoder(data)
    one = decoder.decode(1)
    assert len(one) == 4
    some = decoder.decode(2000)
    assert 8 <= len(some) <= 24
    rest = run(decoder)
    assert len(one) + len(some) + len(rest.records) == 160
    assert decoder.finished
    assert decoder.next_offset == 160
    assert decoder.leader_epoch == 7
    assert (one.base_offset, one.next_offset, one.leader_epoch) == (0, 4, 7)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_chunk_is_of_one_leader_epoch(codec: Codec) -> None:
    """P-16: the epoch of a chunk is that of every record in it."""
    epochs = [3, 3, 4, 4, 4, -1, 9, 3]
    data = [
        encode_record_batch([Record(b"k", b"v" * 20)] * 2, 2 * n, codec, leader_epoch=epoch)
        for n, epoch in enumerate(epochs)
    ]
    chunks = decode(b"".join(data)).chunks
    assert [(chunk.base_offset, chunk.next_offset, chunk.leader_epoch) for chunk in chunks] == [
        (0, 4, 3),
        (4, 10, 4),
        (10, 12, -1),
        (12, 14, 9),
        (14, 16, 3),
    ]
    assert [r.offset for chunk in chunks for r in records_of(chunk)] == list(range(16))


def test_batches_without_rows_take_the_epoch_along() -> None:
    """P-16, T-02: a marker or an empty batch of a new leader has the new leader's epoch."""
    first = encode_record_batch([Record(b"k", b"v")], 0, leader_epoch=1)
    marker = encode_control_batch(1, producer_id=5, leader_epoch=2)
    last = encode_record_batch([Record(b"k", b"v")], 2, leader_epoch=2)
    old = encode_record_batch([Record(b"k", b"v")] * 2, 0, leader_epoch=6)
    assert [
        (len(chunk), chunk.next_offset, chunk.leader_epoch)
        for chunk in decode(first + marker + last).chunks
    ] == [(1, 1, 1), (1, 3, 2)]
    assert [
        (len(chunk), chunk.next_offset, chunk.leader_epoch)
        for chunk in decode(old + last, position=2).chunks
    ] == [(1, 3, 2)], "what lies before the position says nothing"


def test_plain_data_is_not_copied() -> None:
    """D-25: the chunk points into the frame, and keeps it."""
    data = b"".join(GOOD)
    frame = copy_of(data)
    decoder = SliceDecoder(frame, 0, len(data), topic="t", partition=0, position=0)
    index = decoder.decode(1 << 20)
    assert index.data is frame
    assert index.memory_bytes < 2000
    assert index.nbytes == sum(len(batch) - 61 for batch in GOOD)
    before = records_of(index)
    del frame, decoder
    gc.collect()
    assert records_of(index) == before


def test_compressed_data_goes_into_one_payload() -> None:
    """D-18: batches of either kind behind a compressed one, and the memory is accounted for."""
    packed = batches(3, codec=Codec.GZIP)
    data = packed[0] + GOOD[1] + packed[2]
    (chunk,) = decode(data).chunks
    assert chunk.memory_bytes >= len(chunk.data) + 12 * 32
    assert chunk.nbytes == sum(len(batch) - 61 for batch in GOOD) == len(chunk.data)
    first, second = decode(GOOD[0] + packed[1] + GOOD[2]).chunks
    assert (len(first), len(second)) == (4, 8)


def test_an_index_describes_itself() -> None:
    index = new_decoder(b"".join(GOOD)).decode(1 << 20)
    assert index.n == len(index) == 12
    assert "n=12" in repr(index)
    assert np.frombuffer(index.offsets.view(), np.int64).tolist() == list(range(12))
    assert ints(index.key_lengths, np.int32) == [1] * 12
    with pytest.raises(TypeError):
        RecordIndex()
    decoder = new_decoder(b"")
    assert "t-3" in repr(decoder)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("value", [b"", b"v" * 30, b"v" * 500])
def test_a_chunk_takes_no_more_than_it_may(codec: Codec, value: bytes) -> None:
    """B-05: payload and index keep to the bytes set aside; a batch that cannot changes nothing."""
    data = b"".join(batches(30, 100, codec, value))
    whole = decode(data).records
    one = new_decoder(data).decode(1).memory_bytes
    for most in (one // 3, one, 2 * one, 5 * one, 12 * one):
        decoder = new_decoder(data)
        records: list[DecodedRecord] = []
        while not decoder.finished:
            before = decoder.next_offset
            chunk = decoder.decode(1 << 20, most)
            if chunk is None:
                assert decoder.next_offset == before
                assert before == len(records)
                chunk = decoder.decode(1)
            else:
                assert chunk.memory_bytes <= most + most // 4 + 6 * 64
            records += records_of(chunk)
        assert records == whole


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_take_no_more_than_they_may(magic: int) -> None:
    """B-05, D-18: the same for message sets, whose counts are known when they are decompressed."""
    records = [Record(b"k", b"v" * 30, (), 0)] * 300
    plain = encode_message_set(records, 0, magic=magic)
    wrapped = encode_message_set(records, 300, Codec.GZIP, magic=magic)
    decoder = new_decoder(plain + wrapped)
    rows = 0
    while (chunk := decoder.decode(1 << 20, 5_000)) is not None:
        assert chunk.memory_bytes <= 7_000
        rows += len(chunk)
    assert rows == decoder.next_offset == 300
    assert len(decoder.decode(1 << 20)) == 300
    assert decoder.finished


def test_too_many_records_are_refused_before_they_are_decompressed() -> None:
    """D-28: their index would be larger than the batch may be."""
    count = (1 << 20) // 41 + 1
    one = encode_record_batch([Record(None, b"")] * count, 4, Codec.ZSTD)
    assert len(decode(GOOD[0] + one, limit=2 << 20).records) == 4 + count
    error = decode(GOOD[0] + one, limit=1 << 20).error
    assert isinstance(error, RecordTooLargeError)
    assert error.offset == 4
    assert f"seek to offset {4 + count}" in str(error.hint)
    assert "too many records" in error.message
    assert "max_decompressed_batch_bytes" in str(error.hint)
    assert str(count) in str(error.found)
    few = new_decoder(encode_record_batch([Record(None, b"")] * 900, 0), limit=1)
    assert len(few.decode(1)) == 900, "a small batch has as many as it likes"


def test_too_many_old_messages_are_refused() -> None:
    """D-28: a wrapper has no count, so they are counted first."""
    count = (1 << 20) // 41 + 1
    data = encode_message_set([Record(None, b"")] * count, 0, Codec.GZIP, magic=1)
    assert len(decode(data, limit=2 << 20).records) == count
    error = decode(data, limit=1 << 20).error
    assert isinstance(error, RecordTooLargeError)


def test_a_small_chunk_does_not_keep_a_large_block() -> None:
    """B-05, B-13: an LZ4 frame of one short block may have been 4 MiB, and was not."""
    body = encode_record_batch([Record(None, b"v" * 1000)] * 20, 0)[61:]
    data = bytearray(encode_record_batch([Record(None, b"v" * 1000)] * 20, 0))
    data[22] = Codec.LZ4
    packed = lz4_compress(body, block_size=7)
    batch = bytes(data[:61]) + packed
    batch = with_crc(batch[:8] + (len(batch) - 12).to_bytes(4, "big") + batch[12:])
    (chunk,) = decode(batch).chunks
    assert len(chunk.data) == len(body)
    assert chunk.memory_bytes < 4 * len(body) + 65_536


# --- positions and ends ---------------------------------------------------------------------------


@pytest.mark.parametrize("position", range(14))
def test_records_before_the_position_are_left_out(position: int) -> None:
    """F-04: inside a batch and whole batches; the position never goes back."""
    for codec in (Codec.NONE, Codec.ZSTD):
        got = decode(b"".join(batches(3, codec=codec)), position)
        assert [r.offset for r in got.records] == list(range(position, 12))
        assert got.next_offset == max(position, 12)


def test_batches_before_the_position_are_not_decompressed() -> None:
    """F-04: but their checksum is verified, since it covers their offsets."""
    bad_stream = encode_record_batch([Record()], 0, Codec.ZSTD, payload=b"no")
    assert decode(bad_stream + GOOD[1], 4).error is None
    assert isinstance(decode(bad_stream, 0).error, CorruptRecordError)
    bent = bad_stream[:-1] + b"!"
    assert isinstance(decode(bent, 4).error, CorruptRecordError)


def test_a_log_that_goes_back_delivers_nothing_twice() -> None:
    """F-11: offsets strictly increase, whatever the broker sends."""
    got = decode(GOOD[1] + GOOD[0] + GOOD[1] + GOOD[2])
    assert [r.offset for r in got.records] == list(range(4, 12))
    assert got.next_offset == 12
    old = encode_record_batch([Record(b"k", b"v")], 0, leader_epoch=6)
    assert decode(GOOD[1] + old).decoder.leader_epoch == 7


def test_a_partial_tail_ends_in_silence() -> None:
    """D-05: wherever it is cut, down to a single byte."""
    for cut in range(1, len(GOOD[2])):
        got = decode((b"".join(GOOD))[:-cut])
        assert (len(got.records), got.error, got.next_offset) == (8, None, 8)


def test_an_empty_slice_is_finished_at_once() -> None:
    decoder = new_decoder(b"", 17)
    assert decoder.finished
    index = decoder.decode(100)
    assert (len(index), index.next_offset, index.base_offset) == (0, 17, 17)
    assert len(index.offsets) == 0
    assert index.header_starts is None


def test_a_finished_decoder_stays_finished() -> None:
    decoder = new_decoder(b"".join(GOOD) + GOOD[0][:30])
    assert len(decoder.decode(1 << 20)) == 12
    assert decoder.finished
    assert len(decoder.decode(1 << 20)) == 0
    assert decoder.next_offset == 12


def test_finished_is_known_with_the_last_chunk() -> None:
    """F-07: control and emptied batches behind the last record count as well."""
    decoder = new_decoder(GOOD[0] + encode_control_batch(4, 1) + GOOD[2])
    assert (len(decoder.decode(1)), decoder.finished) == (4, False)
    assert (len(decoder.decode(1)), decoder.finished) == (4, True)
    decoder = new_decoder(GOOD[0] + encode_control_batch(4, 1))
    assert (len(decoder.decode(1)), decoder.finished) == (4, False)
    assert (len(decoder.decode(1)), decoder.finished) == (0, True)
    assert decoder.next_offset == 5


@pytest.mark.parametrize("size", [1, 11, 16, 17, 60, 100])
def test_a_slice_without_a_complete_batch_is_too_small(size: int) -> None:
    """B-04: raised instead of looping; the error has the size needed once it is known."""
    whole = GOOD[0] + bytes(200)
    decoder = new_decoder(GOOD[0][:size] if size <= len(GOOD[0]) else whole[:size], 7)
    for _ in range(2):
        with pytest.raises(RecordTooLargeError) as caught:
            decoder.decode(1 << 20)
    assert caught.value.size_needed == (len(GOOD[0]) if size >= 12 else None)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 3, 7)
    assert "max_partition_fetch_bytes" in str(caught.value)
    assert not decoder.finished
    assert decoder.next_offset == 7


# --- errors ---------------------------------------------------------------------------------------


def test_good_records_come_before_the_error() -> None:
    """F-08, D-06: then the error, every time, with the position unmoved."""
    decoder = new_decoder(GOOD[0] + BAD + GOOD[2])
    assert len(decoder.decode(1 << 20)) == 4
    for _ in range(3):
        with pytest.raises(CorruptRecordError) as caught:
            decoder.decode(1 << 20)
        assert (decoder.next_offset, decoder.finished) == (4, False)
    assert (caught.value.offset, caught.value.next_offset) == (4, 8)


def test_filtered_batches_before_the_error_count_as_progress() -> None:
    """F-08: the position moves up to the damage first."""
    decoder = new_decoder(encode_control_batch(0, 1) + BAD)
    index = decoder.decode(1 << 20)
    assert (len(index), index.next_offset) == (0, 1)
    with pytest.raises(CorruptRecordError):
        decoder.decode(1 << 20)


def test_seeking_past_the_error_goes_on() -> None:
    """F-08: next_offset is where the next batch is."""
    got = decode(GOOD[0] + BAD + GOOD[2])
    assert isinstance(got.error, CorruptRecordError)
    assert [r.offset for r in decode(GOOD[2], got.error.next_offset).records] == [8, 9, 10, 11]


def test_damaged_offsets_do_not_mislead() -> None:
    """F-08: the next batch bounds where to go on; the damage may be in the offsets."""
    bent = bytearray(GOOD[1])
    bent[23] = 0x7F
    error = decode(GOOD[0] + bytes(bent) + GOOD[2]).error
    assert isinstance(error, CorruptRecordError)
    assert error.next_offset == 8
    alone = decode(bytes(bent)).error
    assert isinstance(alone, CorruptRecordError)
    assert alone.next_offset > 4


def test_errors_say_where() -> None:
    """D-03: the byte in the response, and what was found."""
    error = decode(GOOD[0] + BAD).error
    assert error is not None
    text = str(error)
    assert f"at byte {len(GUARD) + len(GOOD[0])} of the response" in text
    assert "expected 00000000" in text
    assert text.count("\n") <= 5


def test_a_large_batch_is_refused_by_the_cap_only() -> None:
    """D-17, B-03: a batch far larger than the chunk comes whole; one above the cap is refused."""
    data = encode_record_batch([Record(value=bytes(300_000))], codec=Codec.ZSTD)
    assert len(decode(data, max_bytes=1).records) == 1
    got = decode(GOOD[0] + data.replace(data[:8], (4).to_bytes(8, "big"), 1), limit=100_000)
    assert len(got.records) == 4
    assert isinstance(got.error, RecordTooLargeError)
    assert "max_decompressed_batch_bytes" in str(got.error)
    assert got.error.offset == 4


def test_an_interrupted_chunk_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """F-11: what an exception lost is not lost for good."""
    packed = batches(6, codec=Codec.SNAPPY)
    decoder = new_decoder(
        b"".join(packed) + encode_control_batch(24, 1), aborted=[(1, 0)], read_committed=True
    )
    genuine = cramjam.snappy.decompress_raw_into
    calls = 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return genuine(*arguments)

    monkeypatch.setattr(cramjam.snappy, "decompress_raw_into", interrupted)
    assert len(decoder.decode(1)) == 4
    with pytest.raises(KeyboardInterrupt):
        decoder.decode(1 << 20)
    assert decoder.next_offset == 4
    assert [r.offset for r in run(decoder).records] == list(range(4, 24))
    assert decoder.finished


def test_memory_errors_are_not_corruption(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = new_decoder(batches(1, codec=Codec.SNAPPY)[0])

    def no_memory(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(cramjam.snappy, "decompress_raw_into", no_memory)
    with pytest.raises(MemoryError):
        decoder.decode(1)
    monkeypatch.undo()
    assert len(decoder.decode(1)) == 4


@pytest.mark.parametrize(
    ("start", "end"), [(-1, 5), (3, 2), (0, 11), (11, 11), (0, 2**40), (2**40, 2**40)]
)
def test_a_slice_outside_the_frame_is_the_callers_mistake(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not within a frame"):
        SliceDecoder(copy_of(bytes(10)), start, end, topic="t", partition=0, position=0)


# --- memory and threads ---------------------------------------------------------------------------


def test_nothing_leaks() -> None:
    """B-07: decoders, chunks and errors give everything back."""
    data = b"".join(batches(5, codec=Codec.GZIP)) + GOOD[0] + BAD
    gc.collect()
    before = live_count(), live_bytes()
    for _ in range(20):
        got = decode(data, max_bytes=300)
        assert got.chunks
        del got
    gc.collect()
    assert (live_count(), live_bytes()) == before


def test_claimed_counts_allocate_nothing() -> None:
    """D-08: neither a count nor a batch length that is not there."""
    data = bytearray(GOOD[0])
    data[57:61] = (2**31 - 1).to_bytes(4, "big")
    decoder = new_decoder(bytes(data), check_crcs=False)
    before = live_bytes()
    with pytest.raises(KafkaError):
        decoder.decode(1 << 30)
    assert live_bytes() - before < 10_000


@pytest.mark.parametrize(
    ("codec", "per_batch"), [(Codec.NONE, 1), (Codec.NONE, 4000), (Codec.LZ4, 4000)]
)
def test_other_threads_run_meanwhile(codec: Codec, per_batch: int) -> None:
    """F-26: checksum, decompression and indexing give the GIL away."""
    data = b"".join(batches(20_000 // per_batch, per_batch, codec, b"v" * 100))
    frame = copy_of(data)
    interval = sys.getswitchinterval()
    # From here on a thread runs until it gives the GIL away by itself.
    sys.setswitchinterval(1000)
    try:
        for _ in range(200):
            started = threading.Event()
            done: list[int] = []

            def work(started: threading.Event = started, done: list[int] = done) -> None:
                decoder = SliceDecoder(frame, 0, len(data), topic="t", partition=0, position=0)
                started.set()
                done.append(len(decoder.decode(1 << 30)))

            thread = threading.Thread(target=work)
            thread.start()
            started.wait()
            ran_meanwhile = not done
            thread.join()
            if ran_meanwhile:
                return
        pytest.fail("the GIL was held all the time")
    finally:
        sys.setswitchinterval(interval)


def test_decoders_on_many_threads_do_not_meet() -> None:
    """D-25: each slice on its own thread, contexts and buffers shared behind the scenes."""
    data = {codec: b"".join(batches(30, codec=codec)) for codec in Codec}
    expected = {codec: decode(data[codec]).records for codec in Codec}
    wrong: list[Codec] = []

    def work(codec: Codec) -> None:
        rounds = [decode(data[codec], max_bytes=2000).records for _ in range(10)]
        wrong.extend(codec for rows in rounds if rows != expected[codec])

    threads = [threading.Thread(target=work, args=(codec,)) for codec in [*Codec] * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
