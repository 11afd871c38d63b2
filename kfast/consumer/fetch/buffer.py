"""FetchBuffer: completed fetches not yet handed out, within the byte budget.

Owns the queues of `CompletedFetch` per partition, the errors waiting to be raised and the account
of their bytes. Three kinds of threads call it; no I/O and no decoding happens under its lock, and a
thread that holds it does not take the lock of `SubscriptionState`. Compiled, so that no signal
handler runs between two changes of one call: what an exception leaves is as before or as after.
Code in bytecode (``on_room``) is called when everything has changed.

* network thread: `fetch_sent`, `fetch_answered`, `fetch_failed`, `discard_stale`, `put_error`,
  `may_receive`, `room`;
* decode threads: `decode_one`, which claims one RAW fetch, decodes it and publishes the outcome;
* application thread: `heads`, `claim`, `decode`, `consume`, `wait`. It may claim a RAW fetch
  itself: the first to claim it decodes, never both.

**Memory.** Everything here counts in a `MemoryAccount`. Three gates keep the sum within the cap.
The fetcher sends no request whose response is not expected to fit (`room`, which leaves a fifth of
the cap to decoded data). The receive gate (`may_receive`) leaves a response in the socket while
there is no room for it: backpressure. Decode threads do not work ahead when the chunk may not fit,
and leave a chunk that takes more than was set aside for it to the application thread. That one
always may, since it decodes one chunk at a time and hands it out at once. Progress is always
possible: when the application has found nothing deliverable, one more response is admitted, however
large (KIP-74); and while a call of it waits for another response, which comes behind those of Fetch
on its connection, so are they.

A request for room that fails is followed by a call of ``on_room`` when memory is released, so
neither thread polls for it.
"""

from __future__ import annotations

import threading
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from kfast._base.logs import get_logger
from kfast._native.buffers import PoolShare, most_capacity
from kfast._runtime.memory_account import MemoryAccount
from kfast._runtime.wakeup_event import WakeupEvent
from kfast.consumer.fetch.completed_fetch import Stage
from kfast.consumer.fetch.decode_queue import DecodeQueue
from kfast.consumer.pending_errors import PendingErrors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kfast._native.record_index import RecordIndex
    from kfast._runtime.memory_account import ExpectedResponse, FrameMemory
    from kfast.consumer.fetch.completed_fetch import CompletedFetch, Consumed
    from kfast.errors import KafkaError
    from kfast.types import TopicPartition

logger = get_logger(__name__)

YIELD_FRAME_BYTES: Final = 65_536
"""Largest response after which the network thread yields to a waiting application thread."""

YIELD_S: Final = 0.0005
"""Longest such yield."""

_FIRST: Final = itemgetter(0)

DECODE_CHUNK_BYTES: Final = 8 << 20
"""Decoded bytes after which one chunk ends; a larger slice is handed out in several."""


class FetchBuffer:
    """Fetched data between the network and the application thread. Thread-safe.

    ``on_room`` is called, outside the lock, when memory is released after `may_receive` or
    `request_room` found none. It must not block; it wakes the network thread.
    """

    def __init__(
        self,
        buffer_memory_bytes: int,
        *,
        on_room: Callable[[], None] | None = None,
        decode_chunk_bytes: int = DECODE_CHUNK_BYTES,
    ) -> None:
        self.buffer_memory_bytes = buffer_memory_bytes
        self.on_room = on_room
        self.convert_ahead: Callable[[CompletedFetch, RecordIndex, int], Any] | None = None
        """Converts what decode threads decode, if it may run there."""
        self.word_error: Callable[[KafkaError], KafkaError] = lambda error: error
        """Completes the text of an error of `put_error`; network thread."""
        self._errors = PendingErrors()
        self.has_errors = False  # whether an error of `put_error` is to be raised
        self._decode_chunk_bytes = decode_chunk_bytes
        self._lock = threading.Lock()
        self._arrived = WakeupEvent()
        self._taken = WakeupEvent()
        self._queues: dict[TopicPartition, deque[CompletedFetch]] = {}
        self._decode_queue = DecodeQueue()
        self._memory = MemoryAccount(buffer_memory_bytes, decode_chunk_bytes)
        self._pool_share: PoolShare | None = PoolShare(buffer_memory_bytes)
        self._wants_room = False
        self._has_released = False
        self._releases = 0
        # Responses may exceed the cap: one, as nothing was deliverable; those in flight.
        self._may_overdraw = self._is_caller_waiting = False
        self._events = 0
        self._seen_events = 0
        self._is_closed = False

    # --- network thread ---------------------------------------------------------------------------

    def fetch_sent(self, expected_bytes: int) -> ExpectedResponse:
        """Note a sent Fetch; the result is for `fetch_answered` or `fetch_failed`, once."""
        with self._lock:
            return self._memory.fetch_sent(expected_bytes)

    def fetch_answered(
        self,
        expected: ExpectedResponse,
        frame_bytes: int,
        fetches: Sequence[CompletedFetch],
        memory_bytes: int = 0,
    ) -> None:
        """Add the fetches of a response, those with data or an error, in the order of delivery.

        ``memory_bytes`` is what the frame takes if that is more than its size.

        When the response is small and the application thread waits for it, this blocks briefly,
        until the application thread waits again: at the end of a log latency counts, while what the
        network thread does next can wait, and the two cannot run at once under the GIL.
        """
        is_yielding = False
        with self._lock:
            slices = 0 if self._is_closed else len(fetches)
            frame_memory = self._memory.fetch_answered(
                expected, frame_bytes, max(memory_bytes, frame_bytes), slices
            )
            self._has_released = True
            if frame_memory is not None:
                self._add(fetches, frame_memory)
                is_yielding = frame_bytes <= YIELD_FRAME_BYTES and self._arrived.claim_waiter()
                if is_yielding:
                    self._taken.prepare()
                else:
                    self._arrived.set()
        if is_yielding:
            self._arrived.release_and_wait(self._taken, YIELD_S)
        self._notify_room()

    def fetch_failed(self, expected: ExpectedResponse) -> None:
        """Note that there will be no response to a Fetch."""
        with self._lock:
            self._memory.fetch_ended(expected)
            self._has_released = True
        self._notify_room()

    def _add(self, fetches: Sequence[CompletedFetch], frame_memory: FrameMemory) -> None:
        for fetch in fetches:
            fetch.frame_memory = frame_memory
            self._queues.setdefault(fetch.topic_partition, deque()).append(fetch)
            if fetch.stage is Stage.RAW:
                self._decode_queue.append(fetch)
        self._may_overdraw = False
        # A waiting application decodes the first slice itself: waking a decode thread for it would
        # put one more change of threads between the socket and the user.
        self._decode_queue.notify(frame_memory.slices - self._arrived.has_waiter)
        self._events += 1

    def may_receive(self, frame_size: int) -> bool:
        """Return whether there is room for a frame that is about to be received.

        The network client's receive gate. True sets the bytes aside until the frame is handed in
        with `fetch_answered`; after False ``on_room`` is called when to call again.
        """
        with self._lock:
            memory = self._memory
            if not memory.has_requests:
                return True  # not a Fetch response
            most = most_capacity(frame_size)
            may_overdraw = not memory.used or self._may_overdraw or self._is_caller_waiting
            if memory.admit(frame_size, most, may_overdraw=may_overdraw):
                return True
            self._wants_room = True
            return False

    def room(self) -> int:
        """Return the bytes left for frames, in-flight requests not counted; may be negative."""
        with self._lock:
            return self._memory.frame_room()

    @property
    def releases(self) -> int:
        """A count that grows whenever memory is released."""
        return self._releases

    def request_room(self, releases: int) -> bool:
        """Have ``on_room`` called once when memory is released.

        False if it was since `releases` had the value given, which the caller reads before it
        looks for room: then it looks again instead.
        """
        with self._lock:
            self._wants_room = releases == self._releases
            return self._wants_room

    @property
    def needs_data(self) -> bool:
        """Whether to fetch even without room: nothing deliverable is buffered."""
        with self._lock:
            may_overdraw = self._may_overdraw and not self._memory.is_receiving
            return may_overdraw or not self._memory.used

    def has_backlog(self, partitions: Iterable[TopicPartition], nbytes: int) -> bool:
        """Return whether any of these has buffered several fetches with so many raw bytes."""
        with self._lock:
            for tp in partitions:
                queue = self._queues.get(tp, ())
                if len(queue) > 1 and sum(fetch.raw_bytes for fetch in queue) >= nbytes:
                    return True
            return False

    def has_data(self, tp: TopicPartition) -> bool:
        """Return whether anything is buffered for a partition."""
        with self._lock:
            return tp in self._queues

    def has_failed(self, tp: TopicPartition) -> bool:
        """Return whether the buffered data of a partition ends in an error that needs a seek."""
        with self._lock:
            return any(fetch.stage is Stage.FAILED for fetch in self._queues.get(tp, ()))

    def discard_stale(self, versions: Mapping[TopicPartition, int | None]) -> None:
        """Drop what was fetched under another version than the one given (None: everything).

        Network thread only: what it fetches after it has looked up the versions is newer.
        """
        with self._lock:
            for tp, version in versions.items():
                for fetch in list(self._queues.get(tp, ())):
                    if fetch.version != version:
                        self._drop(fetch)
        self._notify_room()

    def discard(self, fetch: CompletedFetch) -> None:
        """Drop a stale fetch, and its partition's others, but nothing newer."""
        with self._lock:
            for other in list(self._queues.get(fetch.topic_partition, ())):
                if other.version <= fetch.version:
                    self._drop(other)
        self._notify_room()

    def put_error(
        self,
        error: KafkaError,
        *,
        key: object = None,
        partition: tuple[TopicPartition, int] | None = None,
        is_sticky: bool = False,
    ) -> None:
        """Have an error raised on the application thread; see `PendingErrors.put`."""
        error = self.word_error(error)
        with self._lock:
            self._errors.put(error, key=key, partition=partition, is_sticky=is_sticky)
            self.has_errors = True
            self._signal()

    def clear_error(self, key: object) -> None:
        """Drop the error of a key, if there is one."""
        with self._lock:
            self._errors.clear(key)
            self.has_errors = bool(self._errors)

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
        self.decode(fetch, is_own=False)
        return True

    def _claim_ahead(self, arrived: WakeupEvent) -> CompletedFetch | None:
        """Claim the next RAW fetch; without one ``arrived`` is set when there may be one."""
        with self._lock:
            fetch = self._decode_queue.first
            if self._is_closed:
                return None
            if fetch is None or not self._memory.may_decode_ahead(fetch.raw_bytes):
                self._decode_queue.add_idle(arrived)
                return None
            self._decode_queue.remove(fetch)
            self._begin_decode(fetch, is_ahead=True)
            return fetch

    def _has_timed_out(self, arrived: WakeupEvent) -> bool:
        """End a wait; return whether it was not notified."""
        with self._lock:
            return self._decode_queue.remove_idle(arrived)

    def decode(self, fetch: CompletedFetch, *, is_own: bool = True) -> None:
        """Decode the next chunk of a fetch this thread has claimed, and publish it.

        The application thread, which decodes its own, need not be woken up.

        Raises
        ------
        MemoryError
            On the application thread. The fetch can be claimed again.
        """
        # Blocks have up to a quarter more than they were made for.
        most_bytes = None if is_own else fetch.reserved_bytes - fetch.reserved_bytes // 5
        try:
            fetch.decode_next(self._decode_chunk_bytes, most_bytes)
            if most_bytes is not None and self.convert_ahead is not None:
                fetch.convert_ahead(self.convert_ahead, most_bytes)
        except MemoryError:
            if is_own:
                raise
            logger.warning("%s: no memory to decode ahead", fetch.topic_partition)
        finally:
            with self._lock:
                self._publish(fetch)
                if not is_own:
                    self._signal()
            self._notify_room()

    def _begin_decode(self, fetch: CompletedFetch, *, is_ahead: bool) -> None:
        fetch.stage = Stage.DECODING
        fetch.reserved_bytes = self._memory.begin_decode(fetch.raw_bytes, is_ahead=is_ahead)
        # If nothing comes of it, a decode thread does not try again.
        fetch.is_for_application = is_ahead

    def _publish(self, fetch: CompletedFetch) -> None:
        fetch.publish()
        self._memory.end_decode(fetch.reserved_bytes)
        nbytes = 0 if fetch.chunk is None else fetch.chunk.memory_bytes + fetch.column_bytes
        if nbytes < fetch.reserved_bytes:
            self._has_released = True
        queue = self._queues.get(fetch.topic_partition)
        if queue is None or fetch not in queue:  # dropped meanwhile
            fetch.chunk = None
            self._finish(fetch)
            return
        if fetch.chunk is not None:
            self._memory.add_chunk(nbytes, fetch.raw_bytes)
            if fetch.has_done_with_frame:
                self._release_frame(fetch)
        elif fetch.stage is Stage.RAW and not fetch.is_for_application:
            self._decode_queue.prepend(fetch)

    # --- application thread -----------------------------------------------------------------------

    def heads(self) -> list[CompletedFetch]:
        """Return the first fetch of every partition, the longest waiting partition first.

        Data that arrives from now on ends the next `wait`.
        """
        with self._lock:
            self._seen_events = self._events
            return list(map(_FIRST, self._queues.values()))

    def failed_heads(self) -> list[CompletedFetch]:
        """Return the heads that are errors. Unlike `heads` it has no effect on `wait`."""
        with self._lock:
            return [queue[0] for queue in self._queues.values() if queue[0].stage is Stage.FAILED]

    def claim(self, fetch: CompletedFetch) -> bool:
        """Claim a RAW fetch for `decode`; False if another thread was first or it is not RAW."""
        with self._lock:
            if fetch.stage is not Stage.RAW:
                return False
            self._begin_decode(fetch, is_ahead=False)
            self._decode_queue.remove(fetch)
            return True

    def may_decode(self, fetch: CompletedFetch) -> bool:
        """Return whether the next chunk of a fetch is expected to fit."""
        with self._lock:
            return bool(self._memory.may_decode_ahead(fetch.raw_bytes))

    def consume(self, consumed: Iterable[Consumed]) -> None:
        """Release what was handed out; its partitions go to the end of the queue.

        An error stands behind the rows until the user seeks.
        """
        with self._lock:
            for rows in consumed:
                self._consume(rows.fetch, rows.count, is_used_up=rows.is_used_up, rest=rows.rest)
                if rows.error is not None:
                    self._fail(rows.fetch, rows.error)
        self._notify_room()

    def converted(self, fetch: CompletedFetch, converted: Any) -> None:
        """Note what the application thread has made of the chunk of a READY fetch."""
        with self._lock:
            if fetch.stage is Stage.READY:
                fetch.converted = converted
                fetch.column_bytes = converted.column_bytes
                if converted.column_bytes:
                    self._memory.add_chunk(converted.column_bytes, 0)

    def _consume(
        self, fetch: CompletedFetch, rows: int, *, is_used_up: bool, rest: int | None
    ) -> None:
        if fetch.stage is not Stage.READY or fetch.chunk is None:
            return  # dropped meanwhile
        self._may_overdraw = self._is_caller_waiting = False
        fetch.rows_taken += rows
        queue = self._queues.pop(fetch.topic_partition)
        if is_used_up:
            if rest is not None:  # of the chunk, which was converted in part
                self._release_columns(fetch)
                fetch.first_row, fetch.rows_taken = rest, 0
                self._queues[fetch.topic_partition] = queue
                return
            self._release_chunk(fetch)
            if fetch.is_last_chunk:
                queue.remove(fetch)
                self._finish(fetch)
            else:
                fetch.stage = Stage.RAW
                self._decode_queue.prepend(fetch)
        if queue:
            self._queues[fetch.topic_partition] = queue

    def rotate(self, fetch: CompletedFetch) -> None:
        """Move the partition of a fetch to the end of the queue."""
        with self._lock:
            queue = self._queues.pop(fetch.topic_partition, None)
            if queue is not None:
                self._queues[fetch.topic_partition] = queue

    def fail(self, fetch: CompletedFetch, error: KafkaError) -> None:
        """Replace the chunk of a READY fetch by an error, which stands until the user seeks."""
        with self._lock:
            self._fail(fetch, error)
        self._notify_room()

    def _fail(self, fetch: CompletedFetch, error: KafkaError) -> None:
        if fetch.stage is Stage.READY:
            self._release_chunk(fetch)
            fetch.fail(error)

    def allow_overdraft(self) -> None:
        """Note that nothing buffered is deliverable, so that one more response is admitted."""
        with self._lock:
            if self._may_overdraw and not self._has_released:
                return  # ``on_room`` was called already
            self._may_overdraw = self._has_released = True
        self._notify_room()

    def note_caller(self, *, is_waiting: bool) -> None:
        """Note whether a call waits for another response than that of a Fetch.

        Meanwhile responses in flight are admitted, one by one; for want of room none is requested.
        Idempotent.
        """
        with self._lock:
            self._has_released |= is_waiting and not self._is_caller_waiting
            self._is_caller_waiting = is_waiting
        self._notify_room()

    def take_error(self, is_current: Callable[[TopicPartition, int], bool]) -> KafkaError | None:
        """Return the error to raise next, None if there is none.

        ``is_current`` returns whether a partition still has a version; errors about others are
        dropped. It is called without the lock.
        """
        with self._lock:
            entries = self._errors.entries()
        for entry in entries:
            is_void = entry.partition is not None and not is_current(*entry.partition)
            with self._lock:
                if is_void:
                    self._errors.drop(entry)
                else:
                    self._errors.raised(entry)
                self.has_errors = bool(self._errors)
            if not is_void:
                return entry.error
        return None

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for data, a chunk, an error or `wakeup` since the last `heads`; False: timed out."""
        with self._lock:
            self._taken.set()
            # Before the check, because `wakeup` takes no lock: a later one ends the wait.
            self._arrived.prepare()
            is_due = self._events != self._seen_events or self._is_closed
        self._arrived.wait(0 if is_due else timeout_s)
        return self._events != self._seen_events

    # --- any thread -------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """End the current or next `wait`. Also from a signal handler, so it waits for no lock."""
        self._signal()

    def close(self) -> None:
        """Drop everything, end every wait; nothing can be added afterwards."""
        with self._lock:
            self._is_closed = True
            for queue in list(self._queues.values()):
                for fetch in list(queue):
                    self._drop(fetch)
            self._decode_queue.clear()
            self._signal()
        self._pool_share = None

    @property
    def is_full(self) -> bool:
        """Whether the memory used has reached the cap."""
        return self._memory.used >= self.buffer_memory_bytes

    @property
    def bytes_used(self) -> int:
        """Bytes of frames and decoded chunks not yet handed out, frames being received included.

        Read without the lock: one number, for metrics.
        """
        return self._memory.used

    # --- under the lock ---------------------------------------------------------------------------

    def _signal(self) -> None:
        self._events += 1
        self._arrived.set()

    def _release_chunk(self, fetch: CompletedFetch) -> None:
        if fetch.chunk is not None:
            self._release_columns(fetch)
            self._memory.release_chunk(fetch.chunk.memory_bytes)
            fetch.chunk = None

    def _release_columns(self, fetch: CompletedFetch) -> None:
        self._memory.release_chunk(fetch.column_bytes)
        self._has_released = True
        fetch.column_bytes = 0
        fetch.converted = None

    def _drop(self, fetch: CompletedFetch) -> None:
        queue = self._queues[fetch.topic_partition]
        queue.remove(fetch)
        if not queue:
            del self._queues[fetch.topic_partition]
        self._decode_queue.remove(fetch)
        if fetch.stage is not Stage.DECODING:  # else the claimer still reads the frame
            self._release_chunk(fetch)
            self._finish(fetch)

    def _finish(self, fetch: CompletedFetch) -> None:
        fetch.stage = Stage.DRAINED
        fetch.converted = None
        self._release_frame(fetch)

    def _release_frame(self, fetch: CompletedFetch) -> None:
        fetch.decoder = fetch.frame = None
        frame_memory, fetch.frame_memory = fetch.frame_memory, None
        if frame_memory is not None and self._memory.release_slice(frame_memory):
            self._has_released = True

    # --- room -------------------------------------------------------------------------------------

    def _notify_room(self) -> None:
        """Call ``on_room`` if memory was released and room was requested; not under the lock."""
        with self._lock:
            if not self._has_released:
                return
            self._has_released = False
            self._releases += 1
            if self._decode_queue and not self._arrived.has_waiter:
                self._decode_queue.notify(1)
            is_wanted, self._wants_room = self._wants_room, False
        if not is_wanted or self.on_room is None:
            return
        try:
            self.on_room()
        except BaseException:  # of a signal handler: the next call of this buffer tries again
            with self._lock:
                self._wants_room = self._has_released = True
            raise

    def __repr__(self) -> str:
        return (
            f"<FetchBuffer {self.bytes_used} of {self.buffer_memory_bytes} bytes,"
            f" {len(self._queues)} partitions>"
        )
