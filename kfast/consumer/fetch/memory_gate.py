"""MemoryGate: keeps a consumer's frames and decoded chunks within ``buffer_memory_bytes``.

Owns the `MemoryAccount`, and who waits for memory. Its lock is that of the `FetchBuffer`, because a
fetch and the memory that it takes change together; nothing else is called under it. Compiled.

Three gates keep the sum within the cap. The fetcher sends no request whose response is not expected
to fit (`room`, which leaves a fifth of the cap to decoded data). The receive gate (`may_receive`)
leaves a response in the socket while there is no room for it: backpressure. Decode threads do not
work ahead when the chunk may not fit (`may_decode`), and leave a chunk that takes more than was set
aside for it to the application thread. That one always may, since it decodes one chunk at a time
and hands it out at once.

Progress is always possible: when the application has found nothing deliverable, one more response
is admitted, however large (KIP-74); and while a call of it waits for another response, which comes
behind those of Fetch on its connection, so are they.

A request for room that fails is followed by a call of ``on_room`` when memory is released, so
neither thread polls for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._native.buffers import PoolShare, most_capacity
from kfast._runtime.memory_account import MemoryAccount
from kfast.consumer.fetch.completed_fetch import Stage

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from kfast._runtime.memory_account import ExpectedResponse, FrameMemory
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.consumer.fetch.decode_queue import DecodeQueue


class MemoryGate:
    """The memory of one consumer's fetches. Thread-safe, but for what is called under its lock.

    ``on_room`` is called, outside the lock, when memory is released after `may_receive` or
    `request_room` found none. It must not block; it wakes the network thread. Decode threads are
    woken through their queue.
    """

    __slots__ = (
        "_account",
        "_decode_queue",
        "_has_released",
        "_is_caller_waiting",
        "_lock",
        "_may_overdraw",
        "_on_room",
        "_pool_share",
        "_wants_room",
        "buffer_memory_bytes",
        "releases",
    )

    def __init__(
        self,
        lock: threading.Lock,
        buffer_memory_bytes: int,
        decode_chunk_bytes: int,
        decode_queue: DecodeQueue,
        on_room: Callable[[], None] | None,
    ) -> None:
        self.buffer_memory_bytes = buffer_memory_bytes
        self.releases = 0
        """A count that grows whenever memory is released."""
        self._lock = lock
        self._decode_queue = decode_queue
        self._on_room = on_room
        self._account = MemoryAccount(buffer_memory_bytes, decode_chunk_bytes)
        self._pool_share: PoolShare | None = PoolShare(buffer_memory_bytes)
        self._wants_room = False
        self._has_released = False
        # Responses may exceed the cap: one, as nothing was deliverable; those in flight.
        self._may_overdraw = self._is_caller_waiting = False

    # --- network thread ---------------------------------------------------------------------------

    def fetch_sent(self, expected_bytes: int) -> ExpectedResponse:
        """Note a sent Fetch; its outcome is noted with the result, once."""
        with self._lock:
            return self._account.fetch_sent(expected_bytes)

    def fetch_failed(self, expected: ExpectedResponse) -> None:
        """Note that there will be no response to a Fetch."""
        with self._lock:
            self._account.fetch_ended(expected)
            self._has_released = True
        self.announce_release()

    def may_receive(self, frame_size: int) -> bool:
        """Return whether there is room for a frame that is about to be received.

        The network client's receive gate. True sets the bytes aside until the response is added to
        the buffer; after False ``on_room`` is called when to call again.
        """
        with self._lock:
            account = self._account
            if not account.has_requests:
                return True  # not a Fetch response
            most = most_capacity(frame_size)
            may_overdraw = not account.used or self._may_overdraw or self._is_caller_waiting
            if account.admit(frame_size, most, may_overdraw=may_overdraw):
                return True
            self._wants_room = True
            return False

    def room(self) -> int:
        """Return the bytes left for frames, in-flight requests not counted; may be negative."""
        with self._lock:
            return self._account.frame_room()

    def request_room(self, releases: int) -> bool:
        """Have ``on_room`` called once when memory is released.

        False if it was since `releases` had the value given, which the caller reads before it
        looks for room: then it looks again instead.
        """
        with self._lock:
            self._wants_room = releases == self.releases
            return self._wants_room

    @property
    def needs_data(self) -> bool:
        """Whether to fetch even without room: nothing deliverable is buffered."""
        with self._lock:
            may_overdraw = self._may_overdraw and not self._account.is_receiving
            return may_overdraw or not self._account.used

    # --- application thread -----------------------------------------------------------------------

    def may_decode(self, fetch: CompletedFetch) -> bool:
        """Return whether the next chunk of a fetch is expected to fit."""
        with self._lock:
            return self.fits(fetch)

    def allow_overdraft(self) -> None:
        """Note that nothing buffered is deliverable, so that one more response is admitted."""
        with self._lock:
            if self._may_overdraw and not self._has_released:
                return  # ``on_room`` was called already
            self._may_overdraw = self._has_released = True
        self.announce_release()

    def note_caller(self, *, is_waiting: bool) -> None:
        """Note whether a call waits for another response than that of a Fetch.

        Meanwhile responses in flight are admitted, one by one; for want of room none is requested.
        Idempotent.
        """
        with self._lock:
            self._has_released |= is_waiting and not self._is_caller_waiting
            self._is_caller_waiting = is_waiting
        self.announce_release()

    @property
    def is_full(self) -> bool:
        """Whether the memory used has reached the cap."""
        return self._account.used >= self.buffer_memory_bytes

    @property
    def bytes_used(self) -> int:
        """Bytes of frames and decoded chunks not yet handed out, frames being received included.

        Read without the lock: one number, for metrics.
        """
        return self._account.used

    # --- any thread -------------------------------------------------------------------------------

    def announce_release(self) -> None:
        """Wake who waits for memory, if any was released; not under the lock."""
        with self._lock:
            if not self._has_released:
                return
            self._has_released = False
            self.releases += 1
            self._decode_queue.memory_released()
            is_wanted, self._wants_room = self._wants_room, False
        if not is_wanted or self._on_room is None:
            return
        try:
            self._on_room()
        except BaseException:  # of a signal handler: the next call tries again
            with self._lock:
                self._wants_room = self._has_released = True
            raise

    def close(self) -> None:
        """Let the pool keep no memory for this consumer any more."""
        self._pool_share = None

    # --- under the lock ---------------------------------------------------------------------------

    def fetch_answered(
        self, expected: ExpectedResponse, frame_bytes: int, memory_bytes: int, slices: int
    ) -> FrameMemory | None:
        """Count the frame of a response until so many slices are released; None without any."""
        memory_bytes = max(memory_bytes, frame_bytes)
        frame_memory = self._account.fetch_answered(expected, frame_bytes, memory_bytes, slices)
        self._has_released = True
        if frame_memory is not None:
            self._may_overdraw = False
        return frame_memory

    def fits(self, fetch: CompletedFetch) -> bool:
        """Return whether the next chunk of a fetch is expected to fit."""
        return bool(self._account.may_decode_ahead(fetch.raw_bytes))

    def begin_decode(self, fetch: CompletedFetch, *, is_ahead: bool) -> None:
        """Set memory aside for the next chunk of a fetch."""
        fetch.reserved_bytes = self._account.begin_decode(fetch.raw_bytes, is_ahead=is_ahead)

    def end_decode(self, fetch: CompletedFetch) -> None:
        """Release what was set aside, and count the chunk that was decoded, if there is one."""
        chunk = fetch.chunk
        nbytes = 0 if chunk is None else chunk.memory_bytes + fetch.column_bytes
        self._account.end_decode(fetch.reserved_bytes)
        if nbytes < fetch.reserved_bytes:
            self._has_released = True
        if chunk is not None:
            self._account.add_chunk(nbytes, fetch.raw_bytes)

    def add_columns(self, fetch: CompletedFetch) -> None:
        """Count the columns that were made of the chunk of a fetch."""
        if fetch.column_bytes:
            self._account.add_chunk(fetch.column_bytes, 0)

    def handed_out(self) -> None:
        """Note that something was deliverable: no response exceeds the cap any more."""
        self._may_overdraw = self._is_caller_waiting = False

    def release_columns(self, fetch: CompletedFetch) -> None:
        """Drop the columns of a fetch."""
        self._account.release_chunk(fetch.column_bytes)
        self._has_released = True
        fetch.column_bytes = 0
        fetch.converted = None

    def release_chunk(self, fetch: CompletedFetch) -> None:
        """Drop the chunk of a fetch, if it has one."""
        if fetch.chunk is not None:
            self.release_columns(fetch)
            self._account.release_chunk(fetch.chunk.memory_bytes)
            fetch.chunk = None

    def release_frame(self, fetch: CompletedFetch) -> None:
        """Drop the frame of a fetch, which other fetches may still need."""
        fetch.decoder = fetch.frame = None
        frame_memory, fetch.frame_memory = fetch.frame_memory, None
        if frame_memory is not None and self._account.release_slice(frame_memory):
            self._has_released = True

    def release(self, fetch: CompletedFetch) -> None:
        """Drop everything of a fetch, which enters DRAINED."""
        self.release_chunk(fetch)
        fetch.stage = Stage.DRAINED
        fetch.converted = None
        self.release_frame(fetch)

    def __repr__(self) -> str:
        return f"<MemoryGate {self._account!r}>"
