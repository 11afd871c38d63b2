"""A filter of `logging` raises at every message of kfast: as a signal handler does, or worse."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kfast.testing.server import BrokerServer
from tests.injection.interrupter import Interrupter
from tests.injection.readers import quick_cluster
from tests.injection.used_consumer import CASES, UsedConsumer


class RaisingFilter(logging.Filter):
    """Raises once, at one message of those threads that are chosen."""

    def __init__(self, at: int, is_chosen: Callable[[threading.Thread], bool]) -> None:
        super().__init__()
        self._at = at
        self._is_chosen = is_chosen
        self.count = 0
        self.error: Exception | None = None
        self.message = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Raise if it is that message."""
        if self._is_chosen(threading.current_thread()):
            self.count += 1
            if self.count == self._at:
                self.message = f"{record.name}: {record.msg}"
                self.error = RuntimeError("raised by the filter of the test")
                raise self.error
        return True


class FilteringHandler(logging.Handler):
    """A handler whose filter does not run inside of what catches exceptions of `emit`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Drop it."""


@contextmanager
def filtering(messages: RaisingFilter) -> Iterator[None]:
    """Have all messages of kfast pass a filter."""
    logger, handler = logging.getLogger("kfast"), FilteringHandler()
    handler.addFilter(messages)
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def is_main(thread: threading.Thread) -> bool:
    """Return whether it is the application's."""
    return thread is threading.main_thread()


def is_network(thread: threading.Thread) -> bool:
    """Return whether it is a network thread."""
    return thread.name.startswith("kfast-network-")


def life(used: UsedConsumer, messages: RaisingFilter) -> Iterator[tuple[str, str]]:
    """Use a consumer as a program does that repeats what was interrupted; yield what is wrong."""
    calls = (used.begin, used.poll, used.poll, used.unsubscribe, used.begin, used.has_read)
    for call in (*calls, used.close):
        wrong: object = None
        try:
            wrong = call()
        except Exception as error:
            if error is not messages.error:
                yield f"{call.__name__} raised another exception", repr(error)
            try:
                wrong = call()
            except Exception as later:
                yield f"{call.__name__} raised again", repr(later)
        yield from wrong if isinstance(wrong, list) else []
        yield from used.take()
    yield from used.wrong(is_called_once=False)


@pytest.mark.parametrize("is_chosen", [is_main, is_network])
@pytest.mark.parametrize("case", CASES)
def test_a_filter_that_raises_harms_nothing(
    case: str, is_chosen: Callable[[threading.Thread], bool]
) -> None:
    """I-13: what it raises comes out of the call, and in other threads nowhere."""
    interrupter = Interrupter("TimeoutError")
    wrong: list[str] = []
    with BrokerServer(quick_cluster(400, batch_records=2)) as server:
        for at in range(1, 200):
            messages = RaisingFilter(at, is_chosen)
            with filtering(messages):
                used = UsedConsumer(server, case, interrupter, has_read=False)
                found = list(life(used, messages))
            wrong += [f"{messages.message}: {what}: {detail}" for what, detail in found]
            if messages.error is None or len(wrong) > 20:
                break
    assert not wrong, "\n".join(wrong)
