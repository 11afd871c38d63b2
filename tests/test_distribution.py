"""How the tests are shared between workers."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from tests import distribution

ROOT = Path(__file__).resolve().parents[1]

PROGRAM = """
import os
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(5))
def test(number):
    with Path({log!r}).open("a") as file:
        print({name!r}, os.environ["PYTEST_XDIST_WORKER"], file=file)
"""


def test_files_stay_together_and_spark_does() -> None:
    unit_of = distribution.unit_of
    assert unit_of("tests/unit/test_a.py::test_b[x::y]") == "tests/unit/test_a.py"
    assert unit_of("tests/unit/test_a.py::TestB::test_c") == "tests/unit/test_a.py"
    assert unit_of("tests/spark/test_a.py::test_b") == unit_of("tests/spark/test_c.py::test_d")
    groups = unit_of("tests/integration/test_groups_classic.py::test_b")
    assert groups == unit_of("tests/integration/test_groups_mixed.py::test_b")
    assert groups != unit_of("tests/integration/test_codecs.py::test_b")
    assert groups != unit_of("tests/integration/test_groups_failures.py::test_b")
    secured = unit_of("tests/integration/test_local_kafka_security.py::test_b")
    assert secured == unit_of("tests/integration/test_tls.py::test_b")
    assert secured != unit_of("tests/integration/test_local_kafka.py::test_b")
    alone = "tests/integration/test_bench.py"
    assert unit_of(f"{alone}::test_b") == alone


def test_the_long_ones_are_first() -> None:
    units = [*distribution.TOGETHER, *distribution.NEXT]
    names = ["tests/test_x.py", *reversed(units), "tests/unit/test_y.py"]
    assert sorted(names, key=distribution.rank)[: len(units)] == units


def test_what_is_named_exists() -> None:
    """A name of something that moved would go unnoticed."""
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py")}
    for start in (*chain(*distribution.TOGETHER.values()), *distribution.ALONE, *distribution.NEXT):
        assert any(name.startswith(start) for name in files), start
    units = {distribution.unit_of(name) for name in files}
    assert units >= {*distribution.TOGETHER}


@pytest.mark.slow
def test_workers_run_every_test_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    names = [f"tests/{name}/test_{each}.py" for name in ("spark", "unit") for each in "abc"]
    for name in names:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(PROGRAM.format(log=str(log), name=name), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"]
    command += ["-p", "tests.distribution", "-p", "no:cacheprovider", "--import-mode=importlib"]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "-c", os.devnull, str(tmp_path / "tests")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "30 passed" in done.stdout, done.stdout + done.stderr
    ran = [tuple(line.split()) for line in log.read_text(encoding="utf-8").splitlines()]
    assert sorted(name for name, _ in ran) == sorted(names * 5)
    workers = {unit: {worker for name, worker in ran if unit in name} for unit in (*names, "spark")}
    assert all(len(who) == 1 for who in workers.values()), workers
    assert {worker for _, worker in ran} == {"gw0", "gw1"}
