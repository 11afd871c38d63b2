"""WorkerThread: a daemon thread that runs once, however often its start was interrupted.

``threading.Thread.start`` waits for the new thread with locks of Python code: what a signal handler
raises inside of it is lost, and leaves a lock that the new thread waits for. So the thread is
started by another one, on which no handler runs; that is started by one call of compiled code. Each
`start` that finds nothing running starts a thread; the first of them does the work, the others end
at once.
"""

from __future__ import annotations

import _thread
import threading
from typing import TYPE_CHECKING

from kfast._base.own_thread import OwnThread
from kfast._runtime.wakeup_event import WakeupEvent

if TYPE_CHECKING:
    from collections.abc import Callable


class WorkerThread:
    """Calls ``run`` on a thread of its own. `start`, `join` by one thread; the rest by any."""

    __slots__ = (
        "_begun",
        "_claim",
        "_failure",
        "_has_begun",
        "_is_cancelled",
        "_run",
        "_thread",
        "name",
    )

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.name = name
        self._run = run
        self._claim = threading.Lock()
        self._begun = WakeupEvent()
        self._has_begun = False
        self._failure: BaseException | None = None
        self._is_cancelled = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread and wait until it runs. Idempotent."""
        if self._has_begun:
            return
        self._begun.prepare()
        _thread.start_new_thread(self._launch, ())
        if not self._has_begun:
            self._begun.wait()
        if self._failure is not None:
            raise self._failure

    def _launch(self) -> None:
        try:
            OwnThread(self._begin, self.name).start()
        except BaseException as error:  # there can be no more threads
            self._failure = error
            self._begun.set()

    def _begin(self) -> None:
        if self._claim.acquire(blocking=False):
            self._thread = threading.current_thread()
            self._has_begun = True
            self._begun.set()
            run, self._run = self._run, _nothing  # which would keep its owner in a cycle
            run()

    def cancel(self) -> bool:
        """Have it never run; False if it runs or has run."""
        if self._claim.acquire(blocking=False):
            self._is_cancelled = True
            self._run = _nothing
        return self._is_cancelled

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether it is the calling thread."""
        return self._thread is threading.current_thread()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; return whether it does not run."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.is_alive

    def __repr__(self) -> str:
        return f"<WorkerThread {self.name} {'alive' if self.is_alive else 'not running'}>"


def _nothing() -> None:
    """Stand in for what was run, or never will be."""
