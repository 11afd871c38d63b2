"""Signal handlers at every place: what runs between any two instructions of kfast's Python code.

The interpreter runs the handler of a signal on the main thread, between two instructions, whatever
locks the code there holds. A trace function is called at the same places, so it stands for it.

It is called at more places than that, too: the interpreter looks for signals only when a function
begins, when a call of something compiled has ended and when a loop goes round, and what a handler
raises comes out of *that* instruction. This matters to handlers that raise: before the instructions
by which a ``with`` block ends, for example, an exception that no signal can raise would leave its
lock taken.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any

_SETTLED_S = 0.2
_TRACED = ("kfast", "threading", "contextlib")
_LOOKS_FOR_SIGNALS = {"RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}


@cache
def _protections(code: CodeType) -> dict[int, object]:
    """Return for every instruction what handles an exception there."""
    bytecode = dis.Bytecode(code)
    entries: list[Any] = bytecode.exception_entries  # type: ignore[attr-defined]
    return {
        at.offset: [(e.target, e.depth) for e in entries if e.start <= at.offset < e.end]
        for at in bytecode
    }


@cache
def _looks_for_signals(code: CodeType) -> frozenset[int]:
    return frozenset(i.offset for i in dis.Bytecode(code) if i.opname in _LOOKS_FOR_SIGNALS)


class _Places:
    """Counts instructions of one call and calls the handler at one of them."""

    def __init__(
        self, call: Callable[[], object], handler: Callable[[], None], at: int, *, raises: bool
    ) -> None:
        self._call = call
        self._handler = handler
        self._at = at
        self._raises = raises
        self._last: dict[FrameType | None, int] = {}
        self.count = 0

    def run(self) -> None:
        previous = sys.gettrace()
        sys.settrace(self._trace)
        try:
            self._call()
        finally:
            sys.settrace(previous)
            self._last.clear()

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_globals.get("__name__", "").split(".")[0] not in _TRACED:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self._opcode(frame)
        elif event == "return":
            self._last.pop(frame, None)
            self._last.pop(frame.f_back, None)  # which looks for no signals after this call
        return self._trace

    def _opcode(self, frame: FrameType) -> None:
        if self._raises:
            last, self._last[frame] = self._last.get(frame), frame.f_lasti
            if not self._can_raise(frame.f_code, last, frame.f_lasti):
                return
        self.count += 1
        if self.count == self._at:
            sys.settrace(None)
            self._handler()

    @staticmethod
    def _can_raise(code: CodeType, last: int | None, at: int) -> bool:
        """Whether a signal may come in between and be handled as if at the second of these."""
        if last is None or last not in _looks_for_signals(code):
            return False
        protections = _protections(code)
        return protections[last] == protections[at]


def places_before_it_blocks(call: Callable[[], object], end: Callable[[], None]) -> int:
    """Return how many instructions a call runs until it blocks; ``end`` ends it from elsewhere."""
    places = _Places(call, lambda: None, 0, raises=False)
    found: list[int] = []

    def settle() -> None:
        found.append(places.count)
        end()

    timer = threading.Timer(_SETTLED_S, settle)
    timer.start()
    places.run()
    timer.join()
    return found[0]


def run_interrupted(
    call: Callable[[], object], handler: Callable[[], None], at: int, *, raises: bool = False
) -> None:
    """Make a call whose ``at``-th instruction is interrupted by ``handler``.

    With ``raises`` only instructions count at which a signal can make it raise.
    """
    _Places(call, handler, at, raises=raises).run()
