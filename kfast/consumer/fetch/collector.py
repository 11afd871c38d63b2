"""FetchCollector: collects deliverable records from the `FetchBuffer` for one ``poll``.

Owns the order of partitions, the row limit of a poll, the moment positions advance, and the
alternation between records and errors. Application thread only.

Taking records is a transaction. One `collect` has two phases:

1. Take the next chunk of every partition that has one, decoding on this thread what no decode
   thread has claimed, convert it (deserializers run here, without any lock), and have the caller
   make of the rows what it returns (interceptors run here). Whatever raises changes nothing: the
   same rows are taken again.
2. Advance the positions of all of them under the lock of `SubscriptionState`, release the chunks
   and store the result as `undelivered`: in compiled code, where no signal handler can run. If a
   partition was reset or revoked since phase 1 nothing is advanced, and phase 1 begins again.

The caller clears `undelivered` with the last instruction before it returns the records. What is
still there in a later call has not arrived: an exception came out instead.

An error has an offset: the records before it are handed out first, then it is raised, and raised
again by every later call until the user seeks. Other partitions' records are still delivered: calls
alternate between records and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from kfast.consumer.fetch.completed_fetch import Stage
from kfast.consumer.subscription_state import Delivery
from kfast.consumer.topic_partition_state import AdvancePosition
from kfast.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from kfast._native.record_index import RecordIndex
    from kfast.consumer.error_mailbox import ErrorMailbox
    from kfast.consumer.fetch.buffer import FetchBuffer
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.consumer.subscription_state import SubscriptionState
    from kfast.types import TopicPartition

OWN_DECODE_BYTES: Final = 8 << 20
"""Raw bytes that one collect decodes itself before it returns what it has."""


class Rows(Protocol):
    """Converted records of one partition (``PartitionRecords``).

    ``next_offset`` is the position after the rows were handed out: that of the chunk for its last
    rows, that of the row which cannot be handed out for the rows before it.
    """

    @property
    def next_offset(self) -> int:
        """The position after these rows were handed out."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


R = TypeVar("R", bound=Rows)
R_co = TypeVar("R_co", bound=Rows, covariant=True)


class Converted(Protocol[R_co]):
    """A converted chunk (``BuildResult``)."""

    @property
    def records(self) -> R_co:
        """The rows before the error, all rows when there is none."""
        ...

    @property
    def error(self) -> KafkaError | None:
        """Error of the row after them, which cannot be handed out."""
        ...

    @property
    def rest(self) -> int | None:
        """The row of the chunk to go on with: the others would have taken too much memory."""
        ...


class _Collected(AdvancePosition, Generic[R]):
    """Rows of one partition, between the two phases; ``error`` is that of the row after them."""

    __slots__ = ("converted", "count", "error", "fetch", "is_used_up", "rest", "rows", "start")

    def __init__(
        self,
        fetch: CompletedFetch,
        converted: Converted[R],
        rows: R,
        start: int,
        count: int,
        leader_epoch: int | None,
        *,
        is_used_up: bool,
        rest: int | None,
        error: KafkaError | None,
    ) -> None:
        super().__init__(fetch.topic_partition, fetch.version, rows.next_offset, leader_epoch)
        self.fetch = fetch
        self.converted = converted
        self.rows = rows
        self.start = start
        self.count = count
        self.is_used_up = is_used_up
        self.rest = rest
        self.error = error

    @property
    def is_next(self) -> bool:
        """Whether nothing was taken of the fetch since: an interceptor may poll, too."""
        return self.fetch.converted is self.converted and self.fetch.rows_taken == self.start


class Undelivered(Generic[R]):
    """What a call is about to return, behind the positions already, made of ``collected``."""

    __slots__ = ("collected", "records")

    def __init__(self, records: Any, collected: Sequence[_Collected[R]] = ()) -> None:
        self.records = records
        self.collected = collected


class FetchCollector(Generic[R]):
    """Hands out the records of a fetch buffer, and raises the errors of a mailbox.

    ``convert`` is called once per decoded chunk, also when its rows are handed out over several
    calls, and may run user code (deserializers). None: what it needs is being looked up, and it is
    called again. A retriable error of it is raised if there is nothing else to return.
    """

    def __init__(
        self,
        subscriptions: SubscriptionState,
        fetch_buffer: FetchBuffer,
        errors: ErrorMailbox,
        convert: Callable[[CompletedFetch, RecordIndex], Converted[R] | None],
    ) -> None:
        self._subscriptions = subscriptions
        self._buffer = fetch_buffer
        self._errors = errors
        self._convert = convert
        self._has_error_next = False
        self.undelivered: Undelivered[R] | None = None

    def collect(
        self,
        max_records: int | None = None,
        waiting: Collection[TopicPartition] = (),
        prepare: Callable[[dict[TopicPartition, R]], Any] | None = None,
    ) -> Any:
        """Return the rows of the partitions whose position advanced, without waiting; None: none.

        They are what ``prepare`` makes of them, by default ``{partition: rows}``.

        Nothing of the partitions that are ``waiting``, whose earlier rows are not handed out yet.
        Without rows where only the position advanced: aborted transactions, control batches,
        compacted tails. More may be buffered already, so call again before waiting.

        Raises
        ------
        KafkaError
            One that was found by the call before, or one that came up now with nothing to return.
        MemoryError
            There was no memory to decode a fetch, and nothing else to return.
        """
        if self._has_error_next:
            self._has_error_next = False
            self._raise_next_error()
        while True:
            collected, is_pending, has_failed = self._take(max_records, waiting)
            if not collected:
                self._raise_next_error()
                if not is_pending:
                    self._buffer.memory.allow_overdraft()
                return None
            rows = {item.topic_partition: item.rows for item in collected}
            records = rows if prepare is None else prepare(rows)
            if self._hand_over(collected, records, has_failed=has_failed):
                return records

    def _hand_over(self, collected: list[_Collected[R]], records: Any, *, has_failed: bool) -> bool:
        """Phase 2; False without effect if a partition has changed since phase 1."""
        undelivered = Undelivered(records, collected)
        for item in collected:
            if not item.is_next:
                return False
        if not self._subscriptions.advance_positions(collected):
            return False
        self.undelivered = undelivered
        self._has_error_next = has_failed or self._errors.has_errors
        for item in collected:
            self._has_error_next |= item.error is not None
        self._buffer.consume(collected)
        return True

    def _take(
        self, max_records: int | None, waiting: Collection[TopicPartition]
    ) -> tuple[list[_Collected[R]], bool, bool]:
        """Phase 1: return the rows, whether any fetch is yet to be decoded, whether any failed."""
        collected: list[_Collected[R]] = []
        is_pending = has_failed = False
        left = max_records
        decoded_bytes = 0
        no_memory: MemoryError | None = None
        failure: KafkaError | None = None
        heads = self._deliverable(waiting)
        # What is decoded goes first when memory is short: decoding more takes more of it.
        if len(heads) > 1 and self._buffer.memory.is_full:
            heads.sort(key=lambda fetch: fetch.stage is Stage.RAW)
        for fetch in heads:
            if left is not None and left <= 0:
                break
            if fetch.stage is Stage.RAW:
                may_decode = not collected or (
                    decoded_bytes < OWN_DECODE_BYTES and self._buffer.memory.may_decode(fetch)
                )
                if may_decode and self._buffer.decoding.claim(fetch):
                    decoded_bytes += fetch.raw_bytes
                    try:
                        self._buffer.decoding.decode(fetch)
                    except MemoryError as error:  # the others may have records all the same
                        no_memory = error
            chunk = fetch.chunk
            if chunk is not None and fetch.stage is Stage.READY:
                try:
                    item = self._rows_of(fetch, chunk, left)
                except KafkaError as error:  # the others may have records all the same
                    failure = failure or error
                    continue
                if item is None:
                    is_pending = True
                elif item.error is None or item.count:
                    collected.append(item)
                    left = None if left is None else left - item.count
            elif fetch.stage is Stage.RAW or fetch.stage is Stage.DECODING:
                is_pending = True
            has_failed |= fetch.stage is Stage.FAILED
        if no_memory is not None and not collected:
            raise no_memory
        if failure is not None and not collected:
            raise failure
        return collected, is_pending, has_failed

    def _rows_of(
        self, fetch: CompletedFetch, chunk: RecordIndex, limit: int | None
    ) -> _Collected[R] | None:
        converted: Converted[R] | None = fetch.converted
        if converted is None:
            converted = self._convert(fetch, chunk)
            if converted is None:
                return None
            self._buffer.converted(fetch, converted)
        rows, error = converted.records, converted.error
        start = fetch.rows_taken
        stop = end = len(rows)
        if limit is not None and start + limit < end:
            stop = start + limit
            error = None
        if error is not None and start == stop:
            self._buffer.fail(fetch, error)
        if start or stop < end:
            rows = rows[start:stop]
        return _Collected(
            fetch,
            converted,
            rows,
            start,
            stop - start,
            chunk.leader_epoch if chunk.leader_epoch >= 0 else None,
            is_used_up=stop == end and error is None,
            rest=converted.rest,
            error=error,
        )

    def _deliverable(self, waiting: Collection[TopicPartition]) -> list[CompletedFetch]:
        """Return the deliverable heads, and drop the stale ones."""
        heads = self._buffer.heads()
        deliverable = []
        for fetch, delivery in zip(heads, self._subscriptions.deliveries(heads), strict=True):
            if delivery is Delivery.DELIVERABLE:
                if fetch.topic_partition not in waiting:
                    deliverable.append(fetch)
            elif delivery is Delivery.STALE:
                self._buffer.discard(fetch)
        return deliverable

    def raise_errors(self) -> None:
        """Raise the next error of the network thread, if there is any.

        Raises
        ------
        KafkaError
            Errors that have an offset are left to `collect`.
        """
        error = self._errors.take(self._subscriptions.is_current)
        if error is not None:
            raise error.with_traceback(None)

    def _raise_next_error(self) -> None:
        heads = self._buffer.failed_heads()
        for fetch, delivery in zip(heads, self._subscriptions.deliveries(heads), strict=True):
            if fetch.error is not None and delivery is Delivery.DELIVERABLE:
                self._buffer.rotate(fetch)
                raise fetch.error.with_traceback(None)
        self.raise_errors()

    def __repr__(self) -> str:
        return f"<FetchCollector has_error_next={self._has_error_next} {self._buffer!r}>"
