"""FetchBuffer: completed fetches not yet handed out, a queue per partition.

Owns the queues and the one lock under which fetches change, which its two parts share: the
`MemoryGate`, because memory is taken and released with a fetch, and the `DecodeScheduler`. No I/O
and no decoding happens under it, nor is another lock taken. Compiled, so that no signal handler
runs between two changes of one call: what an exception leaves is as before or as after. Code in
bytecode (``on_room``) is called when everything has changed.

* network thread: `fetch_answered`, `discard_stale`, `has_backlog`, `has_data`, `has_failed`, and
  the gates of ``memory``;
* decode threads: ``decoding.decode_one``;
* application thread: `heads`, `failed_heads`, `consume`, `converted`, `fail`, `rotate`, `discard`,
  and ``decoding.claim`` and ``decode``.
"""

from __future__ import annotations

import threading
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from kfast.consumer.fetch.completed_fetch import Stage
from kfast.consumer.fetch.decode_queue import DecodeQueue
from kfast.consumer.fetch.decode_scheduler import DecodeScheduler
from kfast.consumer.fetch.memory_gate import MemoryGate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kfast._native.record_index import RecordIndex
    from kfast._runtime.memory_account import ExpectedResponse
    from kfast.consumer.application_wakeup import ApplicationWakeup
    from kfast.consumer.fetch.completed_fetch import CompletedFetch, Consumed
    from kfast.errors import KafkaError
    from kfast.types import TopicPartition

HAND_OVER_FRAME_BYTES: Final = 65_536
"""Largest response after which the network thread yields to a waiting application thread."""

DECODE_CHUNK_BYTES: Final = 8 << 20
"""Decoded bytes after which one chunk ends; a larger slice is handed out in several."""

_FIRST: Final = itemgetter(0)


class FetchBuffer:
    """Fetched data between the network and the application thread. Thread-safe.

    ``on_room`` is that of `MemoryGate`, ``convert_ahead`` that of `DecodeScheduler`.
    """

    def __init__(
        self,
        buffer_memory_bytes: int,
        wakeup: ApplicationWakeup,
        *,
        on_room: Callable[[], None] | None = None,
        convert_ahead: Callable[[CompletedFetch, RecordIndex, int], Any] | None = None,
        decode_chunk_bytes: int = DECODE_CHUNK_BYTES,
    ) -> None:
        self._lock = lock = threading.Lock()
        self._wakeup = wakeup
        self._queues: dict[TopicPartition, deque[CompletedFetch]] = {}
        self._decode_queue = queue = DecodeQueue(wakeup)
        self.memory = MemoryGate(lock, buffer_memory_bytes, decode_chunk_bytes, queue, on_room)
        self.decoding = DecodeScheduler(
            lock, queue, self.memory, wakeup, decode_chunk_bytes, convert_ahead
        )
        self._is_closed = False

    # --- network thread ---------------------------------------------------------------------------

    def fetch_answered(
        self,
        expected: ExpectedResponse,
        frame_bytes: int,
        fetches: Sequence[CompletedFetch],
        memory_bytes: int = 0,
    ) -> None:
        """Add the fetches of a response, those with data or an error, in the order of delivery.

        ``expected`` is of `MemoryGate.fetch_sent`; ``memory_bytes`` is what the frame takes if that
        is more than its size.

        When the response is small and the application thread waits for it, this blocks briefly,
        until the application thread waits again: at the end of a log latency counts, while what the
        network thread does next can wait, and the two cannot run at once under the GIL.
        """
        is_handing_over = False
        with self._lock:
            slices = 0 if self._is_closed else len(fetches)
            frame_memory = self.memory.fetch_answered(expected, frame_bytes, memory_bytes, slices)
            if frame_memory is not None:
                for fetch in fetches:
                    fetch.frame_memory = frame_memory
                    self._queues.setdefault(fetch.topic_partition, deque()).append(fetch)
                    if fetch.stage is Stage.RAW:
                        self._decode_queue.append(fetch)
                self._decode_queue.data_arrived(slices)
                is_handing_over = self._wakeup.data_arrived(
                    may_hand_over=frame_bytes <= HAND_OVER_FRAME_BYTES
                )
        if is_handing_over:
            self._wakeup.hand_over()
        self.memory.announce_release()

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
        self.memory.announce_release()

    # --- application thread -----------------------------------------------------------------------

    def heads(self) -> list[CompletedFetch]:
        """Return the first fetch of every partition, the longest waiting partition first.

        Data that arrives from now on ends the next wait.
        """
        with self._lock:
            self._wakeup.look()
            return list(map(_FIRST, self._queues.values()))

    def failed_heads(self) -> list[CompletedFetch]:
        """Return the heads that are errors. Unlike `heads` it has no effect on a wait."""
        with self._lock:
            return [queue[0] for queue in self._queues.values() if queue[0].stage is Stage.FAILED]

    def consume(self, consumed: Iterable[Consumed]) -> None:
        """Release what was handed out; its partitions go to the end of the queue.

        An error stands behind the rows until the user seeks.
        """
        with self._lock:
            for rows in consumed:
                self._consume(rows.fetch, rows.count, is_used_up=rows.is_used_up, rest=rows.rest)
                if rows.error is not None:
                    self._fail(rows.fetch, rows.error)
        self.memory.announce_release()

    def converted(self, fetch: CompletedFetch, converted: Any) -> None:
        """Note what the application thread has made of the chunk of a READY fetch."""
        with self._lock:
            if fetch.stage is Stage.READY:
                fetch.converted = converted
                fetch.column_bytes = converted.column_bytes
                self.memory.add_columns(fetch)

    def _consume(
        self, fetch: CompletedFetch, rows: int, *, is_used_up: bool, rest: int | None
    ) -> None:
        if fetch.stage is not Stage.READY or fetch.chunk is None:
            return  # dropped meanwhile
        self.memory.handed_out()
        fetch.rows_taken += rows
        queue = self._queues.pop(fetch.topic_partition)
        if is_used_up:
            if rest is not None:  # of the chunk, which was converted in part
                self.memory.release_columns(fetch)
                fetch.first_row, fetch.rows_taken = rest, 0
                self._queues[fetch.topic_partition] = queue
                return
            if fetch.is_last_chunk:
                queue.remove(fetch)
                self.memory.release(fetch)
            else:
                self.memory.release_chunk(fetch)
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
        self.memory.announce_release()

    def _fail(self, fetch: CompletedFetch, error: KafkaError) -> None:
        if fetch.stage is Stage.READY:
            self.memory.release_chunk(fetch)
            fetch.fail(error)

    def discard(self, fetch: CompletedFetch) -> None:
        """Drop a stale fetch, and its partition's others, but nothing newer."""
        with self._lock:
            for other in list(self._queues.get(fetch.topic_partition, ())):
                if other.version <= fetch.version:
                    self._drop(other)
        self.memory.announce_release()

    # --- any thread -------------------------------------------------------------------------------

    def close(self) -> None:
        """Drop everything, end every wait; nothing can be added afterwards."""
        with self._lock:
            self._is_closed = True
            for queue in list(self._queues.values()):
                for fetch in list(queue):
                    self._drop(fetch)
            self.decoding.close()
            self._wakeup.end()
        self.memory.close()

    def _drop(self, fetch: CompletedFetch) -> None:
        """Under the lock."""
        queue = self._queues[fetch.topic_partition]
        queue.remove(fetch)
        if not queue:
            del self._queues[fetch.topic_partition]
        self._decode_queue.remove(fetch)
        fetch.is_dropped = True
        if fetch.stage is not Stage.DECODING:  # else the claimer still reads the frame
            self.memory.release(fetch)

    def __repr__(self) -> str:
        memory = self.memory
        return (
            f"<FetchBuffer {memory.bytes_used} of {memory.buffer_memory_bytes} bytes,"
            f" {len(self._queues)} partitions>"
        )
