"""What the command line says, and when, if there is no cluster."""

from __future__ import annotations

import time

import pytest

from kfast import cli
from tests.end_to_end.errors_support import HOST, SLACK_S, dead_port


@pytest.mark.parametrize("command", ["topics", "read"])
def test_the_command_line_does_not_wait_for_a_minute(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """E-06: a person waits for it; the same text as in Python."""
    address = f"{HOST}:{dead_port()}"
    words = [command, *(["t"] if command == "read" else []), "--bootstrap-servers", address]
    started = time.monotonic()
    assert cli.main(words) == 3
    assert time.monotonic() - started < SLACK_S
    lines = capsys.readouterr().err.splitlines()
    assert f"cannot connect to {address}: connection refused" in lines[0]
    assert lines[-1] == "try: check -b, and that the broker runs"


@pytest.mark.parametrize("name", ["bootstrap_timeout_ms", "bootstrap.timeout.ms"])
def test_the_command_line_takes_another_time(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """E-03: a setting of the user's comes before the command's own, in either spelling."""
    address = f"{HOST}:{dead_port()}"
    words = ["topics", "--bootstrap-servers", address, "--config", f"{name}=200"]
    started = time.monotonic()
    assert cli.main(words) == 3
    assert time.monotonic() - started < 2.5
    assert "connection refused" in capsys.readouterr().err
