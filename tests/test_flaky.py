"""Only what is listed is run a second time, and what is listed is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flaky import FLAKY, reason_of

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
    assert done.stdout.count("run twice: ") == 3, done.stdout
    assert "assert runs.count(number) == 2" in done.stdout


def test_what_is_listed_is_there() -> None:
    for name, reason in FLAKY.items():
        assert reason
        if name[-1] == "/":
            assert (ROOT / name).is_dir(), name
            continue
        path, _, function = name.rpartition("::")
        assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), name


def test_reasons_are_those_of_folders_and_of_tests() -> None:
    assert reason_of("tests/spark/test_a.py::test_b[c]") == FLAKY["tests/spark/"]
    assert reason_of("tests/unit/test_a.py::test_b") is None
