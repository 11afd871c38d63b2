"""What holds for all tests."""

from __future__ import annotations

import gc
import signal

from tests.arrow_validation import validate_exports
from tests.distribution import (
    pytest_xdist_make_scheduler as pytest_xdist_make_scheduler,  # noqa: PLC0414
)
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
