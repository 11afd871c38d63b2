"""ApplicationSteps: passes rebalance steps from the membership to the application thread.

Owns the one step that may be outstanding, and the time of the application's last ``poll``. It is
the ``StepPort`` of ``kfast.consumer.group.membership``: the network thread posts and withdraws, the
application thread takes. It runs nothing itself.

The application reads `due` in every poll; it is a plain attribute, so that a poll without a step
costs next to nothing.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kfast.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfast.consumer.group.membership import RebalanceStep


class ApplicationSteps:
    """The posted step. Thread-safe.

    Before its first poll the application counts as having polled at ``now_ms``. ``notify`` is
    called, without the lock, when a step was posted: it ends a waiting ``poll``.
    """

    __slots__ = ("_lock", "_notify", "due", "last_poll_ms")

    def __init__(self, now_ms: int, notify: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._notify = notify
        self.due: RebalanceStep | None = None
        """The step to be taken. Any thread may read it."""
        self.last_poll_ms = now_ms
        """When the application was last in ``poll``; it sets this also while it blocks there."""

    def post(self, step: RebalanceStep) -> None:
        """Have a step run by the application; only when no other one is posted."""
        with self._lock:
            if self.due is not None:
                raise IllegalStateError(f"{step.kind} was posted while {self.due.kind} waits")
            self.due = step
        self._notify()

    def withdraw(self) -> bool:
        """Take the step back; True if the application had not begun it."""
        return self.take() is not None

    def take(self) -> RebalanceStep | None:
        """Return the posted step, to be run by the caller, or None."""
        with self._lock:
            step, self.due = self.due, None
            return step

    def __repr__(self) -> str:
        return f"<ApplicationSteps due={None if self.due is None else self.due.kind.name}>"
