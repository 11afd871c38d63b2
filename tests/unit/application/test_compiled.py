"""The modules that have to be compiled, and what happens if one is not."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import kfast.application.parts  # noqa: F401 - which needs them
from kfast.application.compiled import COMPILED, check_compiled

SETUP = Path(__file__).resolve().parents[3] / "setup.py"


def test_the_list_is_that_of_the_build() -> None:
    (names,) = (
        node.value
        for node in ast.parse(SETUP.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "COMPILED_PYTHON"
    )
    assert tuple(f"kfast.{name}" for name in ast.literal_eval(names)) == COMPILED


def test_bytecode_in_place_of_a_compiled_module_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D-27: and not a consumer whose state an interruption can damage."""
    check_compiled()
    name = COMPILED[0]
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(__file__="subscription.py"))
    with pytest.raises(ImportError, match=f"{name} is not compiled: .*make build"):
        check_compiled()
