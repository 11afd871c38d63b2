"""OwnedBuffer: read-only, alive as long as any view, recycled only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kfast._native import buffers
from kfast._native.buffers import OwnedBuffer, allocate, copy_of

LARGE = 1 << 20
DEFAULT_LIMIT = 64 << 20


@pytest.fixture(autouse=True)
def empty_pool() -> Iterator[None]:
    gc.collect()
    buffers.trim_pool()
    yield
    buffers.set_pool_limit(DEFAULT_LIMIT)
    buffers.trim_pool()


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


def test_the_pool_is_bounded() -> None:
    """B-07: the least recently used blocks are freed first, and all of them on demand."""
    buffers.set_pool_limit(4 * LARGE)
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


def test_recycling_can_be_off() -> None:
    buffers.set_pool_limit(0)
    allocate(LARGE)
    assert buffers.pool_stats()["blocks"] == 0
    with pytest.raises(ValueError, match="negative"):
        buffers.set_pool_limit(-1)


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
