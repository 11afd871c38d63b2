"""Programs of users pass a strict type check against the package's own annotations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAMS = sorted((HERE / "programs").glob("*.py"))


def complaints(*paths: Path) -> list[str]:
    """Return what mypy says about these files, leaving out what it says about others."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    command += ["--show-absolute-path", *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    shown = {str(path) for path in paths}
    return [line for line in done.stdout.splitlines() if line.split(":")[0] in shown]


def test_user_programs_type_check() -> None:
    assert len(PROGRAMS) > 3
    assert complaints(*PROGRAMS) == []


def test_a_mistake_would_be_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        f"# {tmp_path}, so that no cached outcome of another run is reported\n"
        'import kfast\nkfast.KafkaConsumer("orders").poll(timeout_ms="100")\nkfast.no_such_name\n',
        encoding="utf-8",
    )
    found = complaints(wrong)
    assert len(found) == 2, found
    assert "[arg-type]" in found[0]
    assert "[attr-defined]" in found[1]


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / "kfast" / "py.typed").exists()
