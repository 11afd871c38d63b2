"""Changes: the lock of a fake cluster, and who is notified when its state has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Changes:
    """The lock that protects the state of a cluster, and the listeners of its changes.

    Attributes
    ----------
    lock : threading.RLock
        Held while the state is read or changed.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._listeners: list[Callable[[], None]] = []
        self._depth = 0

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock while the state is changed, then notify the listeners.

        Blocks may be nested; the listeners are called without the lock, after the outermost one.
        """
        with self.lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
            listeners = [] if self._depth else list(self._listeners)
        for listener in listeners:
            listener()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call a function after every change, from the thread that made it."""
        with self.lock:
            self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Stop calling a function."""
        with self.lock:
            self._listeners.remove(listener)

    def __repr__(self) -> str:
        return f"<Changes {len(self._listeners)} listeners>"
