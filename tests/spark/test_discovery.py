"""``pyspark_kfast``: found by Spark, imports nothing heavy, never raises, and is in the wheel."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(program: str, *, cwd: Path, path: Path = ROOT) -> str:
    """Run a program outside of the repository, with the packages of a folder on its path."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=cwd,
        env={"PYTHONPATH": str(path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


LOOK_UP = """
from importlib import import_module
from pkgutil import iter_modules
from pyspark.sql.datasource import DataSource
for info in iter_modules():
    if info.name.startswith("pyspark_"):
        module = import_module(info.name)
        if hasattr(module, "DefaultSource") and issubclass(module.DefaultSource, DataSource):
            print(module.DefaultSource.name(), end=" ")
"""


def test_spark_finds_it_wherever_it_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    site = tmp_path / "site"
    site.mkdir()
    for package in ("kfast", "pyspark_kfast"):
        (site / package).symlink_to(ROOT / package)
    assert "kfast" in run(LOOK_UP, cwd=tmp_path, path=site).split()


def test_it_imports_nothing_that_spark_has_not(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    program = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules)\n"
        "import pyspark_kfast; print(*(set(sys.modules) - before))"
    )
    assert run(program, cwd=tmp_path) == "pyspark_kfast"


def test_it_does_not_raise_without_pyspark_or_without_kfast(tmp_path: Path) -> None:
    block = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == {package!r}: raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "import pyspark_kfast; print(hasattr(pyspark_kfast, 'DefaultSource'))"
    )
    assert run(block.format(package="pyspark"), cwd=tmp_path) == "False"
    pytest.importorskip("pyspark")
    assert run(block.format(package="kfast"), cwd=tmp_path) == "True"


def test_importing_kfast_spark_imports_neither_pyspark_nor_pyarrow(tmp_path: Path) -> None:
    program = (
        "import sys, kfast.spark, kfast.spark.source.options, kfast.spark.source.range_reader\n"
        "import kfast.table.arrow_batches, kfast.spark.source.stream_offsets\n"
        "import kfast.spark.source.driver\n"
        "print(*{'pyspark', 'pyarrow', 'pandas'} & set(sys.modules))"
    )
    assert run(program, cwd=tmp_path) == ""


def test_the_source_travels_by_name() -> None:
    pytest.importorskip("pyspark")
    from pyspark_kfast import DefaultSource  # noqa: PLC0415 - needs pyspark

    assert DefaultSource.name() == "kfast"
    assert len(pickle.dumps(DefaultSource)) < 100


def test_a_missing_pyspark_is_named(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import kfast.spark, kfast\n"
        "try: kfast.spark.KafkaDataSource\n"
        "except kfast.errors.MissingDependencyError as error: print(error)"
    )
    found = run(program, cwd=tmp_path).splitlines()
    assert found == [
        "kfast.spark.KafkaDataSource needs pyspark",
        'try: pip install "kfast[spark]"',
    ]


def test_both_packages_are_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    include = settings["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = pytest.importorskip("setuptools").find_packages(str(ROOT), include=include)
    assert {"kfast", "kfast.spark", "pyspark_kfast"} <= set(packages)
    extras = settings["project"]["optional-dependencies"]
    assert any(each.startswith("pyspark") for each in extras["spark"])
