"""Signal handlers at every place: what runs between any two instructions of kfast's Python code.

The interpreter runs the handler of a signal on the main thread, between two instructions, whatever
locks the code there holds. A trace function is called at the same places, so it stands for it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_SETTLED_S = 0.2
_TRACED = ("kfast", "threading", "contextlib")


class _Places:
    """Counts instructions of one call and calls the handler at one of them."""

    def __init__(self, call: Callable[[], object], handler: Callable[[], None], at: int) -> None:
        self._call = call
        self._handler = handler
        self._at = at
        self.count = 0

    def run(self) -> None:
        previous = sys.gettrace()
        sys.settrace(self._trace)
        try:
            self._call()
        finally:
            sys.settrace(previous)

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_globals.get("__name__", "").split(".")[0] not in _TRACED:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.count += 1
            if self.count == self._at:
                self._handler()
        return self._trace


def places_before_it_blocks(call: Callable[[], object], end: Callable[[], None]) -> int:
    """Return how many instructions a call runs until it blocks; ``end`` ends it from elsewhere."""
    places = _Places(call, lambda: None, 0)
    found: list[int] = []

    def settle() -> None:
        found.append(places.count)
        end()

    timer = threading.Timer(_SETTLED_S, settle)
    timer.start()
    places.run()
    timer.join()
    return found[0]


def run_interrupted(call: Callable[[], object], handler: Callable[[], None], at: int) -> None:
    """Make a call whose ``at``-th instruction is interrupted by ``handler``."""
    _Places(call, handler, at).run()
