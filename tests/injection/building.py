"""The compiled module of these tests: built when the first of them needs it, once per source."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.machinery
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Protocol

SOURCE: Final = Path(__file__).with_name("signal_injector.pyx")
BUILDS: Final = Path(__file__).resolve().parents[2] / "build" / "injection"

_SETUP: Final = """
from Cython.Build import cythonize
from setuptools import Extension, setup
setup(
    script_args=["--quiet", "build_ext", "--inplace"],
    ext_modules=cythonize([Extension("signal_injector", ["signal_injector.pyx"])], quiet=True),
)
"""


class SignalInjector(Protocol):
    """What ``signal_injector.pyx`` has; see there."""

    def __init__(
        self,
        number: int,
        looks_for_signals: Callable[[CodeType], bytes],
        describe: Callable[[FrameType], str],
    ) -> None: ...

    labels: dict[int, str]
    passes: dict[int, int]
    is_sent: bool

    def run(
        self,
        call: Callable[[], Any],
        target: int | None = None,
        skipped: int = 0,
        instruction: int = 0,
    ) -> Any:
        """Call something with a signal that arrives at a place, or before an instruction."""
        ...

    def flush(self) -> None:
        """Let the handlers of signals run that have arrived."""
        ...


@cache
def injector_class() -> type[SignalInjector]:
    """Return the class, compiled if need be. Several test processes may ask at once."""
    source = SOURCE.read_bytes()
    version = f"{sys.implementation.cache_tag}-{hashlib.sha256(source).hexdigest()[:16]}"
    folder = BUILDS / version
    folder.mkdir(parents=True, exist_ok=True)
    module = folder / f"signal_injector{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not module.exists():
            (folder / SOURCE.name).write_bytes(source)
            built = subprocess.run(
                [sys.executable, "-c", _SETUP],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            assert built.returncode == 0, built.stdout + built.stderr
    spec = importlib.util.spec_from_file_location("signal_injector", module)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    compiled: type[SignalInjector] = loaded.SignalInjector
    return compiled
