"""NameResolver: look-ups on helper threads, asked for until they are there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence

import pytest

from kfast.client.node_addresses import Address
from kfast.threads import name_resolver
from kfast.threads.name_resolver import NameResolver
from tests.fake_clock import FakeClock

HERE = [Address(socket.AF_INET, ("10.0.0.1", 9092))]


class SlowResolver:
    """Answers when a test lets it."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked: list[tuple[str, str]] = []
        self.error: Exception | None = None

    def resolve(self, host: str, port: int) -> Sequence[Address]:
        self.asked.append((host, threading.current_thread().name))
        assert self.may_answer.wait(30)
        if self.error is not None:
            raise self.error
        return HERE

    def canonical_hosts(self, host: str, port: int) -> Sequence[str]:
        self.resolve(host, port)
        return [f"{host}.canonical"]


class Stage:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.slow = SlowResolver()
        self.done = threading.Semaphore(0)
        self.resolver = NameResolver(
            "kfast-resolver-test", self.slow, self.clock, self.done.release
        )

    def finish(self, count: int = 1) -> None:
        self.slow.may_answer.set()
        for _ in range(count):
            assert self.done.acquire(timeout=10)


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.slow.may_answer.set()
    until_no_thread()


def helpers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("kfast-resolver-test")]


def until_no_thread() -> None:
    for thread in helpers():
        thread.join(10)
    assert not helpers()


def test_a_name_is_looked_up_elsewhere_and_fetched_once(stage: Stage) -> None:
    """N-10: the caller never waits, and the same question is not asked twice meanwhile."""
    assert stage.resolver.resolve("b1", 9092) is None
    assert stage.resolver.resolve("b1", 9092) is None
    stage.finish()
    assert stage.resolver.resolve("b1", 9092) == HERE
    assert [(host, name[:19]) for host, name in stage.slow.asked] == [("b1", "kfast-resolver-test")]
    until_no_thread()
    assert stage.resolver.resolve("b1", 9092) is None, "fresh DNS after an outcome was used"
    stage.finish()


def test_canonical_names_are_looked_up_elsewhere_too(stage: Stage) -> None:
    """N-10: KIP-235."""
    assert stage.resolver.canonical_hosts("b1", 9092) is None
    stage.finish()
    assert stage.resolver.canonical_hosts("b1", 9092) == ["b1.canonical"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "not known"),
        (ValueError("embedded null byte"), "ValueError: embedded null byte"),
    ],
)
def test_errors_are_raised_where_the_name_is_asked_for(
    stage: Stage, error: Exception, words: str
) -> None:
    """E-04: the resolver's own words; any failure is an answer."""
    stage.slow.error = error
    assert stage.resolver.resolve("nosuch", 9092) is None
    stage.finish()
    with pytest.raises(OSError, match=words):
        stage.resolver.resolve("nosuch", 9092)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%eth0"])
def test_addresses_are_no_names(stage: Stage, host: str) -> None:
    """E-04: they are answered at once, on the thread that asks."""
    stage.slow.may_answer.set()
    assert stage.resolver.resolve(host, 9092) == HERE
    assert stage.slow.asked == [(host, threading.current_thread().name)]


def test_the_number_of_threads_is_bounded(stage: Stage) -> None:
    """L-07: names that hang hold a few threads; the others wait for their turn."""
    names = [f"b{number}" for number in range(10)]
    for name in names:
        assert stage.resolver.resolve(name, 9092) is None
    assert len(helpers()) == name_resolver.MAX_THREADS
    stage.finish(len(names))
    assert all(stage.resolver.resolve(name, 9092) == HERE for name in names)
    until_no_thread()


def test_an_old_outcome_is_not_used(stage: Stage) -> None:
    """N-10: an attempt given up long ago does not decide where the next one goes."""
    assert stage.resolver.resolve("b1", 9092) is None
    stage.finish()
    stage.clock.advance(name_resolver.MAX_AGE_MS + 1)
    assert stage.resolver.resolve("b1", 9092) is None
    stage.finish()
    assert stage.resolver.resolve("b1", 9092) == HERE


def test_close_waits_for_nothing_and_begins_nothing(stage: Stage) -> None:
    """L-01: what hangs is left behind, and does not call back."""
    for number in range(10):
        stage.resolver.resolve(f"b{number}", 9092)
    stage.resolver.close()
    assert stage.resolver.resolve("later", 9092) is None
    stage.slow.may_answer.set()
    until_no_thread()
    assert len(stage.slow.asked) <= name_resolver.MAX_THREADS
    assert not stage.done.acquire(timeout=0)
