"""DecodePool: threads that decode fetched slices while the application thread computes.

Owns ``decode_threads`` threads that claim one ``CompletedFetch`` at a time from the
``FetchBuffer`` and decode a chunk of it with the GIL released. Mutable objects are shared only
through the claim: the first thread to claim a slice, one of the pool or the application
thread inside ``poll``, is the only one to use it. Nothing here runs user code, and no error is
lost: what a decode raises is kept in the slice and raised by ``poll``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._base.logs import get_logger
from kfast._base.threads import WorkerThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfast.consumer.fetch.decode_scheduler import DecodeScheduler

logger = get_logger(__name__)


class DecodePool:
    """Decodes the slices of a fetch buffer ahead of ``poll``.

    0 threads leave all decoding to the application thread. ``on_failure`` is called with the
    exception that ended a thread.
    """

    def __init__(
        self,
        name: str,
        decoding: DecodeScheduler,
        threads: int,
        *,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._decoding = decoding
        self._on_failure = on_failure
        self._is_closing = False
        self._threads = [WorkerThread(f"{name}-{number}", self._run) for number in range(threads)]

    def start(self) -> None:
        """Start the threads. Idempotent."""
        for thread in self._threads:
            thread.start()

    def close(self, timeout_s: float) -> None:
        """Stop the threads; the fetch buffer must have been closed, which ends their waits."""
        self.end()
        for thread in self._threads:
            thread.join(timeout_s)

    def end(self) -> None:
        """End the threads once the fetch buffer is closed, without waiting for them."""
        self._is_closing = True

    def _run(self) -> None:
        try:
            while not self._is_closing and self._decoding.decode_one():
                pass  # False is the end: the buffer is closed
        except BaseException as error:
            logger.exception("a decode thread failed")
            self._on_failure(error)

    def __repr__(self) -> str:
        return f"<DecodePool threads={len(self._threads)}>"
