"""WakeupEvent: every `set` ends the wait that was prepared for it, and no later one."""

from __future__ import annotations

import signal
import sys
import threading
import time

import pytest

from kfast._runtime.wakeup_event import WakeupEvent
from tests.signals import signalled

FOREVER = 60.0


def set_event(event: WakeupEvent, lock: threading.Lock) -> None:
    with lock:
        event.set()


@pytest.fixture
def lock() -> threading.Lock:
    return threading.Lock()


@pytest.fixture
def event() -> WakeupEvent:
    return WakeupEvent()


def is_set(event: WakeupEvent) -> bool:
    """Wait for 20 ms; return whether the wait ended before."""
    begun = time.monotonic()
    event.wait(0.02)
    return time.monotonic() - begun < 0.02


def test_set_before_the_wait_ends_it(event: WakeupEvent, lock: threading.Lock) -> None:
    event.prepare()
    assert event.has_waiter
    set_event(event, lock)
    event.wait(FOREVER)
    assert not event.has_waiter


def test_set_during_the_wait_ends_it(event: WakeupEvent, lock: threading.Lock) -> None:
    event.prepare()
    other = threading.Timer(0.01, set_event, (event, lock))
    other.start()
    event.wait(None)
    other.join()
    assert not event.has_waiter


def test_a_wait_times_out(event: WakeupEvent) -> None:
    event.prepare()
    assert not is_set(event)
    assert not event.has_waiter


def test_set_without_a_waiter_has_no_effect(event: WakeupEvent, lock: threading.Lock) -> None:
    set_event(event, lock)
    event.prepare()
    assert not is_set(event)


def test_set_twice_ends_one_wait(event: WakeupEvent, lock: threading.Lock) -> None:
    event.prepare()
    set_event(event, lock)
    set_event(event, lock)
    event.wait(FOREVER)
    event.prepare()
    assert not is_set(event)


def test_an_interrupted_wait_leaves_the_event_usable(
    event: WakeupEvent, lock: threading.Lock
) -> None:
    """L-04: Ctrl-C ends a wait at once."""
    event.prepare()
    with signalled(signal.default_int_handler, [0.01]), pytest.raises(KeyboardInterrupt):
        event.wait(FOREVER)
    event.prepare()
    assert not is_set(event)
    event.prepare()
    set_event(event, lock)
    event.wait(FOREVER)


def test_no_wakeup_is_lost_in_a_race(event: WakeupEvent, lock: threading.Lock) -> None:
    """`set` as a wait times out either ends that wait or has no effect."""
    wakeups = waits = 0
    is_over = threading.Event()

    def set_repeatedly() -> None:
        nonlocal wakeups
        while not is_over.is_set():
            with lock:
                wakeups += event.has_waiter
                event.set()

    other = threading.Thread(target=set_repeatedly)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    other.start()
    try:
        for number in range(3_000):
            with lock:
                event.prepare()
            event.wait(0 if number % 2 else 1e-5)
            waits += 1
            assert not event.has_waiter
    finally:
        sys.setswitchinterval(interval)
        is_over.set()
        other.join()
    event.prepare()
    assert not is_set(event)
    assert waits == 3_000
    assert wakeups


def test_release_and_wait_ends_one_wait_and_begins_another(lock: threading.Lock) -> None:
    forth, back = WakeupEvent(), WakeupEvent()
    forth.prepare()
    woken: list[str] = []

    def application() -> None:
        forth.wait(FOREVER)
        woken.append("forth")
        with lock:
            back.set()

    other = threading.Thread(target=application)
    other.start()
    with lock:
        assert forth.claim_waiter()
        back.prepare()
    forth.release_and_wait(back, FOREVER)
    assert woken == ["forth"]
    assert not back.has_waiter
    other.join()
    assert not forth.has_waiter


def test_release_and_wait_times_out(event: WakeupEvent) -> None:
    back = WakeupEvent()
    event.prepare()
    assert event.claim_waiter()
    back.prepare()
    begun = time.monotonic()
    event.release_and_wait(back, 0.02)
    assert time.monotonic() - begun >= 0.02
    assert not back.has_waiter
    event.wait(FOREVER)  # the wake-up was not lost


def test_a_waiter_is_claimed_once(event: WakeupEvent) -> None:
    assert not event.claim_waiter()
    event.prepare()
    assert event.claim_waiter()
    assert not event.claim_waiter()
    event.set()  # no effect: the wake-up is the claimer's
    assert not is_set(event)


def test_release_after_the_wait_timed_out_does_no_harm(event: WakeupEvent) -> None:
    """The wait timed out between claim and release: at worst the next one ends early."""
    back = WakeupEvent()
    for _ in range(3):
        event.prepare()
        assert event.claim_waiter()
        assert not is_set(event)
        event.prepare()
        back.prepare()
        event.release_and_wait(back, 0)
        event.set()
        event.wait(FOREVER)
        event.prepare()
        assert not is_set(event)
