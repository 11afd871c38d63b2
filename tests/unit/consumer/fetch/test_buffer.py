"""FetchBuffer: order, claims, memory and waiting."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from kfast._runtime.memory_account import frame_share
from kfast.consumer.fetch import buffer as fetch_buffer
from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.consumer.fetch.completed_fetch import Stage
from kfast.errors import CorruptRecordError, KafkaError
from tests.unit.consumer.fakes import T0, T1, T2, FakeDecoder, chunk, failed_fetch, fetch
from tests.unit.consumer.fetch.buffered import MIB, Part, Rooms, put, take

if TYPE_CHECKING:
    from kfast._native.record_index import RecordIndex

ALWAYS = 60.0


def decode_all(buffer: FetchBuffer) -> int:
    count = 0
    while buffer.decode_one(0):
        count += 1
    return count


# --- order ----------------------------------------------------------------------------------------


def test_each_partition_shows_its_oldest_fetch() -> None:
    buffer = FetchBuffer(MIB)
    first, second, other = fetch(T0), fetch(T0, offset=10), fetch(T1)
    put(buffer, first, other)
    put(buffer, second)
    assert buffer.heads() == [first, other]
    decode_all(buffer)
    take(buffer, first)
    assert buffer.heads() == [other, second]


def test_served_partitions_go_to_the_end() -> None:
    buffer = FetchBuffer(MIB)
    fetches = [fetch(tp, chunk(0, 5), chunk(5, 5)) for tp in (T0, T1, T2)]
    put(buffer, *fetches)
    decode_all(buffer)
    take(buffer, fetches[0])
    assert [head.topic_partition for head in buffer.heads()] == [T1, T2, T0]


def test_a_partly_taken_chunk_stays_in_front_of_its_partition() -> None:
    """F-12: the rest of the rows comes next, before anything else of the partition."""
    buffer = FetchBuffer(MIB)
    first = fetch(T0)
    put(buffer, first, fetch(T0, offset=10))
    decode_all(buffer)
    buffer.consume([Part(first, 4, False)])
    assert buffer.heads() == [first]
    assert first.rows_taken == 4
    assert first.stage is Stage.READY


def test_a_second_chunk_is_decoded_before_later_fetches() -> None:
    buffer = FetchBuffer(MIB)
    first, second = fetch(T0, chunk(0, 5), chunk(5, 5)), fetch(T1)
    put(buffer, first)
    decode_all(buffer)
    put(buffer, second)
    take(buffer, first)
    assert buffer.decode_one(0)
    assert first.stage is Stage.READY
    assert second.stage is Stage.RAW


# --- claims ---------------------------------------------------------------------------------------


def test_a_fetch_is_claimed_once() -> None:
    buffer = FetchBuffer(MIB)
    put(buffer, completed := fetch())
    assert buffer.claim(completed)
    assert not buffer.claim(completed)
    assert not buffer.decode_one(0)
    buffer.decode(completed)
    assert completed.stage is Stage.READY


def test_many_threads_decode_each_fetch_once() -> None:
    """F-26: decode threads and the application thread share the work without overlap."""
    buffer = FetchBuffer(MIB)
    fetches = [fetch(T0, offset=number * 10) for number in range(200)]
    put(buffer, *fetches)
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        while buffer.decode_one(0):
            pass

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    start.wait()
    for completed in fetches:
        if buffer.claim(completed):
            buffer.decode(completed)
    for thread in threads:
        thread.join()
    assert all(completed.stage is Stage.READY for completed in fetches)
    decoders = [completed.decoder for completed in fetches]
    assert all(isinstance(decoder, FakeDecoder) and decoder.calls == 1 for decoder in decoders)


def test_a_waiting_decode_thread_is_woken_by_data_and_by_close() -> None:
    buffer = FetchBuffer(MIB)
    outcomes: list[bool] = []

    def work() -> None:
        outcomes.append(buffer.decode_one(ALWAYS))
        outcomes.append(buffer.decode_one(ALWAYS))

    thread = threading.Thread(target=work)
    thread.start()
    put(buffer, completed := fetch())
    while completed.stage is not Stage.READY:
        assert buffer.wait(ALWAYS)
        buffer.heads()
    buffer.close()
    thread.join()
    assert outcomes == [True, False]


def test_a_fetch_dropped_while_it_is_decoded_leaves_nothing_behind() -> None:
    """P-04, B-07: a seek during the decode; the outcome is thrown away."""
    buffer = FetchBuffer(MIB)
    put(buffer, completed := fetch())
    assert buffer.claim(completed)
    buffer.discard(completed)
    assert buffer.heads() == []
    buffer.discard(completed)
    buffer.decode(completed)
    assert completed.stage is Stage.DRAINED
    assert buffer.bytes_used == 0


def test_an_interrupted_decode_is_claimed_again() -> None:
    """L-04: Ctrl-C in the middle of a decode loses nothing."""

    class Interrupted(FakeDecoder):
        def decode(self, max_bytes: int, most_bytes: int | None = None) -> RecordIndex | None:
            if self.calls == 0:
                self.calls += 1
                raise KeyboardInterrupt
            return super().decode(max_bytes)

    buffer = FetchBuffer(MIB)
    completed = fetch()
    completed.decoder = Interrupted([chunk(0, 10)])
    put(buffer, completed)
    assert buffer.claim(completed)
    with pytest.raises(KeyboardInterrupt):
        buffer.decode(completed)
    assert buffer.decode_one(0)
    assert completed.stage is Stage.READY


# --- memory ---------------------------------------------------------------------------------------


def test_a_frame_counts_until_its_last_slice_is_gone() -> None:
    """B-05: frames and decoded chunks are counted, and released with the last reader."""
    buffer = FetchBuffer(MIB)
    first, second = fetch(T0, chunk(0, 5, memory_bytes=30)), fetch(T1, chunk(0, 5, memory_bytes=40))
    put(buffer, first, second, frame=1000)
    assert buffer.bytes_used == 1000
    decode_all(buffer)
    assert buffer.bytes_used == 1070
    take(buffer, first)
    assert buffer.bytes_used == 1040
    take(buffer, second)
    assert buffer.bytes_used == 0


def test_a_frame_is_released_once_all_of_it_is_decoded_elsewhere() -> None:
    """B-05: decompressed records have memory of their own; the frame need not wait for them."""
    buffer = FetchBuffer(MIB)
    unpacked = chunk(0, 5, memory_bytes=30)
    unpacked.data = b"payload"
    more = chunk(5, 5, memory_bytes=30)
    more.data = b"payload"
    put(buffer, completed := fetch(T0, unpacked, more), frame=1000)
    assert buffer.decode_one(0)
    assert buffer.bytes_used == 1030
    take(buffer, completed)
    assert buffer.decode_one(0)
    assert buffer.bytes_used == 30
    take(buffer, completed)
    assert buffer.bytes_used == 0
    assert completed.stage is Stage.DRAINED


def test_dropping_stale_data_releases_it_at_once() -> None:
    """B-07: memory of sought and revoked partitions is given back."""
    buffer = FetchBuffer(MIB)
    put(buffer, fetch(T0, version=1), frame=100)
    put(buffer, fetch(T0, version=2), frame=200)
    put(buffer, fetch(T1, version=3), frame=400)
    decode_all(buffer)
    buffer.discard_stale({T0: 2, T1: None, T2: None})
    assert buffer.bytes_used == 210
    assert [head.version for head in buffer.heads()] == [2]


def test_a_response_without_data_uses_no_memory() -> None:
    buffer = FetchBuffer(MIB)
    put(buffer, frame=5000, expected=100)
    assert buffer.bytes_used == 0
    assert buffer.room() == frame_share(MIB)


def test_the_gate_sets_bytes_aside_until_the_frame_is_there() -> None:
    """B-05: a frame counts from the moment its reception is allowed."""
    buffer = FetchBuffer(1000)
    buffer.fetch_sent(0)
    answer = buffer.fetch_sent(0)
    assert buffer.may_receive(600)
    assert buffer.bytes_used == 600
    assert not buffer.may_receive(500)
    buffer.fetch_answered(answer, 600, [fetch(T0)])
    assert buffer.bytes_used == 600
    assert not buffer.may_receive(500)
    assert buffer.may_receive(400)


def test_an_empty_buffer_admits_one_response_of_any_size() -> None:
    """B-03: a first batch above all limits is received all the same (KIP-74)."""
    buffer = FetchBuffer(1000)
    buffer.fetch_sent(0)
    buffer.fetch_sent(0)
    assert buffer.may_receive(5000)
    assert not buffer.may_receive(5000)


def test_the_gate_admits_one_response_when_nothing_is_deliverable() -> None:
    """B-06: a buffer full of paused partitions does not starve the others."""
    rooms = Rooms()
    buffer = FetchBuffer(1000, on_room=rooms)
    put(buffer, fetch(T0), frame=1000)
    buffer.fetch_sent(0)
    assert not buffer.may_receive(500)
    seen = [buffer.needs_data]
    buffer.allow_overdraft()
    assert rooms.calls == 1
    seen.append(buffer.needs_data)
    assert seen == [False, True]
    assert buffer.may_receive(500)
    assert not buffer.may_receive(500)


def test_a_repeated_overdraft_wakes_no_thread() -> None:
    """N-17: polling an empty buffer in a loop does not keep the network thread busy."""
    rooms = Rooms()
    buffer = FetchBuffer(1000, on_room=rooms)
    buffer.allow_overdraft()
    assert buffer.request_room(buffer.releases)
    for _ in range(3):
        buffer.allow_overdraft()
    assert rooms.calls == 0


def test_the_gate_does_not_concern_other_responses() -> None:
    """B-06: metadata and the like come through when no Fetch is under way."""
    buffer = FetchBuffer(1000)
    put(buffer, fetch(T0), frame=1000)
    assert buffer.may_receive(100_000)
    assert buffer.bytes_used == 1000


def test_a_frame_whose_connection_broke_is_not_counted_for_ever() -> None:
    """B-05: bytes set aside for a lost answer are free again."""
    buffer = FetchBuffer(1000)
    first, second = buffer.fetch_sent(0), buffer.fetch_sent(0)
    assert buffer.may_receive(900)
    third = buffer.fetch_sent(0)
    buffer.fetch_failed(first)
    assert buffer.bytes_used == 900
    buffer.fetch_answered(second, 50, ())
    assert buffer.bytes_used == 0
    buffer.fetch_answered(third, 50, ())
    assert repr(buffer) == "<FetchBuffer 0 of 1000 bytes, 0 partitions>"


def test_room_is_left_for_decoded_data() -> None:
    buffer = FetchBuffer(1000)
    assert buffer.room() == 800
    put(buffer, completed := fetch(T0, chunk(0, 5, memory_bytes=700)), frame=100)
    assert buffer.room() == 700
    assert buffer.claim(completed)
    buffer.decode(completed)
    assert buffer.room() == 200


def test_decode_threads_do_not_work_ahead_beyond_the_cap() -> None:
    """B-05: decoding waits when its outcome may not fit; the application may still decode."""
    buffer = FetchBuffer(1000, decode_chunk_bytes=500)
    put(buffer, completed := fetch(T0, raw_bytes=800), frame=800)
    assert not buffer.decode_one(0)
    assert buffer.claim(completed)
    buffer.decode(completed)
    assert completed.stage is Stage.READY


def test_fetches_leave_nothing_behind_for_decode_threads() -> None:
    """B-07: neither those that the application decodes nor those dropped, whatever waits first."""
    buffer = FetchBuffer(1000, decode_chunk_bytes=500)
    put(buffer, paused := fetch(T0, raw_bytes=800), frame=800)
    made = [fetch(T1, raw_bytes=10) for _ in range(10)]
    for number, each in enumerate(made):
        put(buffer, each, frame=10)
        assert not buffer.decode_one(0)
        if number % 2:
            assert buffer.claim(each)
            buffer.decode(each)
            take(buffer, each)
        else:
            buffer.discard_stale({T1: None})
    del each
    made.append(fetch(T1, raw_bytes=10))
    assert len({sys.getrefcount(each) for each in made}) == 1
    assert paused.stage is Stage.RAW


def test_a_frame_counts_as_its_block() -> None:
    """B-05: blocks are larger than what is in them; so much is set aside before it is received."""
    buffer = FetchBuffer(MIB)
    put(buffer, fetch(T1), frame=1000)
    answer = buffer.fetch_sent(0)
    assert not buffer.may_receive(MIB - 1000)
    assert buffer.may_receive(400_000)
    assert buffer.bytes_used == 501_000
    buffer.fetch_answered(answer, 400_000, [fetch()], 450_560)
    assert buffer.bytes_used == 451_560


def test_decode_threads_leave_room_for_the_response_in_flight() -> None:
    buffer = FetchBuffer(1000)
    put(buffer, fetch(T0, raw_bytes=100), frame=100)
    answer = buffer.fetch_sent(850)
    assert not buffer.decode_one(0)
    buffer.fetch_answered(answer, 10, [])
    assert buffer.decode_one(0)


def test_a_decode_thread_goes_on_when_room_is_made() -> None:
    """F-25: released bytes wake the decode threads, not a timer."""
    buffer = FetchBuffer(1000)
    put(buffer, first := fetch(T0, raw_bytes=600), frame=600)
    assert buffer.claim(first)
    buffer.decode(first)
    put(buffer, second := fetch(T1, raw_bytes=400), frame=400)
    thread = threading.Thread(target=buffer.decode_one, args=(ALWAYS,))
    thread.start()
    take(buffer, first)
    thread.join()
    assert second.stage is Stage.READY


def test_on_room_is_called_once_after_a_refusal() -> None:
    """F-25: the network thread is woken when room was made, and only if it waits for it."""
    rooms = Rooms()
    buffer = FetchBuffer(1000, on_room=rooms)
    put(buffer, first := fetch(T0), frame=500)
    put(buffer, second := fetch(T1), frame=500)
    decode_all(buffer)
    for completed in (first, second):
        if completed.stage is Stage.RAW and buffer.claim(completed):
            buffer.decode(completed)
    assert rooms.calls == 0
    assert buffer.request_room(buffer.releases)
    take(buffer, first)
    assert rooms.calls == 1
    take(buffer, second)
    assert rooms.calls == 1


def test_asking_for_room_too_late_is_noticed() -> None:
    """F-25: room made between looking and asking is not lost."""
    rooms = Rooms()
    buffer = FetchBuffer(MIB, on_room=rooms)
    put(buffer, completed := fetch(T0))
    decode_all(buffer)
    before = buffer.releases
    take(buffer, completed)
    assert not buffer.request_room(before)
    assert rooms.calls == 0


def test_a_refused_gate_asks_for_room() -> None:
    rooms = Rooms()
    buffer = FetchBuffer(1000, on_room=rooms)
    put(buffer, completed := fetch(T0), frame=900)
    assert buffer.claim(completed)
    buffer.decode(completed)
    buffer.fetch_sent(0)
    assert not buffer.may_receive(500)
    take(buffer, completed)
    assert rooms.calls == 1
    assert buffer.may_receive(500)


def test_backlog_means_several_fetches_and_many_bytes() -> None:
    buffer = FetchBuffer(MIB)
    put(buffer, fetch(T0, raw_bytes=400))
    assert not buffer.has_backlog([T0, T1], 300)
    put(buffer, fetch(T0, raw_bytes=100, offset=10))
    assert buffer.has_backlog([T0, T1], 500)
    assert not buffer.has_backlog([T0, T1], 501)
    assert not buffer.has_backlog([T1], 0)


# --- errors ---------------------------------------------------------------------------------------


def test_a_failed_fetch_stays_in_its_place_until_it_is_dropped() -> None:
    """F-08: the error stands behind the records before it, until the user seeks."""
    buffer = FetchBuffer(MIB)
    error = CorruptRecordError("bad")
    put(buffer, completed := fetch(T0, chunk(0, 5), error, version=4))
    decode_all(buffer)
    take(buffer, completed)
    assert not buffer.has_failed(T0)
    assert buffer.decode_one(0)
    assert completed.stage is Stage.FAILED
    assert buffer.has_failed(T0)
    assert buffer.has_data(T0)
    buffer.discard_stale({T0: 5})
    assert not buffer.has_failed(T0)
    assert buffer.bytes_used == 0


def test_a_chunk_can_be_replaced_by_an_error() -> None:
    buffer = FetchBuffer(MIB)
    put(buffer, completed := fetch(T0, chunk(0, 5, memory_bytes=50)), frame=100)
    decode_all(buffer)
    buffer.fail(completed, KafkaError("no"))
    assert completed.stage is Stage.FAILED
    assert buffer.bytes_used == 100


def test_errors_about_another_version_are_dropped() -> None:
    buffer = FetchBuffer(MIB)
    buffer.put_error(KafkaError("old"), key="a", partition=(T0, 1), is_sticky=True)
    buffer.put_error(KafkaError("now"), key="b", partition=(T0, 2), is_sticky=True)
    error = buffer.take_error(lambda _, version: version == 2)
    assert error is not None
    assert error.message == "now"
    buffer.clear_error("b")
    assert not buffer.has_errors
    assert buffer.take_error(lambda *_: True) is None


# --- waiting --------------------------------------------------------------------------------------


def test_wait_ends_for_what_came_after_the_last_look() -> None:
    """B-08: data, decoded chunks, errors and wakeup end a wait; nothing else does."""
    buffer = FetchBuffer(MIB)
    buffer.heads()
    assert not buffer.wait(0)
    for happen in (
        lambda: put(buffer, fetch(T0)),
        lambda: buffer.decode_one(0),
        lambda: buffer.put_error(KafkaError("x")),
        buffer.wakeup,
        lambda: put(buffer, failed_fetch(T1, KafkaError("x"))),
    ):
        happen()
        assert buffer.wait(0)
        buffer.heads()
        assert not buffer.wait(0)
    put(buffer)
    assert not buffer.wait(0)


def test_a_blocked_wait_is_ended_from_another_thread() -> None:
    buffer = FetchBuffer(MIB)
    buffer.heads()
    thread = threading.Thread(target=buffer.wakeup)
    thread.start()
    assert buffer.wait(ALWAYS)
    thread.join()


def test_a_waiting_application_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that brings a small answer goes on when the application waits for the next."""
    monkeypatch.setattr(fetch_buffer, "YIELD_S", ALWAYS)
    buffer = FetchBuffer(MIB)
    buffer.heads()
    done: list[str] = []

    def application() -> None:
        assert buffer.wait(ALWAYS)
        buffer.heads()
        done.append("taken")
        buffer.wait(0)

    thread = threading.Thread(target=application)
    thread.start()
    while not buffer._arrived.has_waiter:
        pass
    put(buffer, fetch(T0))
    assert done == ["taken"]
    thread.join()


def test_the_network_thread_does_not_yield_to_an_application_that_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_buffer, "YIELD_S", ALWAYS)
    buffer = FetchBuffer(MIB)
    put(buffer, fetch(T0))  # returns
    assert buffer.has_data(T0)


def test_a_closed_buffer_takes_and_holds_nothing() -> None:
    buffer = FetchBuffer(MIB)
    put(buffer, fetch(T0))
    buffer.close()
    assert buffer.bytes_used == 0
    put(buffer, fetch(T0))
    assert buffer.heads() == []
    assert not buffer.decode_one(ALWAYS)


def test_repr_shows_the_account() -> None:
    buffer = FetchBuffer(1000)
    put(buffer, fetch(T0), frame=300)
    assert repr(buffer) == "<FetchBuffer 300 of 1000 bytes, 1 partitions>"
