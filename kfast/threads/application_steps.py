"""ApplicationSteps: passes rebalance steps from the membership to the application thread.

Owns the one step that may be outstanding, and the time of the application's last ``poll``. It is
the ``StepPort`` of ``kfast.consumer.group.membership``: the network thread posts, withdraws and
ends steps, the application thread begins them. A step is outstanding until the membership has
received that it was run: an application thread that is interrupted in between finds it again. It
runs nothing itself.

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

    __slots__ = ("_is_begun", "_lock", "_notify", "due", "last_poll_ms")

    def __init__(self, now_ms: int, notify: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._notify = notify
        self._is_begun = False
        self.due: RebalanceStep | None = None
        """The step to be run, or being run. Any thread may read it."""
        self.last_poll_ms = now_ms
        """When the application was last in ``poll``; it sets this also while it blocks there."""

    def post(self, step: RebalanceStep) -> None:
        """Have a step run by the application; only when no other one is outstanding."""
        with self._lock:
            if self.due is not None:
                raise IllegalStateError(f"{step.kind} was posted while {self.due.kind} waits")
            self._is_begun = False
            self.due = step
        self._notify()

    def withdraw(self) -> bool:
        """Take the step back; True if the application had not begun it."""
        with self._lock:
            if self.due is None or self._is_begun:
                return False
            self.due = None
            return True

    def begin(self) -> RebalanceStep | None:
        """Return the step to be run by the caller, None if there is none. Idempotent."""
        with self._lock:
            if self.due is not None:
                self._is_begun = True
            return self.due

    def end(self, step: RebalanceStep | None = None) -> None:
        """Note that a step, by default the outstanding one, was run or is void. Network thread."""
        with self._lock:
            if step is None or self.due is step:
                self.due = None

    def __repr__(self) -> str:
        return f"<ApplicationSteps due={None if self.due is None else self.due.kind.name}>"
