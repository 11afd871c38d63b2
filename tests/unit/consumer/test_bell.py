"""Bell: every ring is heard by the next wait, and none by a later one."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from kfast.consumer.bell import Bell

FOREVER = 60.0


def ring(bell: Bell, lock: threading.Lock) -> None:
    with lock:
        bell.ring()


@pytest.fixture
def lock() -> threading.Lock:
    return threading.Lock()


@pytest.fixture
def bell() -> Bell:
    return Bell()


def is_heard(bell: Bell) -> bool:
    """Wait a moment; whether a ring ended it."""
    begun = time.monotonic()
    bell.wait(0.02)
    return time.monotonic() - begun < 0.02


def test_a_ring_before_the_wait_ends_it(bell: Bell, lock: threading.Lock) -> None:
    bell.arm()
    assert bell.is_armed
    ring(bell, lock)
    bell.wait(FOREVER)
    assert not bell.is_armed


def test_a_ring_during_the_wait_ends_it(bell: Bell, lock: threading.Lock) -> None:
    bell.arm()
    other = threading.Timer(0.01, ring, (bell, lock))
    other.start()
    bell.wait(None)
    other.join()
    assert not bell.is_armed


def test_nobody_waits_for_ever_without_a_ring(bell: Bell) -> None:
    bell.arm()
    assert not is_heard(bell)
    assert not bell.is_armed


def test_a_ring_that_nobody_awaits_is_forgotten(bell: Bell, lock: threading.Lock) -> None:
    ring(bell, lock)
    bell.arm()
    assert not is_heard(bell)


def test_two_rings_end_one_wait(bell: Bell, lock: threading.Lock) -> None:
    bell.arm()
    ring(bell, lock)
    ring(bell, lock)
    bell.wait(FOREVER)
    bell.arm()
    assert not is_heard(bell)


def test_an_interrupted_wait_leaves_the_bell_usable(bell: Bell, lock: threading.Lock) -> None:
    """L-04: Ctrl-C ends a wait at once."""
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        bell.arm()
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(KeyboardInterrupt):
            bell.wait(FOREVER)
    finally:
        signal.signal(signal.SIGALRM, previous)
    bell.arm()
    assert not is_heard(bell)
    bell.arm()
    ring(bell, lock)
    bell.wait(FOREVER)


def test_no_ring_is_lost_in_a_race(bell: Bell, lock: threading.Lock) -> None:
    """Rings that come as a wait gives up are either heard by it or by nobody."""
    rings = waits = 0
    is_over = threading.Event()

    def ring_on() -> None:
        nonlocal rings
        while not is_over.is_set():
            with lock:
                rings += bell.is_armed
                bell.ring()

    other = threading.Thread(target=ring_on)
    other.start()
    try:
        for number in range(3_000):
            with lock:
                bell.arm()
            bell.wait(0 if number % 2 else 1e-5)
            waits += 1
            assert not bell.is_armed
    finally:
        is_over.set()
        other.join()
    bell.arm()
    assert not is_heard(bell)
    assert waits == 3_000
    assert rings
