"""OrderedCalls: calls on a few threads, whose results are taken in the order of the calls.

Owns the threads until ``close``. Made, used and closed by one thread.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Generic, TypeVar

from kfast._base.logs import enter_own_thread

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
        """Yield what is there, and wait for more while more bytes than these are pending.

        Raises what a call has raised, in its turn.
        """
        while self._pending:
            nbytes, made = self._pending[0]
            if self._pending_bytes <= most_bytes and not made.done():
                return
            self._pending.popleft()
            self._pending_bytes -= nbytes
            yield made.result()

    def close(self) -> None:
        """Drop calls that have not begun, and wait for the others."""
        self._threads.shutdown(cancel_futures=True)

    def __repr__(self) -> str:
        return f"<OrderedCalls {len(self._pending)} pending>"
