"""Interceptors: user objects that see records before they are returned, and commits (KIP-42).

Owns the order in which they are called. What one raises is logged and does not disturb the
consumer, but for what a signal handler raises inside of it; each is given what the one before it
returned. Application thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfast._base.logs import get_logger
from kfast._base.signals import is_of_signal_handler
from kfast._runtime.one_time_call import OneTimeCall
from kfast.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kfast.records.consumer_records import ConsumerRecords

logger = get_logger(__name__)

_METHODS = ("on_consume", "on_commit", "close")


class Interceptors:
    """The ``interceptor_classes`` of one consumer.

    Each has any of ``on_consume(records) -> records``, ``on_commit(offsets)`` and ``close()``. A
    class is called without arguments to make one; `ConfigurationError` if that fails.
    """

    __slots__ = ("_interceptors", "_unclosed", "sees_records")

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._interceptors = [_checked(interceptor) for interceptor in interceptors]
        self._unclosed = [(method, OneTimeCall()) for method in self._methods("close")]
        self.sees_records = any(
            hasattr(interceptor, "on_consume") for interceptor in self._interceptors
        )

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """Return the records as the last interceptor left them."""
        for method in self._methods("on_consume"):
            try:
                records = records.replaced(method(records))
            except Exception as error:
                if is_of_signal_handler(error):
                    raise
                logger.exception(
                    "%s failed; the records are passed on as they were", name_of(method)
                )
        return records

    def on_commit_methods(self) -> list[Callable[..., Any]]:
        """Return the methods that report a commit, of those that have one."""
        return self._methods("on_commit")

    def close(self) -> None:
        """Close all interceptors, each once; interrupted, it can be repeated."""
        while self._unclosed:
            method, call = self._unclosed[0]
            call.run(method)
            self._unclosed.pop(0)
            if call.error is None:
                continue
            try:
                raise call.error
            except Exception as error:
                if is_of_signal_handler(error):
                    raise
                logger.exception("%s failed", name_of(method))

    def _methods(self, name: str) -> list[Callable[..., Any]]:
        return [
            getattr(interceptor, name)
            for interceptor in self._interceptors
            if hasattr(interceptor, name)
        ]

    def __repr__(self) -> str:
        return (
            f"<Interceptors {[type(interceptor).__name__ for interceptor in self._interceptors]}>"
        )


def _checked(interceptor: Any) -> object:
    if isinstance(interceptor, type):
        try:
            interceptor = interceptor()
        except Exception as error:
            raise ConfigurationError(
                f"interceptor_classes: {interceptor.__name__}() failed",
                cause=f"{type(error).__name__}: {error}",
                hint="pass an object instead of its class",
            ) from error
    if not any(callable(getattr(interceptor, name, None)) for name in _METHODS):
        raise ConfigurationError(
            f"interceptor_classes: {type(interceptor).__name__} is no interceptor",
            cause=f"it has none of the methods {', '.join(_METHODS)}",
            hint="pass objects, not the names of classes",
        )
    return interceptor


def name_of(method: Callable[..., Any]) -> str:
    owner = getattr(method, "__self__", None)
    return f"{type(owner).__name__}.{getattr(method, '__name__', '?')}"
