"""Bell: every ring is heard by the next wait, and none by a later one."""

from __future__ import annotations

import signal
import sys
import threading
import time

import pytest

from kfast._runtime.bell import Bell
from tests.signals import signalled

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
    bell.arm()
    with signalled(signal.default_int_handler, [0.01]), pytest.raises(KeyboardInterrupt):
        bell.wait(FOREVER)
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
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    other.start()
    try:
        for number in range(3_000):
            with lock:
                bell.arm()
            bell.wait(0 if number % 2 else 1e-5)
            waits += 1
            assert not bell.is_armed
    finally:
        sys.setswitchinterval(interval)
        is_over.set()
        other.join()
    bell.arm()
    assert not is_heard(bell)
    assert waits == 3_000
    assert rings


def test_a_hand_over_ends_one_wait_and_begins_another(lock: threading.Lock) -> None:
    forth, back = Bell(), Bell()
    forth.arm()
    heard: list[str] = []

    def application() -> None:
        forth.wait(FOREVER)
        heard.append("forth")
        with lock:
            back.ring()

    other = threading.Thread(target=application)
    other.start()
    with lock:
        assert forth.promise()
        back.arm()
    forth.hand_over(back, FOREVER)
    assert heard == ["forth"]
    assert not back.is_armed
    other.join()
    assert not forth.is_armed


def test_a_hand_over_that_nobody_answers_ends(bell: Bell) -> None:
    back = Bell()
    bell.arm()
    assert bell.promise()
    back.arm()
    begun = time.monotonic()
    bell.hand_over(back, 0.02)
    assert time.monotonic() - begun >= 0.02
    assert not back.is_armed
    bell.wait(FOREVER)  # the ring was not lost


def test_a_ring_is_promised_once_and_to_somebody(bell: Bell) -> None:
    assert not bell.promise()
    bell.arm()
    assert bell.promise()
    assert not bell.promise()
    bell.ring()  # is the promised one's
    assert not is_heard(bell)


def test_a_promise_that_comes_late_does_no_harm(bell: Bell) -> None:
    """The wait ended by itself between the promise and the ring: at worst the next ends early."""
    back = Bell()
    for _ in range(3):
        bell.arm()
        assert bell.promise()
        assert not is_heard(bell)
        bell.arm()
        back.arm()
        bell.hand_over(back, 0)
        bell.ring()
        bell.wait(FOREVER)
        bell.arm()
        assert not is_heard(bell)
