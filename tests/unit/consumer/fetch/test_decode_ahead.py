"""Decoding ahead: what a decode under way may take, and what is left to the application thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.consumer.fetch.completed_fetch import Stage
from tests.unit.consumer.fakes import T0, FakeDecoder, chunk, fetch
from tests.unit.consumer.fetch.buffered import MIB, Rooms, put, take

if TYPE_CHECKING:
    from kfast._native.record_index import RecordIndex


def test_decodes_at_the_same_time_stay_within_the_cap() -> None:
    """B-05: each may take what was set aside for it, whatever the batches turn out to be."""
    cap = 64 * MIB
    buffer = FetchBuffer(cap)
    fetches = [fetch(T0, chunk(0, 1, memory_bytes=cap), offset=n, raw_bytes=MIB) for n in range(20)]
    put(buffer, *fetches, frame=20 * MIB)
    used: list[int] = []
    decoders = [completed.decoder for completed in fetches]

    def begin_another() -> None:
        used.append(buffer.bytes_used)
        buffer.decode_one(0)

    for decoder in decoders:
        assert isinstance(decoder, FakeDecoder)
        decoder.during = begin_another
    assert buffer.decode_one(0)  # each begins while the ones before are under way
    assert len(used) > 4
    assert max(used) <= cap
    allowed = [most for decoder in decoders for most in cast("FakeDecoder", decoder).allowed]
    assert sum(most or cap for most in allowed) <= cap - 20 * MIB
    assert buffer.bytes_used == 20 * MIB


def test_a_chunk_too_large_to_decode_ahead_is_left_to_the_application() -> None:
    """B-05, B-03: it alone decodes a batch above every limit, and hands it out at once."""
    buffer = FetchBuffer(16 * MIB)
    put(buffer, completed := fetch(T0, chunk(0, 10, memory_bytes=4 * MIB), chunk(10, 5)))
    buffer.heads()
    assert buffer.decode_one(0)
    assert completed.chunk is None
    assert buffer.wait(0), "the application is woken up for it"
    assert not buffer.decode_one(0)
    assert buffer.claim(completed)
    buffer.decode(completed)
    take(buffer, completed)
    assert buffer.decode_one(0), "what follows is for any thread again"
    assert completed.stage is Stage.READY
    take(buffer, completed)
    assert buffer.bytes_used == 0


def test_large_chunks_are_decoded_ahead_once_they_are_known() -> None:
    """F-26: what one decode has shown is set aside for the next ones, if there is room."""
    buffer = FetchBuffer(64 * MIB)
    ahead: list[bool] = []
    for number in range(20):
        large = chunk(number, 1, memory_bytes=20 * MIB)
        put(buffer, completed := fetch(T0, large, offset=number, raw_bytes=MIB))
        assert buffer.decode_one(0)
        ahead.append(completed.stage is Stage.READY)
        if buffer.claim(completed):
            buffer.decode(completed)
        take(buffer, completed)
    assert ahead == sorted(ahead)
    assert 5 < ahead.count(True) < 15


def test_without_memory_a_decode_is_tried_again() -> None:
    """B-27: ahead it is left to the application, which gets the MemoryError, and later records."""

    class Starved(FakeDecoder):
        def decode(self, max_bytes: int, most_bytes: int | None = None) -> RecordIndex | None:
            if self.calls < 2:
                self.calls += 1
                raise MemoryError("cannot allocate 10 bytes")
            return super().decode(max_bytes, most_bytes)

    buffer = FetchBuffer(MIB)
    completed = fetch()
    completed.decoder = Starved([chunk(0, 10)])
    put(buffer, completed)
    assert buffer.decode_one(0)
    assert not buffer.decode_one(0)
    assert buffer.claim(completed)
    with pytest.raises(MemoryError, match="t-0: no memory to decode from offset 0 on"):
        buffer.decode(completed)
    assert buffer.bytes_used == 1000
    assert buffer.decode_one(0)
    assert completed.stage is Stage.READY


def test_a_refused_gate_opens_when_a_decode_took_less_than_was_set_aside() -> None:
    """F-25, B-05: what is not needed is released, and whoever waits for it is called."""
    rooms = Rooms()
    buffer = FetchBuffer(1000, on_room=rooms)
    put(buffer, completed := fetch(raw_bytes=100), frame=100)
    buffer.fetch_sent(0)
    assert isinstance(completed.decoder, FakeDecoder)
    seen: list[bool] = []
    completed.decoder.during = lambda: seen.append(buffer.may_receive(800))
    assert buffer.decode_one(0)
    assert (seen, rooms.calls) == ([False], 1)
    assert buffer.may_receive(800)
