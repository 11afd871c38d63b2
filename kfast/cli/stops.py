"""Signals that end a read: noted, and acted on between blocks of whole records.

Main thread. A second one ends the process at once, whatever it waits for. A process that goes on
after it was stopped (Ctrl-Z) draws again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import FrameType, TracebackType

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STATUS: Final = 128


class Stops:
    """Notes the signals that would end the process, for the length of a ``with`` statement.

    ``wake`` is called when the first one comes: it ends a call that waits. A signal that is ignored
    stays ignored (``nohup``). ``go_on`` is called when a stopped process goes on.
    """

    def __init__(self, wake: Callable[[], None], go_on: Callable[[], None] = lambda: None) -> None:
        self.received: signal.Signals | None = None
        self._wake = wake
        self._go_on = go_on
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stops:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._note)
        self._handlers[signal.SIGCONT] = signal.signal(signal.SIGCONT, self._continue)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def deliver(self) -> None:
        """Hand the signal that was noted to the handler there was before."""
        if self.received is not None:
            signal.raise_signal(self.received)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            os._exit(_STATUS + number)
        self.received = signal.Signals(number)
        self._wake()

    def _continue(self, _number: int, _frame: FrameType | None) -> None:
        self._go_on()
