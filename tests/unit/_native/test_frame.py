"""FrameReceiver: from a connection's bytes to whole frames."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kfast._native.buffers import OwnedBuffer, live_bytes, live_count
from kfast._native.frame import FrameReceiver
from kfast.errors import ProtocolError


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def pending(receiver: FrameReceiver) -> int | None:
    return receiver.pending_frame_size


def receive(receiver: FrameReceiver, data: bytes) -> list[bytes]:
    """Put data in as a socket would, as much per call as the view takes."""
    frames: list[bytes] = []
    while data:
        view = receiver.next_view()
        assert len(view) > 0
        assert not view.readonly
        count = min(len(view), len(data))
        view[:count] = data[:count]
        frame = receiver.advance(count)
        if frame is not None:
            frames.append(bytes(frame))
        data = data[count:]
    return frames


def test_frames_come_without_their_size() -> None:
    receiver = FrameReceiver(1000)
    assert receive(receiver, framed(b"abc") + framed(b"") + framed(b"x" * 1000)) == [
        b"abc",
        b"",
        b"x" * 1000,
    ]
    assert receiver.pending_bytes == 0


def test_the_size_prefix_is_never_mixed_with_the_frame() -> None:
    """N-06: what is read ahead of the size would have to be moved; so it is not read."""
    receiver = FrameReceiver(1000)
    view = receiver.next_view()
    assert len(view) == 4
    view[:1] = b"\x00"
    assert receiver.advance(1) is None
    assert len(receiver.next_view()) == 3


def test_every_split_gives_the_same_frames() -> None:
    """N-06: reads split at any byte."""
    data = framed(b"first") + framed(b"") + framed(b"second one")
    for cut in range(len(data) + 1):
        receiver = FrameReceiver(1000)
        frames = [*receiver.feed(data[:cut]), *receiver.feed(data[cut:])]
        assert [bytes(frame) for frame in frames] == [b"first", b"", b"second one"]
    receiver = FrameReceiver(1000)
    single = [frame for byte in data for frame in receiver.feed(bytes([byte]))]
    assert [bytes(frame) for frame in single] == [b"first", b"", b"second one"]


def test_a_frame_has_exactly_its_size() -> None:
    (frame,) = FrameReceiver(1 << 20).feed(framed(b"y" * 70_000))
    assert isinstance(frame, OwnedBuffer)
    assert len(frame) == frame.size == 70_000
    assert memoryview(frame).readonly


@pytest.mark.parametrize(
    "prefix", [b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x00\x03\xe9", b"HTTP"]
)
def test_hostile_sizes(prefix: bytes) -> None:
    """D-21: a negative or oversize frame is refused before any memory is taken, for good."""
    receiver = FrameReceiver(1000)
    buffers, size = live_count(), live_bytes()
    view = receiver.next_view()
    view[:4] = prefix
    with pytest.raises(ProtocolError) as raised:
        receiver.advance(4)
    assert str(prefix) in str(raised.value)
    assert (live_count(), live_bytes()) == (buffers, size)
    with pytest.raises(ProtocolError):
        receiver.next_view()
    with pytest.raises(ProtocolError):
        receiver.feed(b"x")


def test_the_largest_frame_is_accepted() -> None:
    (frame,) = FrameReceiver(1000).feed(framed(b"z" * 1000))
    assert frame.size == 1000


def test_no_memory_is_taken_before_the_frame_is_asked_for() -> None:
    """B-05: the size is known first, so that a full consumer can leave the frame in the socket."""
    receiver = FrameReceiver(1 << 30)
    before = live_bytes()
    assert pending(receiver) is None
    assert receive(receiver, (1 << 29).to_bytes(4, "big")) == []
    assert pending(receiver) == 1 << 29
    assert live_bytes() == before


WITHOUT_MEMORY = """
import resource
from kfast._native.frame import FrameReceiver
from kfast.errors import KafkaConnectionError
receiver = FrameReceiver(1 << 30)
receiver.next_view()[:] = (1 << 29).to_bytes(4, "big")
receiver.advance(4)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 26),) * 2)
try:
    receiver.next_view()
except KafkaConnectionError as error:
    assert error.retriable
    print(error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_memory_for_a_frame_is_a_lost_connection() -> None:
    """B-27: the response is requested again, and the network thread goes on."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMORY], capture_output=True, text=True, check=True
    )
    assert "no memory for a response of 536870912 bytes" in done.stdout, done.stderr


def test_pending_frame_size_until_the_frame_is_complete() -> None:
    receiver = FrameReceiver(1000)
    receiver.feed(b"\x00\x00")
    assert pending(receiver) is None
    receiver.feed(b"\x00\x03ab")
    assert pending(receiver) == 3
    assert receiver.pending_bytes == 6
    assert len(receiver.feed(b"c")) == 1
    assert pending(receiver) is None


def test_a_finished_frame_cannot_be_written_any_more() -> None:
    """D-25: the view is dead once its bytes are reported."""
    receiver = FrameReceiver(1000)
    receiver.feed(b"\x00\x00\x00\x02")
    view = receiver.next_view()
    view[:] = b"ok"
    frame = receiver.advance(2)
    assert frame is not None
    with pytest.raises(ValueError, match="released"):
        view[0] = 0
    assert bytes(frame) == b"ok"


def test_frames_do_not_share_memory() -> None:
    """D-25: a frame in use is not recycled."""
    receiver = FrameReceiver(1 << 20)
    first = receiver.feed(framed(b"a" * 100_000))[0]
    second = receiver.feed(framed(b"b" * 100_000))[0]
    assert bytes(first) == b"a" * 100_000
    assert first.address != second.address


def test_asking_twice_gives_the_same_place() -> None:
    receiver = FrameReceiver(1000)
    receiver.feed(b"\x00\x00\x00\x03a")
    receiver.next_view()
    view = receiver.next_view()
    assert len(view) == 2
    view[:] = b"bc"
    frame = receiver.advance(2)
    assert frame is not None
    assert bytes(frame) == b"abc"


@pytest.mark.parametrize("count", [-1, 0, 5])
def test_counts_outside_the_view(count: int) -> None:
    receiver = FrameReceiver(1000)
    receiver.next_view()
    with pytest.raises(ValueError, match="do not fit"):
        receiver.advance(count)


def test_advance_needs_a_view() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        FrameReceiver(1000).advance(1)


def test_dropping_a_receiver_frees_its_frame() -> None:
    before = live_count()
    receiver = FrameReceiver(1 << 20)
    receiver.feed((100_000).to_bytes(4, "big") + b"abc")
    assert live_count() == before + 1
    del receiver
    assert live_count() == before


VIEW_IN_A_CYCLE = """
import ctypes, gc
from kfast._native.frame import FrameReceiver
gc.collect()
receiver = FrameReceiver(1000)
view = receiver.next_view()
view[:] = bytes([0, 0, 0, 16])
receiver.advance(4)
cycle = [receiver.next_view()]
cycle.append(cycle)
del receiver, view, cycle
gc.collect()
after_none = ctypes.c_void_p.from_address(id(type(None)) + object.__basicsize__ // 2)
assert after_none.value == id(type), "memory behind None was written to"
"""


def test_a_view_in_a_cycle_is_collected_without_harm() -> None:
    """D-25: as in the traceback of an error that refers to itself."""
    done = subprocess.run(
        [sys.executable, "-c", VIEW_IN_A_CYCLE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
