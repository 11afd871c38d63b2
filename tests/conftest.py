"""What holds for all tests."""

from __future__ import annotations

from tests.distribution import (
    pytest_xdist_make_scheduler as pytest_xdist_make_scheduler,  # noqa: PLC0414
)
from tests.skips import pytest_make_collect_report as pytest_make_collect_report  # noqa: PLC0414
from tests.skips import pytest_runtest_makereport as pytest_runtest_makereport  # noqa: PLC0414
