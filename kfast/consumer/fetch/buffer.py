"""FetchBuffer: everything fetched and not yet handed out, and the memory it takes.

Owns the queues of `CompletedFetch` per partition, the errors waiting to be raised and the account
of their bytes. It is, with `SubscriptionState`, the only object that threads share. Three kinds of
threads come here; nobody does I/O or decodes under its lock, and nobody may hold it while taking
the lock of `SubscriptionState`:

* network thread: `fetch_sent`, `fetch_answered`, `fetch_failed`, `discard_stale`, `put_error`,
  `may_receive`, `room`;
* decode threads: `decode_one`, which claims one RAW fetch, decodes it and publishes the outcome;
* application thread: `heads`, `claim`, `decode`, `consume`, `wait`. It may claim a RAW fetch
  itself: whoever comes first decodes, never both.

**Memory.** Everything here counts in a `MemoryAccount`. Three gates keep the sum within the cap.
The fetcher sends no request whose answer is not expected to fit (`room`, which leaves a fifth of
the cap to decoded data). The receive gate (`may_receive`) leaves an answer in the socket while
there is no room for it. Decode threads do not work ahead when the outcome may not fit; the
application thread always may, since it hands the chunk out at once. Progress is always possible:
when the application has found nothing that it may take, one more answer is let in, however large
(KIP-74).

Who found no room is called back (``on_room``) when some was made; there is no polling and no pause.
"""

from __future__ import annotations

import threading
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Protocol

from kfast._runtime.memory_account import MemoryAccount
from kfast._runtime.wakeup_event import WakeupEvent
from kfast.consumer.fetch.completed_fetch import Stage
from kfast.consumer.pending_errors import PendingErrors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kfast._runtime.memory_account import ExpectedResponse, FrameMemory
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.errors import KafkaError
    from kfast.types import TopicPartition

YIELD_FRAME_BYTES: Final = 65_536
"""Largest answer after which the network thread lets a waiting application go first."""

YIELD_S: Final = 0.0005
"""How long it does so at most."""

_FIRST: Final = itemgetter(0)

DECODE_CHUNK_BYTES: Final = 8 << 20
"""Decoded bytes after which one chunk ends; a slice that decodes to more is handed out in parts."""


class Consumed(Protocol):
    """What was handed out of a fetch."""

    @property
    def fetch(self) -> CompletedFetch:
        """The fetch, in READY."""
        ...

    @property
    def count(self) -> int:
        """How many more rows of its chunk."""
        ...

    @property
    def is_used_up(self) -> bool:
        """Whether nothing of the chunk is left, so that it is released."""
        ...


class FetchBuffer:
    """Fetched data between the network and the application. Thread-safe.

    Parameters
    ----------
    buffer_memory_bytes : int
        The cap.
    on_room : callable
        Called, outside the lock, when room was made that somebody had asked for in vain. Must
        not block; usually it wakes the network thread.
    decode_chunk_bytes : int
        See `DECODE_CHUNK_BYTES`.

    Attributes
    ----------
    has_errors : bool
        Whether any error put with `put_error` waits to be raised.
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
        self._errors = PendingErrors()
        self.has_errors = False
        self._decode_chunk_bytes = decode_chunk_bytes
        self._lock = threading.Lock()
        self._arrived = WakeupEvent()
        self._work = threading.Condition(self._lock)
        self._taken = WakeupEvent()
        self._queues: dict[TopicPartition, deque[CompletedFetch]] = {}
        self._raw: deque[CompletedFetch] = deque()
        self._memory = MemoryAccount(buffer_memory_bytes, decode_chunk_bytes)
        self._wants_room = False
        self._has_released = False
        self._releases = 0
        self._is_hungry = False
        self._events = 0
        self._seen_events = 0
        self._is_closed = False

    # --- network thread ---------------------------------------------------------------------------

    def fetch_sent(self, expected_bytes: int) -> ExpectedResponse:
        """Note that a Fetch went out whose answer is expected to have about so many bytes.

        Returns
        -------
        ExpectedResponse
            To be given to `fetch_answered` or `fetch_failed`, once.
        """
        with self._lock:
            return self._memory.fetch_sent(expected_bytes)

    def fetch_answered(
        self, answer: ExpectedResponse, frame_bytes: int, fetches: Sequence[CompletedFetch]
    ) -> None:
        """Take what an answer brought, in the order in which it is to be handed out.

        When the answer is small and the application waits for it, this blocks for a moment, until
        the application waits for the next: who reads the end of a log wants the record, while what
        the network thread does next can wait, and the two cannot run at once under the GIL.

        Parameters
        ----------
        answer : ExpectedResponse
            As returned by `fetch_sent`.
        frame_bytes : int
            Size of the frame that the fetches are slices of.
        fetches : sequence of CompletedFetch
            Those with data or an error; may be empty.
        """
        is_yielding = False
        with self._lock:
            wanted = 0 if self._is_closed else len(fetches)
            frame_memory = self._memory.fetch_answered(answer, frame_bytes, wanted)
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
        self._tell_of_room()

    def fetch_failed(self, answer: ExpectedResponse) -> None:
        """Note that a Fetch will not be answered."""
        with self._lock:
            self._memory.fetch_ended(answer)
            self._has_released = True
        self._tell_of_room()

    def _add(self, fetches: Sequence[CompletedFetch], frame_memory: FrameMemory) -> None:
        for fetch in fetches:
            fetch.frame_memory = frame_memory
            self._queues.setdefault(fetch.topic_partition, deque()).append(fetch)
            if fetch.stage is Stage.RAW:
                self._raw.append(fetch)
        self._is_hungry = False
        # A waiting application decodes the first slice itself: waking a decode thread for it would
        # put one more change of threads between the socket and the user.
        work = frame_memory.slices - self._arrived.has_waiter
        if work:
            self._work.notify(work)
        self._events += 1

    def may_receive(self, frame_size: int) -> bool:
        """Return whether there is room for a frame that is about to be received.

        The network client's receive gate. True sets the bytes aside until the frame is handed in
        with `fetch_answered`; after False ``on_room`` tells when to ask again.
        """
        with self._lock:
            memory = self._memory
            if not memory.has_requests:
                return True  # not a Fetch answer
            if memory.admit(frame_size, may_overdraw=not memory.used or self._is_hungry):
                return True
            self._wants_room = True
            return False

    def room(self) -> int:
        """Return how many bytes of frames may still come; not less the answers under way.

        Negative or 0 means none.
        """
        with self._lock:
            return self._memory.frame_room()

    @property
    def releases(self) -> int:
        """A count that goes up whenever room was made."""
        return self._releases

    def request_room(self, releases: int) -> bool:
        """Have ``on_room`` called once when room is made.

        Parameters
        ----------
        releases : int
            What `releases` was before room was looked for in vain.

        Returns
        -------
        bool
            False when room has been made since then: look again instead.
        """
        with self._lock:
            self._wants_room = releases == self._releases
            return self._wants_room

    @property
    def needs_data(self) -> bool:
        """Whether a fetch is due even without room: nothing is there that may be handed out."""
        with self._lock:
            is_hungry = self._is_hungry and not self._memory.is_receiving
            return is_hungry or not self._memory.used

    def has_backlog(self, partitions: Iterable[TopicPartition], nbytes: int) -> bool:
        """Return whether any of these has two fetches or more with so many raw bytes buffered."""
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
        self._tell_of_room()

    def discard(self, fetch: CompletedFetch) -> None:
        """Drop a fetch that is out of date, and its partition's others, but nothing newer."""
        with self._lock:
            for other in list(self._queues.get(fetch.topic_partition, ())):
                if other.version <= fetch.version:
                    self._drop(other)
        self._tell_of_room()

    def put_error(
        self,
        error: KafkaError,
        *,
        key: object = None,
        partition: tuple[TopicPartition, int] | None = None,
        is_sticky: bool = False,
    ) -> None:
        """Have an error raised by the application's calls; see `PendingErrors.put`."""
        with self._lock:
            self._errors.put(error, key=key, partition=partition, is_sticky=is_sticky)
            self.has_errors = True
            self._signal()

    def clear_error(self, key: object) -> None:
        """Forget the error put under a key, if there is one."""
        with self._lock:
            self._errors.clear(key)
            self.has_errors = bool(self._errors)

    # --- decode threads ---------------------------------------------------------------------------

    def decode_one(self, timeout_s: float | None = None) -> bool:
        """Decode one fetch that nobody has claimed, waiting for one if need be.

        Returns
        -------
        bool
            False when the buffer is closed, or there was none in time.
        """
        with self._work:
            if not self._work.wait_for(self._has_work, timeout_s) or self._is_closed:
                return False
            fetch = self._raw.popleft()
            fetch.stage = Stage.DECODING
        self.decode(fetch, is_own=False)
        return True

    def _has_work(self) -> bool:
        return self._is_closed or (
            self._has_raw() and self._memory.may_decode_ahead(self._raw[0].raw_bytes)
        )

    def _has_raw(self) -> bool:
        raw = self._raw
        while raw and raw[0].stage is not Stage.RAW:
            raw.popleft()  # claimed by the application, or dropped
        return bool(raw)

    def decode(self, fetch: CompletedFetch, *, is_own: bool = True) -> None:
        """Decode the next chunk of a fetch this thread has claimed, and publish it.

        Parameters
        ----------
        fetch : CompletedFetch
            The fetch.
        is_own : bool
            Whether it is the application that decodes, which need not be told of the outcome.
        """
        try:
            fetch.decode_next(self._decode_chunk_bytes)
        finally:
            with self._lock:
                self._publish(fetch)
                if not is_own:
                    self._signal()
                tell = self._room_made()
            if tell is not None:
                tell()

    def _publish(self, fetch: CompletedFetch) -> None:
        fetch.publish()
        queue = self._queues.get(fetch.topic_partition)
        if queue is None or fetch not in queue:  # dropped meanwhile
            fetch.chunk = None
            self._finish(fetch)
            return
        if fetch.chunk is not None:
            self._memory.add_chunk(fetch.chunk.memory_bytes, fetch.raw_bytes)
            if fetch.has_done_with_frame:
                self._release_frame(fetch)
        elif fetch.stage is Stage.RAW:
            self._raw.appendleft(fetch)
            self._work.notify()

    # --- application thread -----------------------------------------------------------------------

    def heads(self) -> list[CompletedFetch]:
        """Return the foremost fetch of every partition, the longest waiting partition first.

        What arrives from now on ends the next `wait`.
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
            fetch.stage = Stage.DECODING
            if self._raw and self._raw[0] is fetch:
                self._raw.popleft()
            return True

    def consume(self, consumed: Iterable[Consumed]) -> None:
        """Release what was handed out; its partitions go to the end of the line."""
        with self._lock:
            for part in consumed:
                self._consume(part.fetch, part.count, is_used_up=part.is_used_up)
            tell = self._room_made()
        if tell is not None:
            tell()

    def _consume(self, fetch: CompletedFetch, rows: int, *, is_used_up: bool) -> None:
        if fetch.stage is not Stage.READY or fetch.chunk is None:
            return  # dropped meanwhile
        self._is_hungry = False
        fetch.rows_taken += rows
        queue = self._queues.pop(fetch.topic_partition)
        if is_used_up:
            self._release_chunk(fetch)
            if fetch.is_last_chunk:
                queue.remove(fetch)
                self._finish(fetch)
            else:
                fetch.stage = Stage.RAW
                self._raw.appendleft(fetch)
                self._work.notify()
        if queue:
            self._queues[fetch.topic_partition] = queue

    def rotate(self, fetch: CompletedFetch) -> None:
        """Put the partition of a fetch to the end of the line."""
        with self._lock:
            queue = self._queues.pop(fetch.topic_partition, None)
            if queue is not None:
                self._queues[fetch.topic_partition] = queue

    def fail(self, fetch: CompletedFetch, error: KafkaError) -> None:
        """Replace the chunk of a READY fetch by an error, which stands until the user seeks."""
        with self._lock:
            if fetch.stage is not Stage.READY:
                return
            self._release_chunk(fetch)
            fetch.fail(error)
        self._tell_of_room()

    def set_hungry(self) -> None:
        """Note that nothing buffered may be handed out, so that one more answer is let in."""
        with self._lock:
            if self._is_hungry:
                return  # who waits for room was told already
            self._is_hungry = self._has_released = True
        self._tell_of_room()

    def take_error(self, is_current: Callable[[TopicPartition, int], bool]) -> KafkaError | None:
        """Return the error to raise next, None if there is none.

        Parameters
        ----------
        is_current : callable
            Tells whether a partition still has a version; errors about others are dropped. It
            is called without the lock.
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
        """Wait until something happened since the last `heads`: data, chunk, error or `wakeup`.

        Returns
        -------
        bool
            False when the time is up.
        """
        with self._lock:
            self._taken.set()
            # Before the look, because `wakeup` takes no lock: what it does not see, the wait hears.
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
            self._raw.clear()
            self._signal()
            self._work.notify_all()

    @property
    def is_full(self) -> bool:
        """Whether the account has reached the cap."""
        return self._memory.used >= self.buffer_memory_bytes

    @property
    def bytes_used(self) -> int:
        """Bytes of frames and decoded chunks not yet handed out, frames being received included."""
        with self._lock:
            return self._memory.used

    # --- under the lock ---------------------------------------------------------------------------

    def _signal(self) -> None:
        self._events += 1
        self._arrived.set()

    def _release_chunk(self, fetch: CompletedFetch) -> None:
        if fetch.chunk is not None:
            self._memory.release_chunk(fetch.chunk.memory_bytes)
            self._has_released = True
            fetch.chunk = None
            fetch.converted = None

    def _drop(self, fetch: CompletedFetch) -> None:
        queue = self._queues[fetch.topic_partition]
        queue.remove(fetch)
        if not queue:
            del self._queues[fetch.topic_partition]
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

    def _tell_of_room(self) -> None:
        """Tell those who wait for room that some was made, if it was; not under the lock."""
        with self._lock:
            tell = self._room_made()
        if tell is not None:
            tell()

    def _room_made(self) -> Callable[[], None] | None:
        """Note room that was made; return what to call, not under the lock, if anything."""
        if not self._has_released:
            return None
        self._has_released = False
        self._releases += 1
        if self._raw and not self._arrived.has_waiter and self._has_raw():
            self._work.notify()
        if not self._wants_room:
            return None
        self._wants_room = False
        return self.on_room

    def __repr__(self) -> str:
        return (
            f"<FetchBuffer {self.bytes_used} of {self.buffer_memory_bytes} bytes,"
            f" {len(self._queues)} partitions>"
        )
