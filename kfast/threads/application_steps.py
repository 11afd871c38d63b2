"""ApplicationSteps: where a group's membership leaves a step for the application thread.

Owns the one step that may be outstanding, and the time of the application's last ``poll``. It is
the ``StepPort`` of ``kfast.consumer.group.membership``: the network thread posts and withdraws, the
application thread takes. It runs nothing itself.

The application looks at `due` in every poll; that is a plain attribute, so that a poll with nothing
to do pays next to nothing for being in a group.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kfast.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfast.consumer.group.membership import RebalanceStep


class ApplicationSteps:
    """The hand-over of rebalance steps. Thread-safe.

    Parameters
    ----------
    now_ms : int
        The time: before its first poll the application counts as having polled now.
    notify : Callable
        Called, without the lock, when a step was posted: ends a waiting ``poll``.

    Attributes
    ----------
    due : RebalanceStep or None
        A step that waits to be taken. Any thread may look.
    last_poll_ms : int
        When the application was last in ``poll``; set by it, also while it blocks there.
    """

    __slots__ = ("_lock", "_notify", "due", "last_poll_ms")

    def __init__(self, now_ms: int, notify: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._notify = notify
        self.due: RebalanceStep | None = None
        self.last_poll_ms = now_ms

    def post(self, step: RebalanceStep) -> None:
        """Have a step run by the application.

        Raises
        ------
        IllegalStateError
            Another one still waits.
        """
        with self._lock:
            if self.due is not None:
                raise IllegalStateError(f"{step.kind} was posted while {self.due.kind} waits")
            self.due = step
        self._notify()

    def withdraw(self) -> bool:
        """Take the step back; True: it was not begun and is gone."""
        return self.take() is not None

    def take(self) -> RebalanceStep | None:
        """Return the step that waits, to be run by the caller, or None."""
        with self._lock:
            step, self.due = self.due, None
            return step

    def __repr__(self) -> str:
        return f"<ApplicationSteps due={None if self.due is None else self.due.kind.name}>"
