"""Hooks of the program that raise on threads of kfast: they are reported, and reading goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kfast import RangeAssignor
from kfast.errors import KafkaError
from kfast.protocol.api_keys import ApiKey
from kfast.testing.faults import Drop
from tests.end_to_end.stage import Stage, error_of, offsets, read
from tests.end_to_end.virtual import T0, make_cluster, write

MakeStage = Callable[..., Stage]

ERRORS = [RuntimeError("hook"), SystemExit("hook"), DeprecationWarning("hook"), MemoryError("hook")]


class OnOtherThreads(logging.Handler):
    """Raises on every thread but the one that makes it; a filter that raises does the same."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.threads: set[str] = set()
        self._own = threading.current_thread()
        self.addFilter(self._raise)

    def emit(self, record: logging.LogRecord) -> None:
        """Write nothing."""

    def _raise(self, record: logging.LogRecord) -> bool:
        if threading.current_thread() is not self._own:
            self.threads.add(record.threadName or "")
            raise self.error
        return True


@pytest.fixture(params=ERRORS, ids=lambda error: type(error).__name__)
def handler(request: pytest.FixtureRequest) -> Iterator[OnOtherThreads]:
    """Give a handler of all messages of kfast."""
    logger = logging.getLogger("kfast")
    made = OnOtherThreads(request.param)
    before = logger.level
    logger.addHandler(made)
    logger.setLevel(logging.DEBUG)
    yield made
    logger.removeHandler(made)
    logger.setLevel(before)


def test_a_log_handler_that_raises_ends_no_thread(
    make_stage: MakeStage, handler: OnOtherThreads, capfd: pytest.CaptureFixture[str]
) -> None:
    """U-06: joining, reading, a lost connection, committing and closing all go on."""
    cluster = make_cluster(nodes=1)
    reader = make_stage(cluster).consumer("t", group_id="g")
    assert offsets(read(reader, 20)) == list(range(20))
    cluster.faults.add(Drop(), api=ApiKey.FETCH)
    write(cluster, 0, 5)
    assert offsets(read(reader, 5)) == list(range(20, 25))
    reader.commit()
    reader.close()
    group = cluster.groups.classic("g")
    assert group is None or not group.members
    assert any(name.startswith("kfast-network") for name in handler.threads)
    reported = capfd.readouterr().err
    assert "--- Logging error ---" in reported
    assert type(handler.error).__name__ in reported


class ExitingAssignor(RangeAssignor):
    """An assignor of a program that ends its process on any error."""

    name = "exits"

    def assign(self, *_: object) -> Any:
        raise SystemExit(1)


def test_an_assignor_that_exits_is_an_error_of_poll(make_stage: MakeStage) -> None:
    """U-06: it runs on the network thread, which it must not end."""
    reader = make_stage(make_cluster(nodes=1)).consumer(
        "t", group_id="g", partition_assignment_strategy=[ExitingAssignor()]
    )
    error = error_of(reader)
    assert isinstance(error, KafkaError)
    assert 'assignor "exits" failed' in str(error)
    reader.unsubscribe()
    reader.assign([T0])
    assert offsets(read(reader, 20)) == list(range(20))
