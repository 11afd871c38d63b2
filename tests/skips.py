"""In CI a test that is skipped for want of something is a failure (a pytest plugin).

A part that is missing must not look like one that works: there everything is installed that any
test needs. ``ALLOWED`` names what depends on the machine and not on what is installed.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Final

import pytest
from pluggy import Result

ALLOWED: Final = (
    "this processor has no CRC instruction",
    "reads /proc",
    "no Java compiler: the recorded assignments were compared only",  # the same cases, recorded
    "no krb5kdc on this machine: GSSAPI was not tested",  # a daemon of the operating system
    "no openssl command: key updates of TLS were not tested",  # a program of the system
    "no fish on this machine: its completion was not tested",  # programs of the system
    "no zsh on this machine: its completion was not tested",
    "no jq on this machine: JSON was read by Python only",
    "no gssapi package: GSSAPI was not tested",  # compiled against a library of the system
)


def is_ci() -> bool:
    """Return whether this is a run that has to be complete."""
    return os.environ.get("CI", "").lower() in {"1", "true"}


def _must_not_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not is_ci() or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if reason.removeprefix("Skipped: ") in ALLOWED:
        return
    report.outcome = "failed"
    report.longrepr = f"skipped, which hides a missing part: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, Result[pytest.TestReport], None]:
    """Look at the outcome of a test."""
    outcome = yield
    _must_not_skip(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Generator[None, Result[pytest.CollectReport], None]:
    """Look at the outcome of collecting a module."""
    outcome = yield
    _must_not_skip(outcome.get_result())
