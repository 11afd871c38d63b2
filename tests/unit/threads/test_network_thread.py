"""NetworkThread: its turns, its events, its death and its end."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from kfast.client.request_manager import PollResult
from kfast.consumer.pending_result import PendingResult
from kfast.errors import IllegalStateError, KafkaError, WakeupError
from kfast.threads.application_event import ApplicationEvent
from kfast.threads.network_thread import NetworkThread
from tests.fake_clock import FakeClock

if TYPE_CHECKING:
    from kfast.client.request import UnsentRequest


class FakeDriver:
    """A network client without sockets: ``poll`` blocks until ``wakeup``."""

    def __init__(self) -> None:
        self.woken = threading.Event()
        self.sent: list[UnsentRequest] = []
        self.timeouts: list[int] = []
        self.is_closed = False
        self.error: BaseException | None = None

    def send(self, request: UnsentRequest, now_ms: int) -> None:
        self.sent.append(request)

    def poll(self, timeout_ms: int, now_ms: int) -> None:
        self.timeouts.append(timeout_ms)
        if self.error is not None:
            raise self.error
        if timeout_ms:
            self.woken.wait(10)
            self.woken.clear()

    def wakeup(self) -> None:
        self.woken.set()

    def close(self, timeout_ms: int) -> None:
        self.is_closed = True


class FakeManager:
    """Returns one prepared result per poll, then nothing."""

    def __init__(self, results: Sequence[PollResult] = ()) -> None:
        self.results = list(results)
        self.polls = 0

    def poll(self, now_ms: int) -> PollResult:
        self.polls += 1
        return self.results.pop(0) if self.results else PollResult()


def make(
    driver: FakeDriver, *managers: FakeManager, deaths: list[BaseException] | None = None
) -> NetworkThread:
    return NetworkThread(
        "kfast-network-test",
        driver,
        managers,
        FakeClock(),
        on_failure=(deaths if deaths is not None else []).append,
        last_requests=list,
        on_end=lambda: None,
    )


def test_event_runs_and_its_value_arrives() -> None:
    """L-06: the application asks, the network thread does, the outcome crosses back."""
    driver = FakeDriver()
    network = make(driver)
    network.start()
    names: list[str] = []

    def action(now_ms: int) -> int:
        names.append(threading.current_thread().name)
        return 7

    event = ApplicationEvent("a test", action)
    network.submit(event)
    assert event.wait(10)
    assert event.result() == 7
    assert names == ["kfast-network-test"]
    assert network.close(10_000)
    assert driver.is_closed


def test_pending_outcome_arrives_later() -> None:
    """L-06: an event whose answer is still out is completed by the answer."""
    driver = FakeDriver()
    network = make(driver)
    network.start()
    pending: PendingResult[str] = PendingResult()
    event: ApplicationEvent[str] = ApplicationEvent("a test", lambda _: pending)
    network.submit(event)
    answer = ApplicationEvent("the answer", lambda _: pending.complete("here"))
    network.submit(answer)
    assert event.wait(10)
    assert event.result() == "here"
    network.close(10_000)


def test_kafka_error_of_an_action_is_raised_by_the_caller() -> None:
    """E-06: what went wrong on the network thread is raised where it was asked for."""
    driver = FakeDriver()
    network = make(driver)
    network.start()

    def action(now_ms: int) -> int:
        raise KafkaError("no such thing")

    event = ApplicationEvent("a test", action)
    network.submit(event)
    assert event.wait(10)
    with pytest.raises(KafkaError, match="no such thing"):
        event.result()
    network.close(10_000)


def test_death_fails_pending_and_later_calls() -> None:
    """L-09: an exception in the network thread fails pending and later calls with that error."""
    driver = FakeDriver()
    deaths: list[BaseException] = []
    network = make(driver, deaths=deaths)
    network.start()
    waiting: ApplicationEvent[int] = ApplicationEvent("a test", lambda _: PendingResult[int]())
    network.submit(waiting)
    driver.error = ZeroDivisionError("a bug")
    driver.wakeup()
    assert waiting.wait(10)
    with pytest.raises(KafkaError, match="ZeroDivisionError: a bug"):
        waiting.result()
    assert network.close(10_000)
    assert len(deaths) == 1
    with pytest.raises(KafkaError, match="network thread of this consumer failed"):
        network.submit(ApplicationEvent("later", lambda _: 1))


def test_requests_are_sent_and_the_earliest_deadline_bounds_the_sleep() -> None:
    """N-17: the loop sleeps until the earliest deadline of a manager, not shorter."""
    driver = FakeDriver()
    network = make(
        driver,
        FakeManager([PollResult((), 250)]),
        FakeManager([PollResult((), 90)]),
    )
    network.start()
    network.wakeup()
    assert network.close(10_000)
    assert driver.timeouts[0] == 90


def test_close_ends_the_thread_and_fails_what_waits() -> None:
    """L-01: close is bounded, and nobody is left waiting."""
    driver = FakeDriver()
    network = make(driver)
    network.start()
    waiting: ApplicationEvent[int] = ApplicationEvent("a test", lambda _: PendingResult[int]())
    network.submit(waiting)
    assert network.close(10_000)
    assert not network.is_alive
    assert waiting.wait(10)
    with pytest.raises(IllegalStateError, match="closed"):
        waiting.result()


@pytest.mark.parametrize("has_run", [True, False])
def test_an_abandoned_event_stops_its_work(has_run: bool) -> None:
    """L-03, L-04: what nobody waits for is cancelled on the network thread, or never begun."""
    driver = FakeDriver()
    network = make(driver)
    pending: PendingResult[int] = PendingResult()
    begun: list[int] = []
    cancelled = threading.Event()
    pending.add_callback(lambda _: cancelled.set())

    def action(now_ms: int) -> PendingResult[int]:
        begun.append(now_ms)
        return pending

    event: ApplicationEvent[int] = ApplicationEvent("a test", action)
    if has_run:
        network.start()
        network.submit(event)
        barrier = ApplicationEvent("another", lambda _: 1)
        network.submit(barrier)
        assert barrier.wait(10)
        network.abandon(event)
        assert cancelled.wait(10)
        assert isinstance(pending.error, WakeupError)
    else:
        network.submit(event)
        network.abandon(event)
        network.start()
        barrier = ApplicationEvent("another", lambda _: 1)
        network.submit(barrier)
        assert barrier.wait(10)
    assert bool(begun) is has_run
    assert event.is_done
    network.close(10_000)


def test_interrupt_ends_a_wait_without_an_outcome() -> None:
    """L-03: wakeup ends the wait of a blocked call."""
    event: ApplicationEvent[int] = ApplicationEvent("a test", lambda _: 1)
    event.interrupt()
    assert not event.wait(10)
    event.run(0)
    assert event.wait(10)


def test_a_close_without_time_left_sees_the_thread_end() -> None:
    """L-01, L-07, O-01: it keeps to the time by itself, so that nobody is told it goes on."""
    driver = FakeDriver()
    network = make(driver)
    network.start()
    assert network.close(0)
    assert driver.is_closed
