"""DecodeScheduler: claims, what a decode ahead may take, what is left to the application."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, cast

import pytest

from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.consumer.fetch.completed_fetch import Stage
from tests.unit.consumer.fakes import T0, T1, FakeDecoder, chunk, fetch
from tests.unit.consumer.fetch.buffers import ALWAYS, MIB, Rooms, put, take

if TYPE_CHECKING:
    from kfast._native.record_index import RecordIndex


def test_a_fetch_is_claimed_once() -> None:
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    put(buffer, completed := fetch())
    assert buffer.decoding.claim(completed)
    assert not buffer.decoding.claim(completed)
    assert not buffer.decoding.decode_one(0)
    buffer.decoding.decode(completed)
    assert completed.stage is Stage.READY


def test_many_threads_decode_each_fetch_once() -> None:
    """F-26: decode threads and the application thread share the work without overlap."""
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    fetches = [fetch(T0, offset=number * 10) for number in range(200)]
    put(buffer, *fetches)
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        while buffer.decoding.decode_one(0):
            pass

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    start.wait()
    for completed in fetches:
        if buffer.decoding.claim(completed):
            buffer.decoding.decode(completed)
    for thread in threads:
        thread.join()
    assert all(completed.stage is Stage.READY for completed in fetches)
    decoders = [completed.decoder for completed in fetches]
    assert all(isinstance(decoder, FakeDecoder) and decoder.calls == 1 for decoder in decoders)


def test_a_waiting_decode_thread_is_woken_by_data_and_by_close() -> None:
    wakeup = ApplicationWakeup()
    buffer = FetchBuffer(MIB, wakeup)
    outcomes: list[bool] = []

    def work() -> None:
        outcomes.append(buffer.decoding.decode_one(ALWAYS))
        outcomes.append(buffer.decoding.decode_one(ALWAYS))

    thread = threading.Thread(target=work)
    thread.start()
    put(buffer, completed := fetch())
    while completed.stage is not Stage.READY:
        assert wakeup.wait(ALWAYS)
        buffer.heads()
    buffer.close()
    thread.join()
    assert outcomes == [True, False]


def test_a_fetch_dropped_while_it_is_decoded_leaves_nothing_behind() -> None:
    """P-04, B-07: a seek during the decode; the outcome is thrown away."""
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    put(buffer, completed := fetch())
    assert buffer.decoding.claim(completed)
    buffer.discard(completed)
    assert buffer.heads() == []
    buffer.discard(completed)
    buffer.decoding.decode(completed)
    assert completed.stage is Stage.DRAINED
    assert buffer.memory.bytes_used == 0


def test_an_interrupted_decode_is_claimed_again() -> None:
    """L-04: Ctrl-C in the middle of a decode loses nothing."""

    class Interrupted(FakeDecoder):
        def decode(self, max_bytes: int, most_bytes: int | None = None) -> RecordIndex | None:
            if self.calls == 0:
                self.calls += 1
                raise KeyboardInterrupt
            return super().decode(max_bytes)

    buffer = FetchBuffer(MIB, ApplicationWakeup())
    completed = fetch()
    completed.decoder = Interrupted([chunk(0, 10)])
    put(buffer, completed)
    assert buffer.decoding.claim(completed)
    with pytest.raises(KeyboardInterrupt):
        buffer.decoding.decode(completed)
    assert buffer.decoding.decode_one(0)
    assert completed.stage is Stage.READY


def test_decode_threads_do_not_work_ahead_beyond_the_cap() -> None:
    """B-05: decoding waits when its outcome may not fit; the application may still decode."""
    buffer = FetchBuffer(1000, ApplicationWakeup(), decode_chunk_bytes=500)
    put(buffer, completed := fetch(T0, raw_bytes=800), frame=800)
    assert not buffer.decoding.decode_one(0)
    assert buffer.decoding.claim(completed)
    buffer.decoding.decode(completed)
    assert completed.stage is Stage.READY


def test_fetches_leave_nothing_behind_for_decode_threads() -> None:
    """B-07: neither those that the application decodes nor those dropped, whatever waits first."""
    buffer = FetchBuffer(1000, ApplicationWakeup(), decode_chunk_bytes=500)
    put(buffer, paused := fetch(T0, raw_bytes=800), frame=800)
    fetches = [fetch(T1, raw_bytes=10) for _ in range(10)]
    for number, completed in enumerate(fetches):
        put(buffer, completed, frame=10)
        assert not buffer.decoding.decode_one(0)
        if number % 2:
            assert buffer.decoding.claim(completed)
            buffer.decoding.decode(completed)
            take(buffer, completed)
        else:
            buffer.discard_stale({T1: None})
    del completed
    fetches.append(fetch(T1, raw_bytes=10))
    assert len({sys.getrefcount(completed) for completed in fetches}) == 1
    assert paused.stage is Stage.RAW


def test_decode_threads_leave_room_for_the_response_in_flight() -> None:
    buffer = FetchBuffer(1000, ApplicationWakeup())
    put(buffer, fetch(T0, raw_bytes=100), frame=100)
    answer = buffer.memory.fetch_sent(850)
    assert not buffer.decoding.decode_one(0)
    buffer.fetch_answered(answer, 10, [])
    assert buffer.decoding.decode_one(0)


def test_a_decode_thread_goes_on_when_room_is_made() -> None:
    """F-25: released bytes wake the decode threads, not a timer."""
    buffer = FetchBuffer(1000, ApplicationWakeup())
    put(buffer, first := fetch(T0, raw_bytes=600), frame=600)
    assert buffer.decoding.claim(first)
    buffer.decoding.decode(first)
    put(buffer, second := fetch(T1, raw_bytes=400), frame=400)
    thread = threading.Thread(target=buffer.decoding.decode_one, args=(ALWAYS,))
    thread.start()
    take(buffer, first)
    thread.join()
    assert second.stage is Stage.READY


def test_decodes_at_the_same_time_stay_within_the_cap() -> None:
    """B-05: each may take what was set aside for it, whatever the batches turn out to be."""
    cap = 64 * MIB
    buffer = FetchBuffer(cap, ApplicationWakeup())
    fetches = [fetch(T0, chunk(0, 1, memory_bytes=cap), offset=n, raw_bytes=MIB) for n in range(20)]
    put(buffer, *fetches, frame=20 * MIB)
    used: list[int] = []
    decoders = [completed.decoder for completed in fetches]

    def begin_another() -> None:
        used.append(buffer.memory.bytes_used)
        buffer.decoding.decode_one(0)

    for decoder in decoders:
        assert isinstance(decoder, FakeDecoder)
        decoder.during = begin_another
    assert buffer.decoding.decode_one(0)  # each begins while the ones before are under way
    assert len(used) > 4
    assert max(used) <= cap
    allowed = [most for decoder in decoders for most in cast("FakeDecoder", decoder).allowed]
    assert sum(most or cap for most in allowed) <= cap - 20 * MIB
    assert buffer.memory.bytes_used == 20 * MIB


def test_a_chunk_too_large_to_decode_ahead_is_left_to_the_application() -> None:
    """B-05, B-03: it alone decodes a batch above every limit, and hands it out at once."""
    wakeup = ApplicationWakeup()
    buffer = FetchBuffer(16 * MIB, wakeup)
    put(buffer, completed := fetch(T0, chunk(0, 10, memory_bytes=4 * MIB), chunk(10, 5)))
    buffer.heads()
    assert buffer.decoding.decode_one(0)
    assert completed.chunk is None
    assert wakeup.wait(0), "the application is woken up for it"
    assert not buffer.decoding.decode_one(0)
    assert buffer.decoding.claim(completed)
    buffer.decoding.decode(completed)
    take(buffer, completed)
    assert buffer.decoding.decode_one(0), "what follows is for any thread again"
    assert completed.stage is Stage.READY
    take(buffer, completed)
    assert buffer.memory.bytes_used == 0


def test_large_chunks_are_decoded_ahead_once_they_are_known() -> None:
    """F-26: what one decode has shown is set aside for the next ones, if there is room."""
    buffer = FetchBuffer(64 * MIB, ApplicationWakeup())
    ahead: list[bool] = []
    for number in range(20):
        large = chunk(number, 1, memory_bytes=20 * MIB)
        put(buffer, completed := fetch(T0, large, offset=number, raw_bytes=MIB))
        assert buffer.decoding.decode_one(0)
        ahead.append(completed.stage is Stage.READY)
        if buffer.decoding.claim(completed):
            buffer.decoding.decode(completed)
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

    buffer = FetchBuffer(MIB, ApplicationWakeup())
    completed = fetch()
    completed.decoder = Starved([chunk(0, 10)])
    put(buffer, completed)
    assert buffer.decoding.decode_one(0)
    assert not buffer.decoding.decode_one(0)
    assert buffer.decoding.claim(completed)
    with pytest.raises(MemoryError, match="t-0: no memory to decode from offset 0 on"):
        buffer.decoding.decode(completed)
    assert buffer.memory.bytes_used == 1000
    assert buffer.decoding.decode_one(0)
    assert completed.stage is Stage.READY


def test_a_refused_gate_opens_when_a_decode_took_less_than_was_set_aside() -> None:
    """F-25, B-05: what is not needed is released, and whoever waits for it is called."""
    rooms = Rooms()
    buffer = FetchBuffer(1000, ApplicationWakeup(), on_room=rooms)
    put(buffer, completed := fetch(raw_bytes=100), frame=100)
    buffer.memory.fetch_sent(0)
    assert isinstance(completed.decoder, FakeDecoder)
    seen: list[bool] = []
    completed.decoder.during = lambda: seen.append(buffer.memory.may_receive(800))
    assert buffer.decoding.decode_one(0)
    assert (seen, rooms.calls) == ([False], 1)
    assert buffer.memory.may_receive(800)
