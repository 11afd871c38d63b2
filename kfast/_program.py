"""How kfast's programs end: one exit status for every way.

Owns the statuses and the signal handlers. Main thread only, since it handles signals.

| what ends it | status | on standard error |
|---|---|---|
| the end | 0 | |
| a ``KafkaError`` | 1 | its text |
| Ctrl-C | 130 | |
| SIGTERM, after everything started has been removed | 143 | |

A signal becomes an exception wherever the program happens to be, and there are places that drop it:
finalizers, callbacks from C, an ``except`` that takes everything. So a signal that came is
remembered, and decides the status however the body ends; and one that Python reports as dropped is
raised again a moment later, at a SIGALRM.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any, Final, Self

from kfast.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

    _Handler = Callable[[int, FrameType | None], object]

_FAILED: Final = 1
_STATUS: Final = {signal.SIGINT: 130, signal.SIGTERM: 143}
_OURS_TO_TAKE: Final = (signal.default_int_handler, signal.SIG_DFL)
_AGAIN_SECONDS: Final = 0.02
"""How long after a signal was dropped it is raised again: what dropped it is over by then."""


def run_program(body: Callable[[], object]) -> int:
    """Run a program's body; return its exit status.

    Raises
    ------
    SystemExit
        SIGTERM came; what the body has started is removed on the way.
    """
    status = 0
    with _Signals() as signals:
        try:
            body()
        except KafkaError as error:
            sys.stderr.write(f"{error}\n")
            status = _FAILED
        except KeyboardInterrupt:
            status = _STATUS[signal.SIGINT]
        except SystemError as error:  # what a deallocator in C makes of a signal's exception
            if isinstance(error.__cause__, KeyboardInterrupt):
                status = _STATUS[signal.SIGINT]
            elif not isinstance(error.__cause__, SystemExit):
                raise
    return status if signals.came is None else _STATUS[signals.came]


class _Signals:
    """Turns Ctrl-C and SIGTERM into exceptions for the length of a ``with`` statement.

    Attributes
    ----------
    came : Signals or None
        The last of them.
    """

    def __init__(self) -> None:
        self.came: signal.Signals | None = None
        self._hook = sys.unraisablehook
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._handle(signal.SIGALRM, self._raise_again)
        for number in _STATUS:
            self._handle(number, self._raise)
        sys.unraisablehook = self._dropped
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.unraisablehook = self._hook
        if self.came is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _handle(self, number: signal.Signals, handler: _Handler) -> None:
        if signal.getsignal(number) in _OURS_TO_TAKE:  # else somebody wants it otherwise
            self._handlers[number] = signal.signal(number, handler)

    def _raise(self, number: int, _frame: FrameType | None) -> None:
        self.came = signal.Signals(number)
        if self.came is signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(_STATUS[self.came])

    def _raise_again(self, _number: int, frame: FrameType | None) -> None:
        if self.came is not None:
            self._raise(self.came, frame)

    def _dropped(self, what: sys.UnraisableHookArgs) -> None:
        """Take note of an exception that could not be raised."""
        if isinstance(what.exc_value, KeyboardInterrupt):
            self.came = signal.SIGINT
        elif self.came is None or not isinstance(what.exc_value, SystemExit):
            self._hook(what)
            return
        if signal.SIGALRM in self._handlers:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
