"""OwnedBuffer: read-only, alive as long as any view, recycled only then."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kfast._native import buffers
from kfast._native.buffers import OwnedBuffer, PoolShare, allocate, copy_of, most_capacity
from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.fetch.buffer import FetchBuffer

LARGE = 1 << 20
SHARE = 64 << 20


@pytest.fixture(autouse=True)
def share() -> Iterator[list[PoolShare]]:
    """What lets the pool keep blocks; empty it to have none."""
    gc.collect()
    if buffers.pool_stats()["limit_bytes"]:
        # A test that is over may have left some behind.
        for left in gc.get_objects():
            if isinstance(left, FetchBuffer):
                left.close()
    shares = [PoolShare(SHARE)]
    buffers.trim_pool()
    yield shares
    shares.clear()
    assert buffers.pool_stats()["bytes"] <= buffers.pool_stats()["limit_bytes"]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 4096, 65535, 65536, LARGE + 1])
def test_sizes(size: int) -> None:
    buffer = allocate(size)
    assert len(buffer) == buffer.size == size
    assert buffer.nbytes >= size
    assert bytes(buffer) == bytes(size)
    assert np.frombuffer(buffer.view(), np.uint8).size == size


def test_a_view_cannot_be_written() -> None:
    """D-25: exported memory is read-only."""
    buffer = copy_of(b"hello")
    assert buffer.view().readonly
    with pytest.raises(TypeError):
        buffer.view()[0] = 1
    array = np.frombuffer(buffer.view(), np.uint8)
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


def test_copies_are_copies() -> None:
    source = bytearray(b"abc")
    buffer = copy_of(source)
    source[0] = 0
    assert bytes(buffer) == b"abc"
    assert bytes(copy_of(memoryview(b"xyz")[1:])) == b"yz"


def test_a_view_keeps_the_bytes() -> None:
    """D-25: a block is reused when its last view has died, and not before."""
    buffer = copy_of(b"\x01" * LARGE)
    address = buffer.address
    view = np.frombuffer(buffer.view(), np.uint8)[5:]
    del buffer
    other = allocate(LARGE)
    assert other.address != address
    assert view.min() == 1
    del view
    assert allocate(LARGE).address == address


def test_only_large_blocks_are_pooled() -> None:
    allocate(1000)
    assert buffers.pool_stats()["blocks"] == 0
    allocate(LARGE)
    assert buffers.pool_stats()["blocks"] == 1
    assert buffers.pool_stats()["bytes"] >= LARGE


def test_a_block_serves_sizes_a_little_smaller() -> None:
    address = allocate(LARGE).address
    assert allocate(LARGE - 100_000).address == address
    assert allocate(LARGE // 4).address != address


def test_the_pool_is_bounded(share: list[PoolShare]) -> None:
    """B-07: the least recently used blocks are freed first, and all of them on demand."""
    share[:] = [PoolShare(4 * LARGE)]
    held = [allocate(LARGE) for _ in range(6)]
    addresses = [buffer.address for buffer in held]
    while held:
        held.pop(0)
    stats = buffers.pool_stats()
    assert stats["blocks"] == 4
    assert stats["bytes"] <= stats["limit_bytes"] == 4 * LARGE
    again = [allocate(LARGE) for _ in range(4)]
    assert {buffer.address for buffer in again} == set(addresses[2:])
    del again
    assert buffers.trim_pool(2 * LARGE) >= 2 * LARGE
    assert buffers.pool_stats()["bytes"] <= 2 * LARGE
    buffers.trim_pool()
    assert buffers.pool_stats()["blocks"] == buffers.pool_stats()["bytes"] == 0


def test_many_blocks_do_not_overflow_the_pool() -> None:
    held = [allocate(65536) for _ in range(600)]
    held.clear()
    assert buffers.pool_stats()["blocks"] <= 256


def test_without_a_consumer_nothing_is_recycled(share: list[PoolShare]) -> None:
    """B-26: the pool keeps what the budgets of the consumers alive allow, all of them together."""
    share.clear()
    allocate(LARGE)
    assert buffers.pool_stats()["blocks"] == 0
    with pytest.raises(ValueError, match="negative"):
        PoolShare(-1)
    consumers = [FetchBuffer(size, ApplicationWakeup()) for size in (2 * LARGE, LARGE)]
    assert buffers.pool_stats()["limit_bytes"] == 3 * LARGE
    held = [allocate(LARGE) for _ in range(5)]
    held.clear()
    assert buffers.pool_stats()["blocks"] == 3
    consumers[0].close()
    assert buffers.pool_stats()["blocks"] == 1
    consumers.clear()  # one that is not closed, too
    assert buffers.pool_stats()["blocks"] == buffers.pool_stats()["limit_bytes"] == 0


def test_the_largest_budgets_of_all_can_be_added_up(share: list[PoolShare]) -> None:
    share += [PoolShare(2**63 - 1) for _ in range(3)]
    allocate(LARGE)
    assert buffers.pool_stats()["blocks"] == 1


@pytest.mark.parametrize("size", [0, 1, 100, 65535, 65536, 100_000, LARGE, LARGE + 1])
def test_a_block_wastes_at_most_a_quarter(size: int) -> None:
    """B-05: so much is set aside for a buffer before it is made."""
    held = [allocate(LARGE + step * 8192) for step in range(100)]
    held += [allocate(65536 + step * 8192) for step in range(20)]
    held.clear()
    buffer = allocate(size)
    assert size <= buffer.nbytes <= most_capacity(size) <= max(64, size + size // 4)


FORKS = """
import ctypes, os, signal, threading, warnings
from kfast._native import buffers

warnings.simplefilter("ignore", DeprecationWarning)
api = ctypes.pythonapi
api.PyCapsule_GetName.restype, api.PyCapsule_GetPointer.restype = ctypes.c_char_p, ctypes.c_void_p
api.PyCapsule_GetName.argtypes = [ctypes.py_object]
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
capsule = buffers.__pyx_capi__["take_block"]
address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
size_t = ctypes.c_ssize_t
take = ctypes.CFUNCTYPE(ctypes.c_void_p, size_t, ctypes.POINTER(size_t))(address)
free = ctypes.CDLL(None).free
free.argtypes = [ctypes.c_void_p]
share = buffers.PoolShare(1 << 30)
held = [buffers.allocate(1 << 20) for _ in range(64)]
held.clear()

def take_blocks():
    got = size_t()
    while True:
        free(take(1 << 17, got))  # without the GIL, as the receiver does; the pool has none

for _ in range(2):
    threading.Thread(target=take_blocks, daemon=True).start()
ended = 0
for _ in range(60):
    child = os.fork()
    if not child:
        signal.alarm(2)
        held = [buffers.allocate(1 << 20) for _ in range(3)]
        before = buffers.pool_stats()["blocks"]
        held.clear()
        os._exit(buffers.pool_stats()["blocks"] != before + 3)
    ended += os.waitpid(child, 0)[1] == 0
print(ended, flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_never_waits_for_the_pool() -> None:
    """B-28: whatever the threads of the parent were doing at that moment."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) == 60, done.stderr


def test_counters_balance() -> None:
    count, nbytes = buffers.live_count(), buffers.live_bytes()
    held = [allocate(size) for size in (0, 10, LARGE)]
    assert buffers.live_count() == count + 3
    assert buffers.live_bytes() == nbytes + sum(buffer.nbytes for buffer in held)
    held.clear()
    assert (buffers.live_count(), buffers.live_bytes()) == (count, nbytes)


def test_threads_do_not_share_blocks() -> None:
    """D-25: buffers made, filled and dropped on several threads at once."""
    count = buffers.live_count()

    def work(mark: int) -> bool:
        fill = bytes([mark]) * (65536 + 8192 * (mark % 5))
        for _ in range(60):
            held = [copy_of(fill) for _ in range(4)]
            if any(bytes(buffer) != fill for buffer in held):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(1, 13)))
    assert buffers.live_count() == count


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        allocate(-1)
    with pytest.raises(MemoryError):
        allocate(1 << 62)
    with pytest.raises(TypeError):
        OwnedBuffer()
