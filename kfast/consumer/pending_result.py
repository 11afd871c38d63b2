"""PendingResult: the result of a request manager's work, value or error, once it is there.

It has no lock and never blocks: it is made, completed and read on the network thread only. A
callback carries the result to another thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from kfast.errors import IllegalStateError, WakeupError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kfast.errors import KafkaError

T = TypeVar("T")


class PendingResult(Generic[T]):
    """A value or a `KafkaError`. Network thread only.

    The first of `complete` and `fail` wins; later ones are ignored and return False, so that a
    late response and a deadline need not know of each other.
    """

    __slots__ = ("_callbacks", "_error", "_is_done", "_value")

    def __init__(self) -> None:
        self._is_done = False
        self._value: T | None = None
        self._error: KafkaError | None = None
        self._callbacks: list[Callable[[PendingResult[T]], None]] = []

    @property
    def is_done(self) -> bool:
        """Whether a value or an error is there."""
        return self._is_done

    @property
    def error(self) -> KafkaError | None:
        """The error it ended with; None while pending and after success."""
        return self._error

    @property
    def value(self) -> T:
        """The value.

        Raises
        ------
        KafkaError
            The error it failed with.
        IllegalStateError
            It is still pending.
        """
        if not self._is_done:
            raise IllegalStateError("the result is still pending")
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def complete(self, value: T) -> bool:
        """End with a value; return whether this call ended it."""
        return self._finish(value, None)

    def fail(self, error: KafkaError) -> bool:
        """End with an error; return whether this call ended it."""
        return self._finish(None, error)

    def cancel(self) -> bool:
        """End because the caller has stopped waiting; return whether this call ended it.

        A request manager that works on it stops by a callback.
        """
        return self._finish(None, WakeupError("the caller has stopped waiting"))

    def add_callback(self, callback: Callable[[PendingResult[T]], None]) -> None:
        """Call ``callback(self)`` once it is done: at once if it is, else when it ends."""
        if self._is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def _finish(self, value: T | None, error: KafkaError | None) -> bool:
        if self._is_done:
            return False
        self._is_done = True
        self._value = value
        self._error = error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)
        return True

    def __repr__(self) -> str:
        if not self._is_done:
            return "<PendingResult pending>"
        if self._error is not None:
            return f"<PendingResult failed: {type(self._error).__name__}>"
        return "<PendingResult done>"


def all_of(results: Sequence[PendingResult[T]]) -> PendingResult[list[T]]:
    """Return the values of all, in their order, or the first error, which cancels the others."""
    together: PendingResult[list[T]] = PendingResult()

    def note(ended: PendingResult[T]) -> None:
        if ended.error is not None:
            together.fail(ended.error)
        elif all(result.is_done for result in results):
            together.complete([result.value for result in results])

    def cancel(_: object) -> None:
        for result in results:
            result.cancel()

    together.add_callback(cancel)
    for result in results:
        result.add_callback(note)
    return together
