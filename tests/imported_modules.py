"""What a program imports: runs it in a process of its own, and picks modules out of a list."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any


def last_line_of(program: str, *arguments: str) -> Any:
    """Return what a Python program prints last, which is JSON."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def among(modules: Iterable[str], *packages: str) -> list[str]:
    """Return the modules that are one of the packages or in one."""
    return [
        module
        for module in modules
        if any(module == package or module.startswith(package + ".") for package in packages)
    ]
