"""Bell: one thread waits until another one rings.

Does for one waiting thread what a ``Condition`` does for many, without its Python code between the
ring and the moment the waiting thread runs: that code is run cold, on the way of every record that
an application waits for at the end of a log.
"""

from __future__ import annotations

import threading


class Bell:
    """Rung by whoever holds a lock, heard by one thread that does not.

    Parameters
    ----------
    lock : Lock
        Held by the caller of `arm` and `ring`, and not by the caller of `wait`.

    Attributes
    ----------
    is_armed : bool
        Whether a thread waits, or is about to. It stays so until that thread runs again.
    """

    __slots__ = ("_gate", "_is_rung", "_lock", "is_armed")

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._gate = threading.Lock()
        self._gate.acquire()
        self._is_rung = False
        self.is_armed = False

    def arm(self) -> None:
        """Have a `ring` from now on end the `wait` that follows. Under the lock."""
        self.is_armed = True

    def ring(self) -> None:
        """End the `wait` that `arm` announced; nothing without one. Under the lock."""
        if self.is_armed and not self._is_rung:
            self._is_rung = True
            self._gate.release()

    def wait(self, timeout_s: float | None) -> None:
        """Wait for a `ring`, for at most so long; None means for ever.

        An exception of a signal handler, such as KeyboardInterrupt, ends it too. It may then end
        the next wait as well, so the caller looks again at what it waits for.
        """
        has_passed = False
        try:
            has_passed = self._gate.acquire(timeout=-1 if timeout_s is None else timeout_s)
        finally:
            self.is_armed = False
            if not has_passed:
                with self._lock:  # a ring under way has opened the gate when this is entered
                    self._gate.acquire(blocking=False)
            self._is_rung = False

    def __repr__(self) -> str:
        return f"<Bell {'armed' if self.is_armed else 'idle'}>"
