"""How long a test goes on: a while in the suite, longer under ``make soak``, less in ``test-fast``.

A test with two lengths is marked ``soak``; what it covers does not depend on the length. Tests with
drawn examples draw a third of them under ``make test-fast``.
"""

from __future__ import annotations

import os
from typing import Final, TypeVar

from hypothesis import settings

T = TypeVar("T")

IS_SOAKING: Final = os.environ.get("KFAST_SOAK", "") == "1"
IS_FAST: Final = os.environ.get("KFAST_TEST_FAST", "") == "1"


def soaking(suite: T, soak: T) -> T:
    """Return a length: the suite's, or that of ``make soak``."""
    return soak if IS_SOAKING else suite


def examples(count: int) -> settings:
    """Return Hypothesis settings with so many examples in the suite, and no deadline."""
    return settings(max_examples=count // 3 if IS_FAST else count, deadline=None)
