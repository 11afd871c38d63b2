"""DecodePool: threads that decode fetched slices while the application is busy elsewhere.

Owns ``decode_threads`` threads that claim one ``CompletedFetch`` at a time from the
``FetchBuffer`` and decode a chunk of it with the GIL released. They share no mutable object with
anybody but through the buffer's claim: whoever claims a slice first, a pool thread or the
application thread inside ``poll``, is the only one to touch it. Nothing here runs user code, and
no error is lost: what a decode raises is kept in the slice and raised by ``poll``.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfast.consumer.fetch.buffer import FetchBuffer

logger = logging.getLogger(__name__)


class DecodePool:
    """Pre-decodes what lies in a fetch buffer.

    Parameters
    ----------
    name : str
        Prefix of the threads' names.
    fetch_buffer : FetchBuffer
        Where slices are claimed.
    threads : int
        How many; 0 leaves all decoding to the application thread.
    on_death : Callable
        Told the exception a thread dies of.
    """

    def __init__(
        self,
        name: str,
        fetch_buffer: FetchBuffer,
        threads: int,
        *,
        on_death: Callable[[BaseException], None],
    ) -> None:
        self._fetch_buffer = fetch_buffer
        self._on_death = on_death
        self._is_closing = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def close(self, timeout_s: float) -> None:
        """Stop the threads; the fetch buffer must have been closed, which ends their waits."""
        self.end()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout_s)

    def end(self) -> None:
        """Have the threads end once the fetch buffer is closed, without waiting for them."""
        self._is_closing = True

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._fetch_buffer.decode_one()
        except BaseException as error:
            logger.exception("a decode thread failed")
            self._on_death(error)

    def __repr__(self) -> str:
        return f"<DecodePool threads={len(self._threads)}>"
