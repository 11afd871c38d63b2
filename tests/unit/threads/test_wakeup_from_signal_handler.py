"""wakeup() from the handler of a signal: no lock is waited for, and no wait begins after it."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from kfast import KafkaConsumer
from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.threads.application_event import ApplicationEvent
from tests.unit.threads.interruptions import places_before_it_blocks, run_interrupted

ALWAYS = 60.0
PROMPT = 20.0


def test_a_wait_is_ended_without_a_lock() -> None:
    """L-03: the main thread may hold any lock in the moment the handler runs on it."""
    consumer = KafkaConsumer(bootstrap_servers="127.0.0.1:1")
    runtime = consumer._runtime
    runtime.fetch_buffer.heads()
    with runtime.subscriptions.lock, runtime.fetch_buffer._lock, runtime._errors._lock:
        handler = threading.Thread(target=consumer.wakeup, daemon=True)
        handler.start()
        handler.join(PROMPT)
        assert not handler.is_alive()
    assert runtime.wakeup_event.wait(ALWAYS)
    consumer.close()


def test_a_wakeup_before_the_wait_ends_it() -> None:
    """L-03: also between the last look and the wait."""
    wakeup = ApplicationWakeup()
    wakeup.look()
    wakeup.signal()
    assert wakeup.wait(ALWAYS)
    wakeup.look()
    assert not wakeup.wait(0)


def test_an_application_event_hears_a_handler_at_every_place() -> None:
    """L-03: position, committed and commit wait like this."""
    event: ApplicationEvent[int] = ApplicationEvent("look up", lambda _: 1)
    count = places_before_it_blocks(lambda: event.wait(ALWAYS), event.interrupt)
    assert count > 10
    for at in range(1, count + 1):
        event = ApplicationEvent("look up", lambda _: 1)
        begun = time.monotonic()
        run_interrupted(partial(event.wait, ALWAYS), event.interrupt, at)
        assert time.monotonic() - begun < PROMPT, at


@pytest.mark.parametrize("is_listener", [False, True])
def test_waiting_for_a_position_can_be_interrupted_anywhere(is_listener: bool) -> None:
    """L-03: wakeup() takes no lock that the wait for a position holds."""
    consumer = KafkaConsumer(bootstrap_servers="127.0.0.1:1")
    runtime = consumer._runtime

    def wait() -> None:
        if is_listener:
            with runtime.uninterrupted:
                runtime.wait_for_position(1)
        else:
            runtime.wait_for_position(1)

    for at in range(1, 120):
        run_interrupted(wait, consumer.wakeup, at)
    consumer.close()
