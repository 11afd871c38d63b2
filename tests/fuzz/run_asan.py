"""Builds kfast with AddressSanitizer and UBSan, and runs the tests of compiled modules on it.

    python -m tests.fuzz.run_asan [seconds of fuzzing] [pytest arguments...]

The build and a copy of the sources live in build/asan: the ordinary build stays as it is. GCC or
Clang with its sanitizer runtime is all it needs. Blocks are exact under the sanitizers and nothing
is recycled, so an access one byte beside a buffer, or to a freed one, ends the run.

Not part of ``make test``: the build alone takes a minute of one core, and the sanitizers' runtime
has to be loaded before Python, so that the suite cannot do it within its own process. The fuzz
tests themselves are in the suite, where damage shows as a wrong answer or a crash. ``.ci/run`` does
a short run of this one; do a whole one after every change below ``src_pyx``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "asan"
TREE = WORK / "tree"
TESTS = (
    "tests/fuzz",
    "tests/property",
    "tests/unit/_native",
    "tests/unit/_runtime",
    "tests/unit/network/test_receive.py",
    "tests/unit/network/test_waker.py",
)
# What needs slack or recycling, or counts blocks or the memory of the process.
EXCEPT = ("tests/unit/_native/test_buffers.py", "tests/unit/_native/test_bombs.py")

RUN = """
import sys, pytest
from kfast._native import buffers
from kfast._runtime import wakeup_event
from kfast.network import receive
for module in (buffers, wakeup_event, receive):
    assert module.__file__.startswith(sys.argv[1]), module.__file__
sys.exit(pytest.main(sys.argv[2:]))
"""


def runtime(name: str) -> str:
    """Path of a sanitizer's shared library."""
    compiler = os.environ.get("CC", "gcc").split()[0]
    found = subprocess.run(
        [compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True
    ).stdout.strip()
    return str(Path(found).resolve())


def build() -> None:
    shutil.rmtree(TREE, ignore_errors=True)
    for name in ("kfast", "src_pyx", "tests"):
        shutil.copytree(
            ROOT / name, TREE / name, ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", TREE)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--parallel", "2"]
    command += ["--build-lib", str(TREE), "--build-temp", str(WORK / "temp")]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "KFAST_SANITIZE": "1"})


def main() -> int:
    seconds = sys.argv[1] if len(sys.argv) > 1 else "0"
    build()
    environment = {
        **os.environ,
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')}",
        # CPython and the codec packages leak on purpose at exit.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_segv=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(TREE),
        "KFAST_FUZZ_SECONDS": seconds,
        "KFAST_EXACT_FRAMES": "1",
    }
    # No capture: a sanitizer's report is the last thing a process writes.
    arguments = ["-q", "-s", "-p", "no:cacheprovider", f"--timeout={int(float(seconds)) + 600}"]
    arguments += [f"--deselect={path}" for path in EXCEPT]
    arguments += sys.argv[2:] or TESTS
    command = [sys.executable, "-c", RUN, str(TREE), *arguments]
    return subprocess.run(command, cwd=TREE, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
