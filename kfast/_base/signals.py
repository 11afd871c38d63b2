"""Exceptions of signal handlers, distinguished from those of the code that they came out of.

A handler runs between any two instructions of the main thread, and what it raises comes out there:
inside a deserializer or an interceptor of the user's, for example, whose own exceptions are a bad
value or a line of the log. That of a handler is neither; it ends the call.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType


def is_of_signal_handler(error: BaseException) -> bool:
    """Return whether an exception came out of a handler that is installed now."""
    import signal  # noqa: PLC0415 - for errors

    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


def _code(handler: object) -> CodeType | None:
    while isinstance(handler, partial):
        handler = handler.func
    for function in (handler, getattr(handler, "__func__", None), type(handler).__call__):
        code: CodeType | None = getattr(function, "__code__", None)
        if code is not None:
            return code
    return None
