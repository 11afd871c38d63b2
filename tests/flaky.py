"""Tests that may be run a second time, each with the reason (a pytest plugin).

Any other test that fails has failed. The reason is something that the test cannot control, such as
the time that another program has for an answer. A test that is only slow gets more time instead,
and one that waits without looking is repaired.
"""

from __future__ import annotations

import sys
from typing import Final

import pytest
from _pytest.runner import runtestprotocol

FLAKY: Final[dict[str, str]] = {}
"""The reason, by the id of a test: the path from the root, ``::`` and the name of the function."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test that is listed, and again if it fails; only the last run is reported."""
    reason = FLAKY.get(item.nodeid.partition("[")[0])
    if reason is None or not isinstance(item, pytest.Function):
        return None
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports):
        failures = "\n".join(report.longreprtext for report in reports if report.failed)
        sys.stderr.write(f"{item.nodeid} failed and is run once more ({reason}):\n{failures}\n")
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
