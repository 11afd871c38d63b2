"""LoginWorker: steps one after the other on one thread, and the end of it."""

from __future__ import annotations

import threading

import pytest

from kfast._base.clock import ExponentialBackoff, SystemClock
from kfast.errors import AuthenticationError, KafkaError
from kfast.security.login_worker import LoginPause, LoginStep, LoginWorker
from kfast.security.sasl.mechanism import Work
from kfast.security.sasl.token_cache import RefreshRule, TokenCache
from kfast.settings.secret import Secret
from kfast.types import OAuthToken

WAIT_S = 10


class Worker:
    """A worker, and when it was done with a step."""

    def __init__(self, tokens: TokenCache | None = None) -> None:
        self.done = threading.Semaphore(0)
        self.pause = LoginPause()
        self.worker = LoginWorker(
            "kfast-login-test", SystemClock(), self.pause, tokens, self.done.release
        )

    def run(self, work: Work) -> LoginStep:
        step = self.worker.submit(work)
        assert self.done.acquire(timeout=WAIT_S)
        assert step.is_done
        return step


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_a_step_runs_on_a_thread_of_its_own(worker: Worker) -> None:
    """S-07: the network thread never runs the user's code."""
    names: list[str] = []

    def run() -> Secret[bytes]:
        names.append(threading.current_thread().name)
        return Secret(b"token")

    steps = [worker.run(Work(run)) for _ in range(3)]
    assert [step.result() for step in steps] == [Secret(b"token")] * 3
    assert set(names) == {"kfast-login-test"}
    worker.worker.end()


def test_no_thread_before_the_first_step(worker: Worker) -> None:
    assert repr(worker.worker) == "<LoginWorker kfast-login-test not started>"
    before = {*threading.enumerate()}  # a worker of the test before may still be ending
    worker.worker.end()
    worker.worker.submit(Work(lambda: None))
    assert {*threading.enumerate()} <= before


def test_errors_are_raised_by_the_result(worker: Worker) -> None:
    """S-09: of an exception that is a bug only the class is shown."""
    refused = AuthenticationError("no")

    def refuse() -> Secret[bytes]:
        raise refused

    def fail() -> Secret[bytes]:
        raise ValueError("S3cr3t")

    with pytest.raises(AuthenticationError) as caught:
        worker.run(Work(refuse)).result()
    assert caught.value is refused
    with pytest.raises(KafkaError, match="internal error: ValueError") as caught_bug:
        worker.run(Work(fail)).result()
    assert "S3cr3t" not in str(caught_bug.value)
    worker.worker.end()


def test_a_step_that_exits_has_an_outcome_and_the_next_one_runs(worker: Worker) -> None:
    """U-06: a log-in without an outcome would never end."""

    def leave() -> None:
        raise SystemExit("S3cr3t")

    with pytest.raises(AuthenticationError, match="internal error: SystemExit"):
        worker.run(Work(leave)).result()
    assert worker.run(Work(lambda: Secret(b"token"))).result() == Secret(b"token")
    worker.worker.end()


def test_a_cancelled_step_is_not_run(worker: Worker) -> None:
    begin, ran = threading.Event(), []

    def first() -> None:
        begin.wait(WAIT_S)

    def second() -> None:
        ran.append(2)

    worker.worker.submit(Work(first))
    worker.worker.submit(Work(second)).cancel()
    third = worker.worker.submit(Work(lambda: Secret(b"3")))
    begin.set()
    for _ in range(2):
        assert worker.done.acquire(timeout=WAIT_S)
    assert third.result() == Secret(b"3")
    assert not ran
    worker.worker.end()


def test_the_end_waits_for_no_step(worker: Worker) -> None:
    """L-01: a provider that hangs does not keep a consumer from closing."""
    begun, release = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        release.wait(WAIT_S)

    step = worker.worker.submit(Work(hang))
    assert begun.wait(WAIT_S)
    worker.worker.end()
    assert not step.is_done
    release.set()


def test_a_pause_ends_with_the_worker(worker: Worker) -> None:
    assert worker.pause.wait(1)
    worker.worker.end()
    for _ in range(2):
        assert not worker.pause.wait(60_000)


def test_a_token_is_renewed_without_a_log_in() -> None:
    """S-07: so that a token that cannot be renewed is known before it expires."""
    clock = SystemClock()
    asked = threading.Semaphore(0)

    def ask() -> OAuthToken:
        asked.release()
        return OAuthToken("t", clock.wall_ms() + 100)

    tokens = TokenCache(ask, RefreshRule(), ExponentialBackoff(100, 100), clock)
    worker = Worker(tokens)

    def first() -> Secret[bytes]:
        return Secret(tokens.token().value.encode())

    worker.run(Work(first))
    for _ in range(3):
        assert asked.acquire(timeout=WAIT_S)
    worker.worker.end()
