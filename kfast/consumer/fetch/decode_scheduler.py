"""DecodeScheduler: which thread decodes the next chunk of a fetch.

Owns no fetch, and shares the lock of the `FetchBuffer`. A RAW fetch is claimed by the first of two
kinds of threads, never by both: a decode thread, ahead of the application, or the application
thread itself. Decoding runs without the lock, between the claim and the publication. Compiled, so
that no signal handler runs between two changes of one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfast._base.logs import get_logger
from kfast._runtime.wakeup_event import WakeupEvent
from kfast.consumer.fetch.completed_fetch import Stage

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from kfast._native.record_index import RecordIndex
    from kfast.consumer.application_wakeup import ApplicationWakeup
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.consumer.fetch.decode_queue import DecodeQueue
    from kfast.consumer.fetch.memory_gate import MemoryGate

logger = get_logger(__name__)


class DecodeScheduler:
    """Claims, decodes and publishes chunks. Thread-safe.

    ``convert_ahead`` converts what decode threads decode, if it may run there.
    """

    __slots__ = (
        "_convert_ahead",
        "_decode_chunk_bytes",
        "_is_closed",
        "_lock",
        "_memory",
        "_queue",
        "_wakeup",
    )

    def __init__(
        self,
        lock: threading.Lock,
        queue: DecodeQueue,
        memory: MemoryGate,
        wakeup: ApplicationWakeup,
        decode_chunk_bytes: int,
        convert_ahead: Callable[[CompletedFetch, RecordIndex, int], Any] | None,
    ) -> None:
        self._lock = lock
        self._queue = queue
        self._memory = memory
        self._wakeup = wakeup
        self._decode_chunk_bytes = decode_chunk_bytes
        self._convert_ahead = convert_ahead
        self._is_closed = False

    # --- decode threads ---------------------------------------------------------------------------

    def decode_one(self, timeout_s: float | None = None) -> bool:
        """Claim a RAW fetch, waiting for one if need be, and decode it.

        False when the buffer is closed, or there was none for ``timeout_s``.
        """
        arrived = WakeupEvent()
        fetch = self._claim_ahead(arrived)
        while fetch is None and timeout_s != 0 and not self._is_closed:
            arrived.wait(timeout_s)
            if self._has_timed_out(arrived):
                return False
            fetch = self._claim_ahead(arrived)
        if fetch is None:
            self._has_timed_out(arrived)
            return False
        self._decode(fetch, is_ahead=True)
        return True

    def _claim_ahead(self, arrived: WakeupEvent) -> CompletedFetch | None:
        """Claim the next RAW fetch; without one ``arrived`` is set when there may be one."""
        with self._lock:
            fetch = self._queue.first
            if self._is_closed:
                return None
            if fetch is None or not self._memory.fits(fetch):
                self._queue.add_idle(arrived)
                return None
            self._claim(fetch, is_ahead=True)
            return fetch

    def _has_timed_out(self, arrived: WakeupEvent) -> bool:
        """End a wait; return whether it was not notified."""
        with self._lock:
            return self._queue.remove_idle(arrived)

    # --- application thread -----------------------------------------------------------------------

    def claim(self, fetch: CompletedFetch) -> bool:
        """Claim a RAW fetch for `decode`; False if another thread was first or it is not RAW."""
        with self._lock:
            if fetch.stage is not Stage.RAW:
                return False
            self._claim(fetch, is_ahead=False)
            return True

    def decode(self, fetch: CompletedFetch) -> None:
        """Decode the next chunk of a fetch this thread has claimed, and publish it.

        Raises
        ------
        MemoryError
            The fetch can be claimed again.
        """
        self._decode(fetch, is_ahead=False)

    # --- both -------------------------------------------------------------------------------------

    def _claim(self, fetch: CompletedFetch, *, is_ahead: bool) -> None:
        """Under the lock."""
        fetch.stage = Stage.DECODING
        self._memory.begin_decode(fetch, is_ahead=is_ahead)
        # If nothing comes of it, a decode thread does not try again.
        fetch.is_for_application = is_ahead
        self._queue.remove(fetch)

    def _decode(self, fetch: CompletedFetch, *, is_ahead: bool) -> None:
        # Blocks have up to a quarter more than they were made for.
        most_bytes = fetch.reserved_bytes - fetch.reserved_bytes // 5 if is_ahead else None
        try:
            fetch.decode_next(self._decode_chunk_bytes, most_bytes)
            if most_bytes is not None and self._convert_ahead is not None:
                fetch.convert_ahead(self._convert_ahead, most_bytes)
        except MemoryError:
            if not is_ahead:
                raise
            logger.warning("%s: no memory to decode ahead", fetch.topic_partition)
        finally:
            with self._lock:
                self._publish(fetch)
                if is_ahead:  # the application thread need not be woken for its own
                    self._wakeup.signal()
            self._memory.announce_release()

    def _publish(self, fetch: CompletedFetch) -> None:
        """Under the lock."""
        fetch.publish()
        if fetch.is_dropped:
            fetch.chunk = None
        self._memory.end_decode(fetch)
        if fetch.is_dropped:
            self._memory.release(fetch)
        elif fetch.chunk is not None:
            if fetch.has_done_with_frame:
                self._memory.release_frame(fetch)
        elif fetch.stage is Stage.RAW and not fetch.is_for_application:
            self._queue.prepend(fetch)

    def close(self) -> None:
        """End all waits of decode threads. Under the lock."""
        self._is_closed = True
        self._queue.clear()

    def __repr__(self) -> str:
        return f"<DecodeScheduler {self._queue!r}>"
