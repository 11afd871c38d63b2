"""Only what is listed is run a second time, and what is listed is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flaky import FLAKY

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import pytest
from tests.flaky import FLAKY

FLAKY.update({"test_some.py::test_listed": "a reason", "test_some.py::test_broken": "a reason"})
runs = []

@pytest.fixture
def place(tmp_path):
    return tmp_path

@pytest.mark.parametrize("number", [0, 1])
def test_listed(place, number):
    runs.append(number)
    assert runs.count(number) == 2

def test_broken():
    assert False

def test_other():
    runs.append("other")
    assert runs.count("other") == 2
"""


@pytest.mark.slow
def test_only_what_is_listed_is_run_again(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.flaky", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "-c", os.devnull, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 failed, 2 passed" in done.stdout, done.stdout
    assert done.stderr.count("once more (a reason)") == 3, done.stderr


def test_what_is_listed_is_there() -> None:
    for name, reason in FLAKY.items():
        path, _, function = name.rpartition("::")
        assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), name
        assert reason
