"""The package's public names, which are imported when they are first used."""

from __future__ import annotations

import ast
import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import kfast

SOURCE = Path(kfast.__file__)


def imported_for_types() -> dict[str, str]:
    """Return what type checkers see: ``{name: module}``."""
    found: dict[str, str] = {}
    for block in ast.parse(SOURCE.read_text(encoding="utf-8")).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for line in block.body:
                if isinstance(line, ast.ImportFrom):
                    found |= {name.name: str(line.module) for name in line.names}
    return found


@pytest.mark.parametrize(("name", "module"), sorted(imported_for_types().items()))
def test_a_name_is_what_type_checkers_take_it_for(name: str, module: str) -> None:
    expected = (
        importlib.import_module(f"kfast.{name}")
        if module == "kfast"
        else getattr(importlib.import_module(module), name)
    )
    assert getattr(kfast, name) is expected


def test_all_names_are_listed() -> None:
    assert sorted(kfast.__all__) == sorted([*imported_for_types(), "__version__"])
    assert set(kfast.__all__) <= set(dir(kfast))


def test_the_version() -> None:
    assert kfast.__version__[0].isdigit()


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="'kfast' has no attribute 'Consumer'"):
        kfast.Consumer  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Consumer'"):
        from kfast import Consumer  # type: ignore[attr-defined]  # noqa: F401, PLC0415


@pytest.mark.parametrize(
    "program",
    [
        "import kfast; kfast.TopicPartition('t', 0)",
        "from kfast import TopicPartition; TopicPartition('t', 0)",
        "from kfast import *; TopicPartition('t', 0); errors.KafkaError; transactions.to_confluent",
        "import kfast; kfast.errors.KafkaError; kfast.transactions.to_confluent",
        f"import pickle; pickle.loads({pickle.dumps(kfast.TopicPartition('t', 0))!r})",
        f"import pickle; pickle.loads({pickle.dumps(kfast.Utf8)!r})",
    ],
)
def test_names_are_found_in_a_new_process(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
