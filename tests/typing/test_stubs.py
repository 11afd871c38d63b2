"""The stubs of the compiled modules say what the modules offer, no more and no less.

``mypy.stubtest`` compares names, parameters and defaults; what it may find is in
``stubtest_allowlist.txt``. It cannot see what a compiled class is constructed with, because
``inspect`` has no signature of it: that is compared here, with what Cython writes into the
docstring of a class that has an ``__init__``.
"""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALLOWLIST = Path(__file__).with_name("stubtest_allowlist.txt")
SUFFIXES = tuple(importlib.machinery.EXTENSION_SUFFIXES)


def module_name(path: Path) -> str:
    return ".".join([*path.relative_to(ROOT).parent.parts, path.name.split(".")[0]])


STUBS = {module_name(path): path for path in sorted((ROOT / "kfast").rglob("*.pyi"))}
COMPILED = {
    module_name(path) for path in (ROOT / "kfast").rglob("*") if path.name.endswith(SUFFIXES)
} - {"kfast._native._cython"}  # Cython's own, of which nothing is imported


def stub_constructors(source: str) -> dict[str, list[str]]:
    """Return the parameter names of ``__init__`` of each class; none without an ``__init__``."""
    found: dict[str, list[str]] = {}
    for cls in ast.parse(source).body:
        if isinstance(cls, ast.ClassDef):
            found[cls.name] = []
            for item in cls.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    arguments = item.args
                    parts = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                    found[cls.name] = [part.arg for part in parts][1:]
    return found


def embedded_parameters(doc: str | None, name: str) -> list[str] | None:
    """Return the parameter names of the signature Cython writes into a docstring, if any."""
    lines = (doc or "").lstrip().splitlines()
    match = re.match(rf"(?:\w+\.)*{name}\((?P<inside>.*)\)", lines[0]) if lines else None
    if match is None:
        return None
    depth, parts = 0, [""]
    for letter in match["inside"]:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    names = [re.split("[:=]", part)[0].split()[-1:] for part in parts]
    return [
        words[0].lstrip("*&") for words in names if words and words[0] not in {"*", "/", "self"}
    ]


def differences(source: str, module: ModuleType) -> list[str]:
    found = []
    for name, stub in stub_constructors(source).items():
        real = embedded_parameters(getattr(vars(module).get(name), "__doc__", None), name)
        if real is not None and real != stub:
            found.append(f"{name}() takes {real}, the stub says {stub}")
    return found


def test_every_compiled_module_has_a_stub() -> None:
    in_python = {
        name for name in COMPILED if (ROOT / name.replace(".", "/")).with_suffix(".py").exists()
    }
    assert STUBS.keys() >= COMPILED - in_python
    assert {name.rpartition(".")[0] for name in STUBS} == {
        "kfast._native",
        "kfast._runtime",
        "kfast.network",
    }


@pytest.mark.slow
def test_stubs_and_modules_agree(tmp_path: Path) -> None:
    # What the stubs import is no part of the comparison, and takes most of mypy's time.
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nmypy_path = .\nfollow_imports = skip\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy.stubtest", "--concise", "--allowlist", str(ALLOWLIST)]
    command += ["--mypy-config-file", str(settings), *STUBS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", STUBS)
def test_constructors_agree(name: str) -> None:
    module = importlib.import_module(name)
    assert str(module.__file__).endswith(SUFFIXES)
    assert differences(STUBS[name].read_text(encoding="utf-8"), module) == []


def fake_module() -> ModuleType:
    module = ModuleType("fake")
    source = (
        "class Reader:\n"
        "    'Reader(OwnedBuffer frame, int start=0, *, bint strict=(1, 2))\\n\\nReads.'\n"
        "class Helper: 'Made by its __cinit__.'\n"
    )
    exec(compile(source, "fake", "exec"), module.__dict__)
    return module


GOOD_STUB = """
class Reader:
    def __init__(self, frame: bytes, start: int = 0, *, strict: object = ...) -> None: ...
    def read(self, n: int) -> bytes: ...
class Helper:
    def __init__(self, size: int) -> None: ...
"""


def test_true_constructors_pass() -> None:
    assert differences(GOOD_STUB, fake_module()) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("frame: bytes, ", "", "Reader() takes ['frame', 'start', 'strict'], the stub says ['st"),
        ("start: int", "begin: int", "the stub says ['frame', 'begin', 'strict']"),
        ("def __init__", "def begin", "the stub says []"),
    ],
)
def test_the_comparison_sees(old: str, new: str, complaint: str) -> None:
    assert old in GOOD_STUB
    found = differences(GOOD_STUB.replace(old, new), fake_module())
    assert any(complaint in line for line in found), found
