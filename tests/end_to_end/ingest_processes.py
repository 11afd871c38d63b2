"""Processes that ingest and die: forked from one that has imported everything.

`Starter` runs this module as a program once; each command is a child of it, so that a test of many
deaths pays for the imports once. A child dies by SIGKILL at the n-th call of a method, before or
after it is made, or whenever the test kills it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any


@dataclass(frozen=True, slots=True)
class Death:
    """A call at which a process dies: ``method`` is ``module:Class.method``."""

    method: str
    number: int = 1
    is_after: bool = False


class Starter:
    """Starts ``kfast`` commands as processes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self._answer() == "ready"

    def start(self, words: Sequence[str], death: Death | None = None) -> int:
        """Start a command; return its process id."""
        order = {"words": [*words], "death": None if death is None else asdict(death)}
        print(json.dumps(order), file=self._input, flush=True)
        return int(self._answer())

    def wait(self) -> int:
        """Wait for the end of the command; return its status, negative for a signal."""
        print("wait", file=self._input, flush=True)
        return int(self._answer())

    def run(self, words: Sequence[str], death: Death | None = None) -> int:
        """Run a command to its end; return its status, negative for a signal."""
        self.start(words, death)
        return self.wait()

    def close(self) -> None:
        """End the starter."""
        self._input.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def _input(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextlib.contextmanager
def starter() -> Iterator[Starter]:
    """Give a starter that is ended afterwards."""
    made = Starter()
    try:
        yield made
    finally:
        made.close()


# --- the program ----------------------------------------------------------------------------------


_ICEBERG = (
    "pyiceberg.catalog.rest",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "pyiceberg.table.update.snapshot",
)
"""Imported for the children if the test has a catalog: that takes longer than an ingest."""


def _main() -> None:
    for name in (
        *(_ICEBERG if "PYICEBERG_CATALOG__TEST__TYPE" in os.environ else ()),
        "kfast.cli.ingest",
        "kfast.table.delta_log",
        "kfast.table.iceberg_log",
        "kfast.table.manifest_log",
        "pyarrow.parquet",
        "kfast.local",
    ):
        importlib.import_module(name)
    from kfast import cli, kafka_consumer  # noqa: F401, PLC0415 - before the children

    _answer("ready")
    child = 0
    for line in sys.stdin:
        if line.strip() == "wait":
            status = os.waitpid(child, 0)[1]
            _answer(os.waitstatus_to_exitcode(status))
            continue
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _command(cli.main, order)
        _answer(child)


def _answer(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def _command(main: Any, order: dict[str, Any]) -> None:
    status = 1
    try:
        output = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):
            os.dup2(output, number)
        if order["death"] is not None:
            _die_at(Death(**order["death"]))
        status = main(order["words"])
    finally:
        os._exit(status)


def _die_at(death: Death) -> None:
    module, _, path = death.method.partition(":")
    owner, method = path.split(".")
    kind = getattr(importlib.import_module(module), owner)
    real, calls = getattr(kind, method), 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == death.number and not death.is_after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*args, **kwargs)
        if calls == death.number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(kind, method, counted)


if __name__ == "__main__":
    _main()
