"""Interrupts: Ctrl-C inside a poll, put off from where it would lose records.

Python raises ``KeyboardInterrupt`` between any two instructions of the main thread. In the few that
move positions, release what is handed out and carry it to the caller, that would lose records for
an application that goes on, as one in a notebook does. So while a poll is inside, a handler of our
own stands in for Python's: it raises at once, or, in those instructions, notes the signal.

It does so on the main thread only, where handlers run, and only if Python's own handler is
installed: what else an application does with SIGINT is its own business. Outside of polls nothing
is changed. Application thread only.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


class Interrupts:
    """Stands in for the handler of SIGINT from `begin` to `end`.

    They may be nested: a listener may poll.
    """

    __slots__ = ("_depth", "_handler", "_is_deferring", "_is_pending", "_main_thread")

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], None] = self._handle
        self._main_thread = threading.main_thread().ident
        self._depth = 0
        self._is_deferring = False
        self._is_pending = False

    def begin(self) -> None:
        """Begin a poll; `end` has to follow, also if this is interrupted."""
        self._depth += 1
        if (
            self._depth == 1
            and threading.get_ident() == self._main_thread
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            self._install(self._handler)

    def end(self) -> bool:
        """End a poll; return whether a signal was noted, which is the caller's to raise."""
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and signal.getsignal(signal.SIGINT) is self._handler:
            self._install(signal.default_int_handler)
        self._is_deferring = False
        is_pending, self._is_pending = self._is_pending, False
        return is_pending

    def defer(self) -> None:
        """From now on note the signal only."""
        self._is_deferring = True

    def resume(self) -> None:
        """Raise ``KeyboardInterrupt`` if a signal was noted, and from now on at once."""
        self._is_deferring = False
        if self._is_pending:
            self._is_pending = False
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def resumed(self) -> Iterator[None]:
        """Let a user's code be interrupted in the midst of what is not."""
        was_deferring = self._is_deferring
        self.resume()
        try:
            yield
        finally:
            self._is_deferring = was_deferring

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_deferring:
            self._is_pending = True
        else:
            signal.default_int_handler(number, frame)

    @staticmethod
    def _install(handler: Callable[[int, FrameType | None], object]) -> None:
        with contextlib.suppress(ValueError):  # not the main interpreter
            signal.signal(signal.SIGINT, handler)

    def __repr__(self) -> str:
        return f"<Interrupts {'deferring' if self._is_deferring else 'open'} depth={self._depth}>"
