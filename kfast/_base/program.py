"""Exit status and signal handlers of kfast's programs, and arguments of the form KEY=VALUE.

Main thread only, since it handles signals.

| cause | status | on standard error |
|---|---|---|
| the body returns | what it returns, else 0 | |
| a ``KafkaError`` | 1, or what the program says | its text |
| SIGHUP, after all started processes have ended | 129 | |
| Ctrl-C, likewise | 130 | |
| SIGTERM, likewise | 143 | |

A signal becomes an exception at an arbitrary place, and some places drop it: finalizers, callbacks
from C, an ``except`` of all exceptions. So a signal is recorded when it is received, and decides
the status however the body ends; and one that Python reports as dropped is raised again a moment
later, at a SIGALRM.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any, Final, Self

from kfast.errors import ConfigurationError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType, TracebackType

    _Handler = Callable[[int, FrameType | None], object]

_FAILED: Final = 1
_STATUS: Final = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143}
_DEFAULT_HANDLERS: Final = (signal.default_int_handler, signal.SIG_DFL)
_AGAIN_SECONDS: Final = 0.02
"""Delay before a dropped signal is raised again: the code that dropped it has ended by then."""


def _report(error: KafkaError) -> int:
    sys.stderr.write(f"{error}\n")
    return _FAILED


def run_program(body: Callable[[], object], failed: Callable[[KafkaError], int] = _report) -> int:
    """Run a program's body; return its exit status: the int that the body returns, else 0.

    SIGTERM and SIGHUP raise ``SystemExit``, so that the body's context managers clean up.
    ``failed`` reports an error and returns the status.
    """
    with _Signals() as signals:
        try:
            ended = body()
            status = ended if isinstance(ended, int) else 0
        except KafkaError as error:
            status = failed(error)
        except KeyboardInterrupt:
            status = _STATUS[signal.SIGINT]
        except (SystemError, RuntimeError) as error:
            # A deallocator in C, or the ``__set_name__`` of a class that is being made, met the
            # signal's exception.
            if isinstance(error.__cause__, KeyboardInterrupt):
                status = _STATUS[signal.SIGINT]
            elif not isinstance(error.__cause__, SystemExit):
                raise
    return status if signals.received is None else _STATUS[signals.received]


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return the values of an option that is given as KEY=VALUE, several times."""
    values = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not key.strip() or not sign:
            raise ConfigurationError(f"{option} {text}: not KEY=VALUE", hint=f"{option} KEY=VALUE")
        values[key.strip()] = value.strip()
    return values


class _Signals:
    """Raises Ctrl-C and SIGTERM as exceptions for the length of a ``with`` statement."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None  # the last one
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
        if self.received is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _handle(self, number: signal.Signals, handler: _Handler) -> None:
        if signal.getsignal(number) in _DEFAULT_HANDLERS:  # the application's handlers stay
            self._handlers[number] = signal.signal(number, handler)

    def _raise(self, number: int, _frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        if self.received is signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(_STATUS[self.received])

    def _raise_again(self, _number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            self._raise(self.received, frame)

    def _dropped(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Record a signal whose exception was dropped (``sys.unraisablehook``)."""
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            self.received = signal.SIGINT
        elif self.received is None or not isinstance(unraisable.exc_value, SystemExit):
            self._hook(unraisable)
            return
        if signal.SIGALRM in self._handlers:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
