"""What holds for all tests."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tests.arrow_validation import validate_exports
from tests.distribution import (
    pytest_xdist_make_scheduler as pytest_xdist_make_scheduler,  # noqa: PLC0414
)
from tests.flaky import pytest_runtest_protocol as pytest_runtest_protocol  # noqa: PLC0414
from tests.flaky import pytest_terminal_summary as pytest_terminal_summary  # noqa: PLC0414
from tests.skips import pytest_make_collect_report as pytest_make_collect_report  # noqa: PLC0414
from tests.skips import pytest_runtest_makereport as pytest_runtest_makereport  # noqa: PLC0414

# A shell starts what it puts into the background with Ctrl-C ignored, nohup everything with SIGHUP
# ignored, and every program that a test starts would inherit that. Before xdist starts its
# processes, so that theirs are alike.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

validate_exports()


def pytest_collection_finish() -> None:
    """Leave what was imported out of later collections: they take a tenth of a second with it."""
    gc.collect()
    gc.freeze()


LEAVING_S = 10.0
"""How long a thread that is about to end may take."""


def kfast_threads() -> set[threading.Thread]:
    """Return the threads that kfast has started and that run.

    `threading` lists one for ever whose ``start`` an exception has left before it could run.
    """
    listed = threading.enumerate()
    return {each for each in listed if each.name.startswith("kfast-") and each.ident is not None}


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Check that a test ends the threads that it made kfast start: others see them.

    Those of fixtures with a wider scope run before.
    """
    before = kfast_threads()
    yield
    end = time.monotonic() + LEAVING_S
    while left := kfast_threads() - before:
        if time.monotonic() > end:
            pytest.fail(f"left running: {', '.join(sorted(each.name for each in left))}")
        min(left, key=lambda each: each.name).join(0.01)
