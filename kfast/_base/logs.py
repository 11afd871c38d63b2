"""The loggers of kfast's modules: those of `logging`, safe against hostile names and handlers.

- Control characters and line ends of arguments are escaped: the name of a group, or a text that a
  broker sent, must not look like another line of the log.
- What a handler or filter of the program raises leaves a log call on the program's threads only.
  On a thread of kfast, whose end would end the consumer, it is reported as `logging` reports what a
  handler raises: on stderr, unless ``logging.raiseExceptions`` is off.

Any thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

_ESCAPES: Final = {
    number: repr(chr(number))[1:-1] for number in (*range(32), *range(127, 160), 0x2028, 0x2029)
}
_CALLER: Final = 2
"""The frame that a message is about, counted from `logging`."""

_thread = threading.local()

logging.getLogger("kfast").addHandler(logging.NullHandler())


def enter_own_thread() -> None:
    """Note that this thread is one of kfast's: no log call on it raises from now on."""
    _thread.is_own = True


def get_logger(name: str) -> _Adapter:
    """Return the logger of a module, as ``logging.getLogger`` does."""
    return _SafeLogger(logging.getLogger(name), {})


class _SafeLogger(_Adapter):
    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        try:
            if self.logger.isEnabledFor(level):
                args = tuple(a.translate(_ESCAPES) if isinstance(a, str) else a for a in args)
                self.logger.log(level, msg, *args, stacklevel=_CALLER, **kwargs)
        except BaseException:
            if not getattr(_thread, "is_own", False):
                raise
            _report(self.logger.name, str(msg), args)


def _report(name: str, message: str, args: tuple[object, ...]) -> None:
    """Report the exception that is being handled, as a handler does with one of its own."""
    with contextlib.suppress(BaseException):  # of a stderr that the program has replaced
        record = logging.LogRecord(name, logging.NOTSET, __file__, 0, message, args, None)
        logging.Handler().handleError(record)
