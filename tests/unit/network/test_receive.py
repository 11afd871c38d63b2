"""receive_frames: from sockets to whole frames without the event loop in between."""

from __future__ import annotations

import random
import select
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from kfast._native.buffers import live_bytes, live_count
from kfast._native.frame import FrameReceiver
from kfast.errors import ProtocolError
from kfast.network.receive import receive_frames

OWN_BYTES = 1000

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="there is no epoll here")


class Wire:
    """Some sockets in one epoll set, each with its receiver."""

    def __init__(self, count: int = 1, max_bytes: int = 1 << 20) -> None:
        self.epoll = select.epoll()
        self.pairs = [socket.socketpair() for _ in range(count)]
        self.receivers = [FrameReceiver(max_bytes) for _ in range(count)]
        for near, _ in self.pairs:
            near.setblocking(False)
            self.epoll.register(near, select.EPOLLIN)

    def send(self, data: bytes, number: int = 0) -> None:
        self.pairs[number][1].sendall(data)

    def receive(self, timeout_ms: int = 0) -> tuple[int, bool]:
        known = {
            near.fileno(): receiver
            for (near, _), receiver in zip(self.pairs, self.receivers, strict=True)
        }
        return receive_frames(self.epoll.fileno(), known, OWN_BYTES, timeout_ms)

    def take(self, number: int = 0) -> bytes | None:
        frame = self.receivers[number].take_ready()
        return None if frame is None else bytes(frame)

    def close(self) -> None:
        self.epoll.close()
        for pair in self.pairs:
            for sock in pair:
                sock.close()


@pytest.fixture
def wires() -> Iterator[SimpleNamespace]:
    made: list[Wire] = []

    def make(count: int = 1, max_bytes: int = 1 << 20) -> Wire:
        made.append(Wire(count, max_bytes))
        return made[-1]

    yield SimpleNamespace(make=make)
    for wire in made:
        wire.close()


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_one_frame_per_call(wires: SimpleNamespace) -> None:
    wire = wires.make()
    wire.send(framed(b"first") + framed(b"") + framed(b"third"))
    taken = []
    for _ in range(3):
        moved, _ = wire.receive()
        assert moved >= 4
        taken.append(wire.take())
    assert taken == [b"first", b"", b"third"]
    assert wire.receive() == (0, False)
    assert wire.take() is None


def test_every_split_gives_the_same_frames(wires: SimpleNamespace) -> None:
    """N-06: reads split at any byte."""
    data = framed(b"first") + framed(b"second one")
    for cut in range(1, len(data)):
        wire = wires.make()
        taken = []
        for part in (data[:cut], data[cut:]):
            wire.send(part)
            while wire.receive()[0]:
                taken.append(wire.take())
        assert [body for body in taken if body is not None] == [b"first", b"second one"]


def test_memory_for_a_large_frame_is_asked_for_first(wires: SimpleNamespace) -> None:
    """B-05: nothing is allocated on the word of a size that the caller has not agreed to."""
    wire = wires.make()
    body = random.Random(1).randbytes(50_000)
    before = live_bytes()
    wire.send(framed(body))
    assert wire.receive() == (4, True)
    assert wire.take() is None
    assert wire.receivers[0].pending_frame_size == len(body)
    assert wire.receive() == (0, True), "it is still for the caller to begin"
    assert live_bytes() == before
    view = wire.receivers[0].next_view()
    count = wire.pairs[0][0].recv_into(view[:1000])
    del view
    wire.receivers[0].advance(count)
    assert wire.receive() == (len(body) - count, False)
    assert wire.take() == body


def test_a_large_frame_is_received_while_it_is_being_sent(wires: SimpleNamespace) -> None:
    wire = wires.make(max_bytes=1 << 24)
    body = random.Random(2).randbytes(3_000_000)
    wire.send(framed(body)[:5])
    assert wire.receive() == (4, True)
    assert wire.take() is None
    view = wire.receivers[0].next_view()
    wire.receivers[0].advance(wire.pairs[0][0].recv_into(view))
    wire.pairs[0][1].setblocking(False)
    rest = memoryview(body)[1:]
    while rest:
        rest = rest[wire.pairs[0][1].send(rest) :]
        wire.receive()
    assert wire.take() == body


def test_whatever_else_happens_ends_the_wait(wires: SimpleNamespace) -> None:
    """F-22: a slow broker does not hold up the others, nor the application's wakeups."""
    wire = wires.make()
    near, far = socket.socketpair()
    with near, far:
        wire.epoll.register(near, select.EPOLLIN)
        far.send(b"!")
        wire.send(framed(b"begun")[:6])
        assert wire.receive(timeout_ms=60_000) == (6, True)


def test_the_end_of_a_stream_is_left_to_the_caller(wires: SimpleNamespace) -> None:
    wire = wires.make()
    wire.send(framed(b"last") + b"\0\0")
    wire.pairs[0][1].close()
    received = 0
    for _ in range(3):
        moved, is_select_due = wire.receive(timeout_ms=60_000)
        received += moved
        if wire.take() == b"last":
            break
        assert is_select_due, "a hang-up is nothing that can be received"
        view = wire.receivers[0].next_view()
        count = wire.pairs[0][0].recv_into(view)
        del view
        received += count
        frame = wire.receivers[0].advance(count)
        if frame is not None:
            assert bytes(frame) == b"last"
            break
    assert received >= 8


@pytest.mark.parametrize("size", [-1, -(1 << 31), 2001, (1 << 31) - 1])
def test_an_impossible_size_is_told_when_the_frame_is_taken(
    wires: SimpleNamespace, size: int
) -> None:
    """D-21: negative or above the limit, before anything is allocated."""
    wire = wires.make(max_bytes=2000)
    before = live_bytes()
    wire.send(size.to_bytes(4, "big", signed=True) + b"x" * 100)
    assert wire.receive() == (4, True)
    assert wire.receivers[0].has_outcome
    with pytest.raises(ProtocolError, match=str(abs(size))):
        wire.take()
    assert live_bytes() == before
    with pytest.raises(ValueError, match="after an error"):
        wire.receive()


def test_two_connections_do_not_mix(wires: SimpleNamespace) -> None:
    wire = wires.make(count=2)
    wire.send(framed(b"left")[:6], 0)
    wire.send(framed(b"right"), 1)
    wire.receive()
    assert [receiver.has_outcome for receiver in wire.receivers] == [False, True]
    assert (wire.take(0), wire.take(1)) == (None, b"right")
    assert not wire.receivers[1].has_outcome
    wire.send(framed(b"left")[6:], 0)
    wire.receive()
    assert (wire.take(0), wire.take(1)) == (b"left", None)


def test_more_connections_than_are_served_at_once(wires: SimpleNamespace) -> None:
    wire = wires.make(count=20)
    wire.send(framed(b"one of many"), 19)
    moved, is_select_due = wire.receive()
    assert moved == 0
    assert is_select_due, "the event loop sees to the others"


def test_a_view_given_out_forbids_it(wires: SimpleNamespace) -> None:
    """D-25: nobody else writes where a view of the caller points."""
    wire = wires.make()
    wire.receivers[0].next_view()
    with pytest.raises(ValueError, match="view"):
        wire.receive()
    wire.receivers[0].withdraw_view()
    wire.send(framed(b"now"))
    wire.receive()
    assert wire.take() == b"now"


def test_random_traffic_on_some_connections(wires: SimpleNamespace) -> None:
    """N-06: bodies of all sizes, cut anywhere, from several peers, equal what was sent."""
    rng = random.Random(3)
    wire = wires.make(count=3)
    sent = [[rng.randbytes(rng.choice((0, 1, 7, 300, 1000))) for _ in range(40)] for _ in range(3)]
    queues = [b"".join(map(framed, bodies)) for bodies in sent]
    taken: list[list[bytes]] = [[], [], []]
    live = live_count()
    while any(queues) or any(len(got) < 40 for got in taken):
        number = rng.randrange(3)
        cut = rng.randrange(1, 900)
        part, queues[number] = queues[number][:cut], queues[number][cut:]
        if part:
            wire.send(part, number)
        while wire.receive()[0]:
            for number, got in enumerate(taken):
                body = wire.take(number)
                if body is not None:
                    got.append(body)
    assert taken == sent
    assert live_count() == live
