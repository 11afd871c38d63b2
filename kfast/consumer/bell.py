"""Bell: one thread waits until another one rings.

Does for one waiting thread what a ``Condition`` does for many, without its Python code between the
ring and the moment the waiting thread runs: that code is run cold, on the way of every record that
an application waits for at the end of a log.
"""

from __future__ import annotations

import threading


class Bell:
    """Rung by whoever holds a lock, heard by one thread that does not.

    Attributes
    ----------
    is_armed : bool
        Whether a thread waits, or is about to. It stays so until that thread runs again.
    """

    __slots__ = ("_gate", "_is_rung", "is_armed")

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._is_rung = False
        self.is_armed = False

    def arm(self) -> None:
        """Have a `ring` from now on end the `wait` that follows. Under the lock."""
        self._gate.acquire(blocking=False)  # open if an earlier wait ended without its ring
        self._is_rung = False
        self.is_armed = True

    def ring(self) -> None:
        """End the `wait` that `arm` announced; nothing without one. Under the lock."""
        if self.is_armed and not self._is_rung:
            self._is_rung = True
            self._gate.release()

    def wait(self, timeout_s: float | None) -> None:
        """Wait for a `ring`, for at most so long; None means for ever. Not under the lock.

        An exception of a signal handler, such as KeyboardInterrupt, ends it too.
        """
        try:
            self._gate.acquire(timeout=-1 if timeout_s is None else timeout_s)
        finally:
            self.is_armed = False

    def __repr__(self) -> str:
        return f"<Bell {'armed' if self.is_armed else 'idle'}>"
