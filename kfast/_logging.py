"""Logger: the loggers of kfast's modules, which import `logging` only if the program has.

A library's messages go nowhere unless the program configures `logging`: the logger ``kfast`` has a
``NullHandler``. A program that has not imported `logging` has not configured it, and kfast need not
import it either, which takes longer than most of what a short command does. Any thread.

What a handler or filter of the program raises leaves a log call on the program's threads only.
On a thread of kfast, whose end would end the consumer, it is reported as `logging` reports what a
handler raises: on stderr, unless ``logging.raiseExceptions`` is off.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import logging

DEBUG: Final = 10
INFO: Final = 20
WARNING: Final = 30
_ERROR: Final = 40
_CALLER: Final = 3
"""The frame that a message is about, counted from `logging`."""

_ESCAPES: Final = {
    number: repr(chr(number))[1:-1] for number in (*range(32), *range(127, 160), 0x2028, 0x2029)
}
"""Control characters and line ends: a name or a broker's text must not look like another line."""

_thread = threading.local()


def enter_own_thread() -> None:
    """Note that this thread is one of kfast's: no log call on it raises from now on."""
    _thread.is_own = True


class Logger:
    """The methods of ``logging.getLogger(name)`` that kfast uses."""

    __slots__ = ("_name", "_real")

    def __init__(self, name: str) -> None:
        self._name = name
        self._real: logging.Logger | None = None

    def debug(self, message: str, *args: object, exc_info: Any = None) -> None:
        """Log at this level."""
        self._log(DEBUG, message, args, exc_info)

    def info(self, message: str, *args: object) -> None:
        """Log at this level."""
        self._log(INFO, message, args)

    def warning(self, message: str, *args: object, exc_info: Any = None) -> None:
        """Log at this level."""
        self._log(WARNING, message, args, exc_info)

    def error(self, message: str, *args: object, exc_info: Any = None) -> None:
        """Log at this level."""
        self._log(_ERROR, message, args, exc_info)

    def exception(self, message: str, *args: object) -> None:
        """Log an error with the exception that is being handled."""
        self._log(_ERROR, message, args, True)

    def log(self, level: int, message: str, *args: object, exc_info: Any = None) -> None:
        """Log at a level."""
        self._log(level, message, args, exc_info)

    def _log(
        self, level: int, message: str, args: tuple[object, ...], exc_info: Any = None
    ) -> None:
        try:
            real = self._real
            if real is None:
                if "logging" not in sys.modules:
                    return
                real = self._real = _found(self._name)
            if not real.isEnabledFor(level):
                return
            args = tuple(a.translate(_ESCAPES) if isinstance(a, str) else a for a in args)
            real.log(level, message, *args, exc_info=exc_info, stacklevel=_CALLER)
        except BaseException:
            if not getattr(_thread, "is_own", False):
                raise
            _report(self._name, message, args)


def _report(name: str, message: str, args: tuple[object, ...]) -> None:
    """Report the exception that is being handled, as a handler does with one of its own."""
    import logging  # noqa: PLC0415 - the program has imported it

    with contextlib.suppress(BaseException):  # of a stderr that the program has replaced
        record = logging.LogRecord(name, logging.NOTSET, __file__, 0, message, args, None)
        logging.Handler().handleError(record)


def _found(name: str) -> logging.Logger:
    import logging  # noqa: PLC0415 - the program has imported it

    ours = logging.getLogger("kfast")
    if not any(isinstance(each, logging.NullHandler) for each in ours.handlers):
        ours.addHandler(logging.NullHandler())
    return logging.getLogger(name)
