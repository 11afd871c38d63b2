"""Programs that die where a test wants them to.

Owns a ``sitecustomize`` that counts calls of one function in all Python processes of a Spark
program, driver and workers, and at the n-th kills the driver with its JVM (SIGKILL to its process
group), or only the process that made the call. The program itself knows nothing of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SITE: Final = '''
import os, signal, sys, uuid

_call, _text, _number, _when, _victim, _count = os.environ["KFAST_TEST_DEATH"].split("|")
os.environ.setdefault("KFAST_TEST_DRIVER", str(os.getpid()))


def _dies(subject):
    """Count a call; return whether it is the one."""
    if _text not in subject:
        return False
    file = os.open(_count, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(file, b"x")
    size = os.fstat(file).st_size
    os.close(file)
    return size == int(_number)


def _die():
    if _victim == "driver":
        os.killpg(int(os.environ["KFAST_TEST_DRIVER"]), signal.SIGKILL)
    if _victim == "executor":  # the parent of the daemon that has forked this worker
        with open(f"/proc/{os.getppid()}/stat") as stat:
            os.kill(int(stat.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _wrap(module, name, subject_of):
    real = getattr(module, name)

    def wrapped(*args, **kwargs):
        is_it = _dies(subject_of(args))
        if is_it and _when == "before":
            _die()
        result = real(*args, **kwargs)
        if is_it:
            _die()
        return result

    setattr(module, name, wrapped)


if _call == "uuid4":
    _wrap(uuid, "uuid4", lambda args: sys._getframe(2).f_globals.get("__name__", ""))
else:
    _wrap(os, _call, lambda args: str(args[1]))
'''


@dataclass(frozen=True, slots=True)
class Death:
    """Where a program dies.

    Parameters
    ----------
    call : str
        ``link`` or ``replace`` (of ``os``), counted if the target has ``text`` in it; ``uuid4``,
        counted if the calling module has.
    text : str
        See there.
    number : int
        At which call, from 1.
    when : str
        ``before`` or ``after`` the call is made.
    victim : str
        ``driver``, with everything, ``caller``, or ``executor``: the JVM that runs the caller's
        task, and the caller.
    """

    call: str
    text: str
    number: int
    when: str = "before"
    victim: str = "driver"


def start_ingest(
    folder: Path, arguments: Sequence[str], death: Death | None = None
) -> subprocess.Popen[str]:
    """Start ``kfast ingest`` as leader of a process group.

    Parameters
    ----------
    folder : Path
        For what this module needs.
    arguments : sequence of str
        Of the program.
    death : Death, optional
        Where it dies.
    """
    scratch = folder / "scratch"  # what a program that is killed leaves goes with the test
    scratch.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(scratch)}
    if death is not None:
        environment |= dying_environment(folder, death, environment.get("PYTHONPATH", ""))
    return subprocess.Popen(
        [sys.executable, "-m", "kfast", "ingest", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def dying_environment(folder: Path, death: Death, python_path: str = "") -> dict[str, str]:
    """Return variables for all Python processes of a program; calls are counted in ``calls``."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(_SITE)
    count = folder / "calls"
    count.unlink(missing_ok=True)
    parts = (death.call, death.text, death.number, death.when, death.victim, count)
    paths = [str(site), *filter(None, python_path.split(os.pathsep))]
    return {
        "KFAST_TEST_DEATH": "|".join(map(str, parts)),
        "PYTHONPATH": os.pathsep.join(paths),
    }


def run_ingest(
    folder: Path, arguments: Sequence[str], death: Death | None = None, seconds: float = 200
) -> tuple[int, str, str]:
    """Run it to its end; return exit status, output and errors. Nothing is left behind."""
    process = start_ingest(folder, arguments, death)
    try:
        output, errors = process.communicate(timeout=seconds)
    finally:
        end(process)
    return process.returncode, output, errors


def end(process: subprocess.Popen[str]) -> None:
    """Kill a program that may still run, with its JVM."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
