"""Nothing that CI lacks passes for tested."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import skips

TESTS = Path(__file__).resolve().parent

PROGRAM = f"""
import sys
import pytest

@pytest.mark.skipif(True, reason={skips.ALLOWED[0]!r})
def test_allowed(): pass

def test_skipped():
    pytest.skip("no such thing here")

@pytest.mark.skipif(True, reason="not today")
def test_marked(): pass

@pytest.mark.xfail
def test_expected():
    assert False
"""


def outcome(folder: Path, ci: str, *options: str) -> tuple[int, str]:
    (folder / "test_some.py").write_text(PROGRAM, encoding="utf-8")
    (folder / "test_module.py").write_text(
        'import pytest\npytest.importorskip("no_such_module_anywhere")\ndef test(): pass\n',
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.skips", "-p", "no:cacheprovider"]
    command += ["--continue-on-collection-errors"]
    done = subprocess.run(
        [*command, *options, "--rootdir", str(folder), "-c", os.devnull, str(folder)],
        cwd=TESTS.parent,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.slow
def test_elsewhere_a_skip_is_a_skip(tmp_path: Path) -> None:
    code, text = outcome(tmp_path, "")
    assert (code, "4 skipped, 1 xfailed" in text) == (0, True), text


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "workers"])
def test_in_ci_a_skip_is_a_failure(tmp_path: Path, options: tuple[str, ...]) -> None:
    """D-23, D-24: a comparison that is never made does not look like one that succeeded."""
    code, text = outcome(tmp_path, "true", *options)
    assert code
    for reason in ("no such thing here", "not today", "no_such_module_anywhere"):
        assert reason in text
    assert "1 failed, 1 skipped, 1 xfailed, 2 errors" in text, text


@functools.cache
def reasons() -> set[str]:
    """Return the reasons of all skips in the tests that are written out as such."""
    found = set()
    for path in TESTS.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "skip" in text else ():
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            words = [*node.args, *(k.value for k in node.keywords if k.arg == "reason")]
            if node.func.attr in {"skip", "skipif"}:
                found |= {str(w.value) for w in words if isinstance(w, ast.Constant)}
    return found


@pytest.mark.parametrize("reason", skips.ALLOWED)
def test_what_is_allowed_exists(reason: str) -> None:
    """A reason that no test gives any more is not kept."""
    assert reason in reasons()
