"""The program ``kfast`` as it is installed, for tests that run it as a process."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def program() -> list[str]:
    """Return the words that run it: the script of this interpreter's environment."""
    script = Path(sys.executable).with_name("kfast")
    return [str(script)] if script.exists() else [sys.executable, "-m", "kfast"]


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which it has this package, and none of the user's settings."""
    own = {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "100"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KFAST_")}
    return kept | own | more
