"""Tests that may be run a second time, each kind with the reason (a pytest plugin).

Any other test that fails has failed. The reason is something that the test cannot control, such as
the time that another program has for an answer. A test that is only slow gets more time instead,
and one that waits without looking is repaired. The summary of a run lists every test that was run
twice, with its first failure.
"""

from __future__ import annotations

from typing import Final

import pytest
from _pytest.runner import runtestprotocol
from _pytest.terminal import TerminalReporter

FLAKY: Final[dict[str, str]] = {
    "tests/spark/": "Spark's JVM and its Python processes share two processors with brokers",
    "tests/integration/": "brokers of Apache Kafka elect leaders and end sessions in real time",
    "tests/end_to_end/": "consumers have promises in real time, on a machine that may be busy",
    "tests/unit/security/test_token_endpoint.py::test_answers_that_are_wrong": (
        "an endpoint that is silent is refused within a second"
    ),
}
"""The reason, by a folder with its ``/``, or the id of a test without its parameters."""

_REPEATED: Final = "repeated"


def reason_of(test_id: str) -> str | None:
    """Return why a test may be run a second time, None if it may not."""
    name = test_id.partition("[")[0]
    return FLAKY.get(name) or next(
        (reason for entry, reason in FLAKY.items() if entry[-1] == "/" and name.startswith(entry)),
        None,
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test that is listed, and again if it fails; only the last run is reported."""
    reason = reason_of(item.nodeid)
    if reason is None or not isinstance(item, pytest.Function):
        return None
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports):
        failures = "\n".join(report.longreprtext for report in reports if report.failed)
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        for report in reports:
            report.user_properties.append((_REPEATED, f"{reason}\n{failures}"))
    for report in reports:
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """List the tests that were run twice."""
    repeated = {
        report.nodeid: text
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport)
        for name, text in report.user_properties
        if name == _REPEATED
    }
    for test_id, text in repeated.items():
        terminalreporter.section(f"run twice: {test_id}")
        terminalreporter.write_line(str(text))
