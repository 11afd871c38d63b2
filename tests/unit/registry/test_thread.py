"""The thread of a schema registry: when it runs, and who it wakes."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kfast import SchemaRegistry
from kfast.errors import IllegalStateError, SchemaRegistryError
from kfast.registry.registered_schema import SchemaKey
from kfast.registry.thread import NAME, SchemaThread
from tests.fake_registry.server import FakeRegistry, fake_registry, silent
from tests.unit.registry_cases import AVRO, LIMIT_S, QUICK, SHORT


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry() as server:
        yield server


def until(condition: Any) -> None:
    """Wait until a condition holds that another thread makes true."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.002)


def thread_of(registry: SchemaRegistry) -> SchemaThread:
    return registry._thread


def test_the_thread_lives_as_long_as_it_is_needed(fake: FakeRegistry) -> None:
    """TC-125: started by the first unknown id, it ends when it is idle, and is started again."""
    fake.register("s", AVRO)
    fake.register("s", '"int"')
    with SchemaRegistry(fake.url) as registry:
        thread = thread_of(registry)
        thread._idle_ms = 10
        assert not thread.is_running
        registry.schema(1)
        until(lambda: not thread.is_running)
        registry.schema(1)
        assert not thread.is_running
        registry.schema(2)
        thread._idle_ms = 60_000
    until(lambda: not thread.is_running)
    assert all(other.name != NAME for other in threading.enumerate())


def test_a_forgotten_registry_ends_its_thread(fake: FakeRegistry) -> None:
    """TC-125: at once, whoever collects it, and after the look-ups that others still have."""
    number = fake.register("s", AVRO)
    registry = SchemaRegistry(fake.url, **QUICK)
    registry.schema(number)
    thread = thread_of(registry)
    assert thread.is_running
    with thread._lock:
        del registry
    until(lambda: not thread.is_running)

    released = threading.Event()
    fake.answer_next(silent(released))
    registry = SchemaRegistry(fake.url, **QUICK)
    request = registry.lookup([SchemaKey.of_id(number)])
    thread = thread_of(registry)
    del registry
    assert thread.is_running
    released.set()
    until(lambda: not thread.is_running)
    answers = request.answers()
    assert answers is not None
    assert answers.schemas[SchemaKey.of_id(number)].text == AVRO


def test_a_look_up_does_not_wait(fake: FakeRegistry) -> None:
    """TC-126: and wakes who waits, on another thread."""
    released, woken = threading.Event(), threading.Event()
    number = fake.register("s", AVRO)
    fake.answer_next(silent(released))
    names = []

    def wake() -> None:
        names.append(threading.current_thread().name)
        woken.set()

    with SchemaRegistry(fake.url, **QUICK) as registry:
        key = SchemaKey.of_id(number)
        request = registry.lookup([key], wake)
        assert request.answers() is None
        released.set()
        assert woken.wait(LIMIT_S)
        answers = request.answers()
        assert answers is not None
        assert answers.schemas[key].text == AVRO
        assert names == [NAME]
        again = registry.lookup([key], wake)
        assert again.answers() is not None
        assert names == [NAME]  # what is known is answered at once


def test_six_threads_make_one_request(fake: FakeRegistry) -> None:
    """TC-101"""
    fake.register("s", AVRO)
    with SchemaRegistry(fake.url, **QUICK) as registry:
        schemas: list[Any] = []
        threads = [
            threading.Thread(target=lambda: schemas.append(registry.schema(1))) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
    assert [schema.text for schema in schemas] == [AVRO] * 6
    assert len(fake.requests) == 1


def test_a_consumer_gets_the_error_and_the_next_look_up_tries_again() -> None:
    """TC-106, TC-126: each request has an error of its own to raise."""
    with fake_registry() as gone:
        url = gone.url
    with SchemaRegistry(url, **SHORT) as registry:
        key = SchemaKey.of_id(1)
        requests = [registry.lookup([key]) for _ in range(2)]
        until(lambda: requests[0].answers() is not None)
        until(lambda: requests[1].answers() is not None)
        errors = [request.answers().error for request in requests]  # type: ignore[union-attr]
        assert errors[0] is not errors[1]
        assert all(isinstance(error, SchemaRegistryError) for error in errors)
        assert registry.lookup([key]).answers() is None


def test_closing_ends_what_waits(fake: FakeRegistry) -> None:
    """TC-125: what is known stays usable."""
    released = threading.Event()
    fake.register("s", AVRO)
    with SchemaRegistry(fake.url, **QUICK) as registry:
        registry.schema(1)
        fake.answer_next(silent(released))
        request = registry.lookup([SchemaKey.of_id(2)])
        until(lambda: len(fake.requests) == 2)
    answers = request.answers()
    assert answers is not None
    assert isinstance(answers.error, IllegalStateError)
    assert registry.schema(1).text == AVRO
    with pytest.raises(IllegalStateError, match="closed"):
        registry.schema(3)
    registry.close()
    released.set()


def _child(registry: SchemaRegistry, results: Any) -> None:
    results.put([registry.schema(1).text, registry.schema(2).text])


def test_a_forked_child_begins_anew(fake: FakeRegistry) -> None:
    """TC-125: with a thread and connections of its own."""
    fake.register("s", AVRO)
    fake.register("s", '"int"')
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with SchemaRegistry(fake.url, **QUICK) as registry:
        registry.schema(1)
        child = context.Process(target=_child, args=(registry, results))
        child.start()
        assert results.get(timeout=LIMIT_S) == [AVRO, '"int"']
        child.join(LIMIT_S)
        assert registry.schema(2).text == '"int"'
    assert fake.paths.count("/schemas/ids/1") == 2


def test_waking_that_fails_does_not_stop_the_others(
    fake: FakeRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """TC-126"""
    woken = threading.Event()
    fake.register("s", AVRO)

    def fail() -> None:
        raise ValueError("of one consumer")

    with SchemaRegistry(fake.url) as registry:
        registry.lookup([SchemaKey.of_id(1)], fail)
        registry.lookup([SchemaKey.of_id(1)], woken.set)
        if registry.lookup([SchemaKey.of_id(1)]).answers() is None:
            assert woken.wait(LIMIT_S)
