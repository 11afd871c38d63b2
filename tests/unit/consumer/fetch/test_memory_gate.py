"""MemoryGate: what is counted, who is admitted, who is called when memory is released."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kfast._runtime.memory_account import frame_share
from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.fetch.buffer import DECODE_CHUNK_BYTES, FetchBuffer
from kfast.consumer.fetch.completed_fetch import Stage
from kfast.consumer.fetch.decode_queue import DecodeQueue
from kfast.consumer.fetch.memory_gate import MemoryGate
from tests.unit.consumer.fakes import T0, T1, chunk, fetch
from tests.unit.consumer.fetch.buffers import MIB, Rooms, decode_all, put, take


def make_gate(cap: int, on_room: Callable[[], None] | None = None) -> MemoryGate:
    """A gate without a buffer."""
    queue = DecodeQueue(ApplicationWakeup())
    return MemoryGate(threading.Lock(), cap, DECODE_CHUNK_BYTES, queue, on_room)


def test_a_frame_counts_until_its_last_slice_is_gone() -> None:
    """B-05: frames and decoded chunks are counted, and released with the last reader."""
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    first, second = fetch(T0, chunk(0, 5, memory_bytes=30)), fetch(T1, chunk(0, 5, memory_bytes=40))
    put(buffer, first, second, frame=1000)
    assert buffer.memory.bytes_used == 1000
    decode_all(buffer)
    assert buffer.memory.bytes_used == 1070
    take(buffer, first)
    assert buffer.memory.bytes_used == 1040
    take(buffer, second)
    assert buffer.memory.bytes_used == 0


def test_a_frame_is_released_once_all_of_it_is_decoded_elsewhere() -> None:
    """B-05: decompressed records have memory of their own; the frame need not wait for them."""
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    unpacked = chunk(0, 5, memory_bytes=30)
    unpacked.data = b"payload"
    more = chunk(5, 5, memory_bytes=30)
    more.data = b"payload"
    put(buffer, completed := fetch(T0, unpacked, more), frame=1000)
    assert buffer.decoding.decode_one(0)
    assert buffer.memory.bytes_used == 1030
    take(buffer, completed)
    assert buffer.decoding.decode_one(0)
    assert buffer.memory.bytes_used == 30
    take(buffer, completed)
    assert buffer.memory.bytes_used == 0
    assert completed.stage is Stage.DRAINED


def test_a_response_without_data_uses_no_memory() -> None:
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    put(buffer, frame=5000, expected=100)
    assert buffer.memory.bytes_used == 0
    assert buffer.memory.room() == frame_share(MIB)


def test_the_gate_sets_bytes_aside_until_the_frame_is_there() -> None:
    """B-05: a frame counts from the moment its reception is allowed."""
    buffer = FetchBuffer(1000, ApplicationWakeup())
    buffer.memory.fetch_sent(0)
    answer = buffer.memory.fetch_sent(0)
    assert buffer.memory.may_receive(600)
    assert buffer.memory.bytes_used == 600
    assert not buffer.memory.may_receive(500)
    buffer.fetch_answered(answer, 600, [fetch(T0)])
    assert buffer.memory.bytes_used == 600
    assert not buffer.memory.may_receive(500)
    assert buffer.memory.may_receive(400)


def test_an_empty_buffer_admits_one_response_of_any_size() -> None:
    """B-03: a first batch above all limits is received all the same (KIP-74)."""
    gate = make_gate(1000)
    gate.fetch_sent(0)
    gate.fetch_sent(0)
    assert gate.may_receive(5000)
    assert not gate.may_receive(5000)


def test_the_gate_admits_one_response_when_nothing_is_deliverable() -> None:
    """B-06: a buffer full of paused partitions does not starve the others."""
    rooms = Rooms()
    buffer = FetchBuffer(1000, ApplicationWakeup(), on_room=rooms)
    put(buffer, fetch(T0), frame=1000)
    buffer.memory.fetch_sent(0)
    assert not buffer.memory.may_receive(500)
    seen = [buffer.memory.needs_data]
    buffer.memory.allow_overdraft()
    assert rooms.calls == 1
    seen.append(buffer.memory.needs_data)
    assert seen == [False, True]
    assert buffer.memory.may_receive(500)
    assert not buffer.memory.may_receive(500)


def test_a_repeated_overdraft_wakes_no_thread() -> None:
    """N-17: polling an empty buffer in a loop does not keep the network thread busy."""
    rooms = Rooms()
    gate = make_gate(1000, rooms)
    gate.allow_overdraft()
    assert gate.request_room(gate.releases)
    for _ in range(3):
        gate.allow_overdraft()
    assert rooms.calls == 0


def test_responses_in_flight_are_received_while_a_call_waits_behind_them() -> None:
    """B-06: one by one, and none is requested for it."""
    rooms = Rooms()
    gate = make_gate(1000, rooms)
    for _ in range(3):
        gate.fetch_sent(0)
    assert gate.may_receive(900)
    assert not gate.may_receive(500)
    gate.fetch_answered(gate.fetch_sent(0), 900, 900, 1)
    gate.note_caller(is_waiting=True)
    assert (rooms.calls, gate.needs_data) == (1, False)
    assert gate.may_receive(500)
    assert not gate.may_receive(500)
    gate.note_caller(is_waiting=False)


def test_an_interrupted_call_for_room_is_made_again() -> None:
    """L-04: a signal handler that raises in on_room does not leave the network thread waiting."""
    calls: list[bool] = []

    def on_room() -> None:
        calls.append(True)
        if len(calls) == 1:
            raise KeyboardInterrupt

    gate = make_gate(1000, on_room)
    assert gate.request_room(gate.releases)
    with pytest.raises(KeyboardInterrupt):
        gate.allow_overdraft()
    gate.announce_release()
    gate.announce_release()
    assert len(calls) == 2


def test_the_gate_does_not_concern_other_responses() -> None:
    """B-06: metadata and the like come through when no Fetch is under way."""
    buffer = FetchBuffer(1000, ApplicationWakeup())
    put(buffer, fetch(T0), frame=1000)
    assert buffer.memory.may_receive(100_000)
    assert buffer.memory.bytes_used == 1000


def test_a_frame_whose_connection_broke_is_not_counted_for_ever() -> None:
    """B-05: bytes set aside for a lost answer are free again."""
    buffer = FetchBuffer(1000, ApplicationWakeup())
    first, second = buffer.memory.fetch_sent(0), buffer.memory.fetch_sent(0)
    assert buffer.memory.may_receive(900)
    third = buffer.memory.fetch_sent(0)
    buffer.memory.fetch_failed(first)
    assert buffer.memory.bytes_used == 900
    buffer.fetch_answered(second, 50, ())
    assert buffer.memory.bytes_used == 0
    buffer.fetch_answered(third, 50, ())
    assert repr(buffer) == "<FetchBuffer 0 of 1000 bytes, 0 partitions>"


def test_room_is_left_for_decoded_data() -> None:
    buffer = FetchBuffer(1000, ApplicationWakeup())
    assert buffer.memory.room() == 800
    put(buffer, completed := fetch(T0, chunk(0, 5, memory_bytes=700)), frame=100)
    assert buffer.memory.room() == 700
    assert buffer.decoding.claim(completed)
    buffer.decoding.decode(completed)
    assert buffer.memory.room() == 200


def test_a_frame_counts_as_its_block() -> None:
    """B-05: blocks are larger than what is in them; so much is set aside before it is received."""
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    put(buffer, fetch(T1), frame=1000)
    answer = buffer.memory.fetch_sent(0)
    assert not buffer.memory.may_receive(MIB - 1000)
    assert buffer.memory.may_receive(400_000)
    assert buffer.memory.bytes_used == 501_000
    buffer.fetch_answered(answer, 400_000, [fetch()], 450_560)
    assert buffer.memory.bytes_used == 451_560


def test_on_room_is_called_once_after_a_refusal() -> None:
    """F-25: the network thread is woken when room was made, and only if it waits for it."""
    rooms = Rooms()
    buffer = FetchBuffer(1000, ApplicationWakeup(), on_room=rooms)
    put(buffer, first := fetch(T0), frame=500)
    put(buffer, second := fetch(T1), frame=500)
    decode_all(buffer)
    for completed in (first, second):
        if completed.stage is Stage.RAW and buffer.decoding.claim(completed):
            buffer.decoding.decode(completed)
    assert rooms.calls == 0
    assert buffer.memory.request_room(buffer.memory.releases)
    take(buffer, first)
    assert rooms.calls == 1
    take(buffer, second)
    assert rooms.calls == 1


def test_asking_for_room_too_late_is_noticed() -> None:
    """F-25: room made between looking and asking is not lost."""
    rooms = Rooms()
    buffer = FetchBuffer(MIB, ApplicationWakeup(), on_room=rooms)
    put(buffer, completed := fetch(T0))
    decode_all(buffer)
    before = buffer.memory.releases
    take(buffer, completed)
    assert not buffer.memory.request_room(before)
    assert rooms.calls == 0


def test_a_refused_gate_asks_for_room() -> None:
    rooms = Rooms()
    buffer = FetchBuffer(1000, ApplicationWakeup(), on_room=rooms)
    put(buffer, completed := fetch(T0), frame=900)
    assert buffer.decoding.claim(completed)
    buffer.decoding.decode(completed)
    buffer.memory.fetch_sent(0)
    assert not buffer.memory.may_receive(500)
    take(buffer, completed)
    assert rooms.calls == 1
    assert buffer.memory.may_receive(500)
