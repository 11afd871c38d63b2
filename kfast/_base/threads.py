"""Threads of kfast's own, none of which a log handler or filter of the program can end.

``OwnThread``       runs a function; what the hooks of a program raise there is reported
``WorkerThread``    runs once, however often its start was interrupted
``BackgroundCall``  one call; what it raises is raised by ``end``
``OrderedCalls``    calls on a few threads, whose results are taken in the order of the calls

``threading.Thread.start`` waits for the new thread with locks of Python code: what a signal handler
raises inside of it is lost, and leaves a lock that the new thread waits for. So a ``WorkerThread``
is started by another thread, on which no handler runs; that is started by one call of compiled
code. Each `start` that finds nothing running starts a thread; the first of them does the work, the
others end at once.
"""

from __future__ import annotations

import _thread
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kfast._base.logs import enter_own_thread
from kfast._runtime.wakeup_event import WakeupEvent

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_MOST_THREADS: Final = 4


class OrderedCalls(Generic[T]):
    """Calls that release the GIL; each has a number of bytes, which bound what is pending."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(
            min(_MOST_THREADS, os.cpu_count() or 1), "kfast-call", enter_own_thread
        )
        self._pending: deque[tuple[int, Future[T]]] = deque()
        self._pending_bytes = 0

    def submit(self, nbytes: int, call: Callable[[], T]) -> None:
        """Make a call soon."""
        self._pending.append((nbytes, self._threads.submit(call)))
        self._pending_bytes += nbytes

    def results(self, most_bytes: int) -> Iterator[T]:
        """Yield results in order; wait for more while more bytes than these are pending.

        Raises what a call has raised, in its turn.
        """
        while self._pending:
            nbytes, future = self._pending[0]
            if self._pending_bytes <= most_bytes and not future.done():
                return
            self._pending.popleft()
            self._pending_bytes -= nbytes
            yield future.result()

    def close(self) -> None:
        """Drop calls that have not begun, and wait for the others."""
        self._threads.shutdown(cancel_futures=True)

    def __repr__(self) -> str:
        return f"<OrderedCalls {len(self._pending)} pending>"


class BackgroundCall:
    """Starts a daemon thread of this name, which makes the call and drops what it returns.

    A call that hangs does not keep the interpreter alive.
    """

    def __init__(self, name: str, call: Callable[[], object]) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._thread = OwnThread(self._run, name)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the call has not ended."""
        return self._thread.is_alive()

    def wait(self) -> None:
        """Wait for the end of the call, with or without an error."""
        self._thread.join()

    def end(self) -> None:
        """Wait for the end of the call and raise what it raised, every time."""
        self.wait()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # raised by `end`; a store of the user may exit
            self._error = error

    def __repr__(self) -> str:
        return f"<BackgroundCall {self._thread.name} {'running' if self.is_running else 'ended'}>"


class OwnThread(threading.Thread):
    """A daemon thread, which does not keep the interpreter alive."""

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)

    def run(self) -> None:
        """Run the target."""
        enter_own_thread()
        super().run()


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
