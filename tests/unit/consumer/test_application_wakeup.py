"""ApplicationWakeup: what ends a wait, and the hand-over of the interpreter."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kfast.consumer import application_wakeup
from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.error_mailbox import ErrorMailbox
from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.errors import KafkaError
from tests.unit.consumer.fakes import T0, T1, failed_fetch, fetch
from tests.unit.consumer.fetch.buffers import ALWAYS, MIB, put

if TYPE_CHECKING:
    import pytest


def test_wait_ends_for_what_came_after_the_last_look() -> None:
    """B-08: data, decoded chunks, errors and wakeup end a wait; nothing else does."""
    wakeup = ApplicationWakeup()
    buffer = FetchBuffer(MIB, wakeup)
    errors = ErrorMailbox(wakeup)
    buffer.heads()
    assert not wakeup.wait(0)
    for happen in (
        lambda: put(buffer, fetch(T0)),
        lambda: buffer.decoding.decode_one(0),
        lambda: errors.put(KafkaError("x")),
        wakeup.signal,
        lambda: put(buffer, failed_fetch(T1, KafkaError("x"))),
    ):
        happen()
        assert wakeup.wait(0)
        buffer.heads()
        assert not wakeup.wait(0)
    put(buffer)
    assert not wakeup.wait(0)


def test_a_blocked_wait_is_ended_from_another_thread() -> None:
    wakeup = ApplicationWakeup()
    buffer = FetchBuffer(MIB, wakeup)
    buffer.heads()
    thread = threading.Thread(target=wakeup.signal)
    thread.start()
    assert wakeup.wait(ALWAYS)
    thread.join()


def test_a_waiting_application_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that brings a small answer goes on when the application waits for the next."""
    monkeypatch.setattr(application_wakeup, "HAND_OVER_S", ALWAYS)
    wakeup = ApplicationWakeup()
    buffer = FetchBuffer(MIB, wakeup)
    buffer.heads()
    done: list[str] = []

    def application() -> None:
        assert wakeup.wait(ALWAYS)
        buffer.heads()
        done.append("taken")
        wakeup.wait(0)

    thread = threading.Thread(target=application)
    thread.start()
    while not wakeup.has_waiter:
        pass
    put(buffer, fetch(T0))
    assert done == ["taken"]
    thread.join()


def test_the_network_thread_does_not_yield_to_an_application_that_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(application_wakeup, "HAND_OVER_S", ALWAYS)
    wakeup = ApplicationWakeup()
    buffer = FetchBuffer(MIB, wakeup)
    put(buffer, fetch(T0))  # returns
    assert buffer.has_data(T0)
