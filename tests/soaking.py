"""How long a test goes on: a while in the suite, longer under ``make soak``, less in ``test-fast``.

A test with two lengths is marked ``soak``; what it covers does not depend on the length.
``KFAST_SOAK`` is the part of the way from the suite's length to that of ``make soak``, 0 to 1: a
short soak has a small one. Tests with drawn examples draw a third of them under
``make test-fast``.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import settings

SOAK: Final = float(os.environ.get("KFAST_SOAK") or 0)
IS_FAST: Final = os.environ.get("KFAST_TEST_FAST", "") == "1"


def soaking(suite: int, soak: int) -> int:
    """Return a length: the suite's, that of ``make soak``, or one between."""
    return suite + round((soak - suite) * SOAK)


def examples(count: int) -> settings:
    """Return Hypothesis settings with so many examples in the suite, and no deadline."""
    return settings(max_examples=count // 3 if IS_FAST else count, deadline=None)
