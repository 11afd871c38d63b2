"""How long a test goes on: a while in the suite, much longer under ``make soak``.

A test with two lengths is marked ``soak``; what it covers does not depend on the length.
"""

from __future__ import annotations

import os
from typing import Final, TypeVar

T = TypeVar("T")

IS_SOAKING: Final = os.environ.get("KFAST_SOAK", "") == "1"


def soaking(suite: T, soak: T) -> T:
    """Return a length: the suite's, or that of ``make soak``."""
    return soak if IS_SOAKING else suite
