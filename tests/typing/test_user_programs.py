"""Programs of users pass a strict type check against the package's own annotations."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import kfast
from kfast.settings.names import ALIASES, SETTINGS
from tests.document_examples import examples
from tools.settings_types import TARGET, types_text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAMS = sorted((HERE / "programs").glob("*.py"))
MISTAKES = """\
import kfast
kfast.KafkaConsumer("orders").poll(timeout_ms="100")
kfast.no_such_name
kfast.errors.NotControlerError
kfast.KafkaConsumer("orders", fetch_min_bytez=1)
kfast.KafkaConsumer("orders", group_id=3)
kfast.read_topic("orders", isolation_level="read_comitted")
kfast.scan_topic("orders", ssl_cafile=3)
settings: kfast.ConsumerSettings = {"bootstrap_servers": "h:1", "group_idd": "g"}
"""
"""Each line but the first has one."""


@pytest.mark.slow
def test_programs_of_users_type_check_and_mistakes_are_seen(tmp_path: Path) -> None:
    """CL-103: unknown settings, and values of another type, are mistakes."""
    wrong = tmp_path / "wrong.py"
    # The comment is so that no cached outcome of another run is reported.
    wrong.write_text(f"# {tmp_path}\n{MISTAKES}", encoding="utf-8")
    assert len(PROGRAMS) > 3
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    command += list(map(str, [*PROGRAMS, wrong]))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    # mypy names files below the current folder by a relative path.
    of_program = {
        path: [line for line in done.stdout.splitlines() if ROOT / line.split(":")[0] == path]
        for path in (*PROGRAMS, wrong)
    }
    codes = [line.rpartition("[")[2] for line in of_program.pop(wrong) if ": error: " in line]
    assert codes == [
        *(
            "arg-type]",
            "attr-defined]",
            "attr-defined]",
            "call-arg]",
            "arg-type]",
            "arg-type]",
            "arg-type]",
        ),
        "typeddict-unknown-key]",
    ]
    assert not any(of_program.values()), of_program


@pytest.mark.slow
def test_pyright_takes_the_same_programs_and_sees_the_same_mistakes(tmp_path: Path) -> None:
    """CL-103: and takes the examples of the tutorial."""
    pytest.importorskip("basedpyright")
    tutorial = [
        code
        for heading in ("As columns", "In a consumer group")
        for code in examples("docs/tutorial.md", heading)
    ]
    (tmp_path / "tutorial.py").write_text("\n".join(tutorial), encoding="utf-8")
    (tmp_path / "wrong.py").write_text(MISTAKES, encoding="utf-8")
    for path in PROGRAMS:
        shutil.copy(path, tmp_path)
    how = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(how), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = [
        (Path(each["file"]).name, each["range"]["start"]["line"], each["message"])
        for each in json.loads(done.stdout)["generalDiagnostics"]
        if each["severity"] == "error"
    ]
    lines = [*range(1, MISTAKES.count("\n"))]
    assert [each[:2] for each in found] == [("wrong.py", line) for line in lines], found


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
