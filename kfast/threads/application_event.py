"""ApplicationEvent: one call of the application thread, run on the network thread.

Owns the call and its outcome between the two threads. The application thread makes the event,
passes it to ``NetworkThread.submit`` and blocks in ``wait``; the network thread calls ``run`` once.
The action runs on the network thread, must not block, and returns either the value or a
``PendingResult`` that is completed by a later response of a broker.

No outcome is lost: an event that can no longer run fails with the reason. An event whose caller no
longer waits (``wakeup``, Ctrl-C, timeout) is cancelled with ``NetworkThread.abandon``, and so is
the work begun for it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from kfast._runtime.wakeup_event import WakeupEvent
from kfast.consumer.pending_result import PendingResult
from kfast.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LONGEST_WAIT_MS: Final = 250
"""Longest single wait of the application thread, whatever it waits for.

It bounds the delay of a signal that comes just as a wait begins: the interpreter checks for signals
before the wait, and nothing ends a wait that begins after the signal.
"""


class ApplicationEvent(Generic[T]):
    """One call and its outcome; ``name`` ("look up offsets") is for messages and logs."""

    __slots__ = (
        "_action",
        "_error",
        "_is_done",
        "_is_interrupted",
        "_lock",
        "_pending",
        "_value",
        "_wakeup",
        "name",
    )

    def __init__(self, name: str, action: Callable[[int], PendingResult[T] | T]) -> None:
        self.name = name
        self._action: Callable[[int], PendingResult[T] | T] | None = action
        self._pending: PendingResult[T] | None = None
        self._lock = threading.Lock()
        self._wakeup = WakeupEvent()
        self._is_done = False
        self._is_interrupted = False
        self._value: T | None = None
        self._error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        """Whether an outcome is there."""
        return self._is_done

    def run(self, now_ms: int) -> None:
        """Make the call. Network thread, once."""
        action, self._action = self._action, None
        if action is None or self._is_done:
            return
        try:
            outcome = action(now_ms)
        except KafkaError as error:
            self._finish(None, error)
            return
        if isinstance(outcome, PendingResult):
            self._pending = outcome
            outcome.add_callback(self._on_pending)
        else:
            self._finish(outcome, None)

    def fail(self, error: BaseException) -> None:
        """End the event before it has run, or while its response is pending."""
        self._finish(None, error)

    def cancel(self, now_ms: int) -> None:  # noqa: ARG002 - the shape of an action
        """Cancel the work that was begun for it. Network thread."""
        if self._pending is not None:
            self._pending.cancel()

    def wait(self, timeout_s: float) -> bool:
        """Block until the outcome is there, ``interrupt`` was called or the time is over.

        Returns whether the outcome is there; it may return early without a reason. One thread.
        """
        self._wakeup.prepare()
        is_due = self._is_done or self._is_interrupted
        self._wakeup.wait(0 if is_due else timeout_s)
        self._is_interrupted = False
        return self._is_done

    def interrupt(self) -> None:
        """End a ``wait`` early. Any thread, also from a signal handler: it waits for no lock."""
        self._is_interrupted = True
        self._wakeup.set()

    def result(self) -> T:
        """Return the value, or raise the error of the action."""
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def _on_pending(self, pending: PendingResult[T]) -> None:
        self._pending = None
        if pending.error is not None:
            self._finish(None, pending.error)
        else:
            self._finish(pending.value, None)

    def _finish(self, value: T | None, error: BaseException | None) -> None:
        with self._lock:
            if self._is_done:
                return
            self._value, self._error = value, error
            self._is_done = True
        self._wakeup.set()

    def __repr__(self) -> str:
        return f"<ApplicationEvent {self.name} {'done' if self._is_done else 'pending'}>"
