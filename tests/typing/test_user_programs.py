"""Programs of users pass a strict type check against the package's own annotations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import kfast
from kfast.settings.aliases import ALIASES
from kfast.settings.names import SETTINGS
from tools.settings_types import TARGET, types_text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAMS = sorted((HERE / "programs").glob("*.py"))


def complaints(*paths: Path) -> list[str]:
    """Return what mypy says about these files, leaving out what it says about others."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    command += list(map(str, paths))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    # mypy names files below the current folder by a relative path.
    return [line for line in done.stdout.splitlines() if ROOT / line.split(":")[0] in paths]


def test_user_programs_type_check() -> None:
    assert len(PROGRAMS) > 3
    assert complaints(*PROGRAMS) == []


def test_a_mistake_would_be_seen(tmp_path: Path) -> None:
    """CL-103: unknown settings, and values of another type."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        f"# {tmp_path}, so that no cached outcome of another run is reported\n"
        'import kfast\nkfast.KafkaConsumer("orders").poll(timeout_ms="100")\nkfast.no_such_name\n'
        'kfast.KafkaConsumer("orders", fetch_min_bytez=1)\n'
        'kfast.KafkaConsumer("orders", group_id=3)\n'
        'kfast.read_topic("orders", isolation_level="read_comitted")\n'
        'kfast.scan_topic("orders", ssl_cafile=3)\n'
        'settings: kfast.ConsumerSettings = {"bootstrap_servers": "h:1", "group_idd": "g"}\n',
        encoding="utf-8",
    )
    found = complaints(wrong)
    codes = [line.rpartition("[")[2] for line in found if ": error: " in line]
    assert codes == [
        *("arg-type]", "attr-defined]", "call-arg]", "arg-type]", "arg-type]", "arg-type]"),
        "typeddict-unknown-key]",
    ], found


def test_the_types_of_settings_are_those_of_the_table() -> None:
    """CL-103"""
    text = TARGET.read_text(encoding="utf-8")
    assert text == types_text(), "run `python -m tools.settings_types`"
    hints = get_type_hints(kfast.ConsumerSettings)
    assert {*hints} == {*SETTINGS, *ALIASES}
    for name, row in SETTINGS.items():
        hint = hints[name]
        if get_origin(hint) is Literal:
            assert row.default in get_args(hint) or row.default is None, name
        if row.default is None and hint not in (Any, object):
            assert type(None) in get_args(hint) or None in get_args(hint), name


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / "kfast" / "py.typed").exists()
