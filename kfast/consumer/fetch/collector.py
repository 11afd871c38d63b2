"""FetchCollector: takes what is ready out of the `FetchBuffer` for one call of ``poll``.

Owns the order in which partitions are served, the row limit of a poll, the moment positions move,
and the turn-taking between records and errors. Application thread only.

One `collect` has two phases, so that nothing that can raise runs after a position has moved:

1. Take the next chunk of every partition that has one, decoding on this thread what no decode
   thread has claimed, and convert it (deserializers run here, without any lock).
2. Move the positions of all of them under the lock of `SubscriptionState`. A partition that was
   reset or revoked since phase 1 is left out. Then the chunks are released.

An error stands in its place: the records before it are handed out first, then it is raised, and
raised again by every later call until the user seeks. Other partitions' records are not held up
by it: when there are some, records and errors take turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from kfast.consumer.fetch.completed_fetch import Stage
from kfast.consumer.subscription_state import Delivery
from kfast.consumer.topic_partition_state import AdvancePosition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfast._native.record_index import RecordIndex
    from kfast.consumer.fetch.buffer import FetchBuffer
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.consumer.subscription_state import SubscriptionState
    from kfast.errors import KafkaError
    from kfast.types import TopicPartition

STEAL_BYTES: Final = 8 << 20
"""Raw bytes one collect decodes itself before it returns what it has."""


class Rows(Protocol):
    """The records of one partition as the application gets them (``PartitionRecords``).

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
    """What a converter makes of a chunk (``BuildResult``)."""

    @property
    def records(self) -> R_co:
        """The rows before the error, all rows when there is none."""
        ...

    @property
    def error(self) -> KafkaError | None:
        """Why the row after them cannot be handed out."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class _Taken(AdvancePosition, Generic[R]):
    """One partition's share of a collect, between its two phases.

    ``error`` is the one that stands directly behind the rows.
    """

    fetch: CompletedFetch
    rows: R
    count: int
    is_used_up: bool
    error: KafkaError | None


class FetchCollector(Generic[R]):
    """Hands records out of a fetch buffer.

    Parameters
    ----------
    subscriptions : SubscriptionState
        Decides what may be handed out, and takes the positions.
    fetch_buffer : FetchBuffer
        Where the records are.
    convert : callable
        ``convert(fetch, chunk)`` makes rows of a decoded chunk. It is called once per chunk, also
        when the rows go out over several calls, and may run user code.
    """

    def __init__(
        self,
        subscriptions: SubscriptionState,
        fetch_buffer: FetchBuffer,
        convert: Callable[[CompletedFetch, RecordIndex], Converted[R]],
    ) -> None:
        self._subscriptions = subscriptions
        self._buffer = fetch_buffer
        self._convert = convert
        self._owes_error = False

    def collect(self, max_records: int | None = None) -> dict[TopicPartition, R]:
        """Take what is there, without waiting.

        Parameters
        ----------
        max_records : int or None
            Most rows to return; the rest of a chunk comes next time.

        Returns
        -------
        dict of TopicPartition to R
            The partitions whose position moved, in the order in which they were served; empty
            when nothing is there. Without rows where only the position moved: aborted transactions,
            markers, compacted tails. After it there may be more already, so call again before
            waiting.

        Raises
        ------
        KafkaError
            An error is due: one that was met before, or one met now with nothing to return.
        """
        if self._owes_error:
            self._owes_error = False
            self._raise_next_error()
        taken, is_coming, has_failed = self._take(max_records)
        given: list[_Taken[R]] = []
        for part, is_given in zip(taken, self._subscriptions.advance_positions(taken), strict=True):
            if is_given:
                given.append(part)
        self._buffer.consume(given)
        records = {}
        for part in given:
            records[part.topic_partition] = part.rows
            if part.error is not None:
                self._buffer.fail(part.fetch, part.error)
                has_failed = True
        if given:
            self._owes_error = has_failed or self._buffer.has_errors
        else:
            self._raise_next_error()
            if not is_coming:
                self._buffer.set_hungry()
        return records

    def _take(self, max_records: int | None) -> tuple[list[_Taken[R]], bool, bool]:
        """Run phase 1: return the parts, whether a decode is under way, and whether any failed."""
        taken: list[_Taken[R]] = []
        is_coming = has_failed = False
        left = max_records
        stolen = 0
        heads = self._deliverable()
        # What is decoded goes first when memory is short: decoding more takes more of it.
        if len(heads) > 1 and self._buffer.is_full:
            heads.sort(key=lambda fetch: fetch.stage is Stage.RAW)
        for fetch in heads:
            if left is not None and left <= 0:
                break
            if fetch.stage is Stage.RAW:
                may_decode = not taken or (stolen < STEAL_BYTES and not self._buffer.is_full)
                if may_decode and self._buffer.claim(fetch):
                    stolen += fetch.raw_bytes
                    self._buffer.decode(fetch)
            chunk = fetch.chunk
            if chunk is not None and fetch.stage is Stage.READY:
                part = self._part(fetch, chunk, left)
                if part.error is None or part.count:
                    taken.append(part)
                    left = None if left is None else left - part.count
            elif fetch.stage is Stage.RAW or fetch.stage is Stage.DECODING:
                is_coming = True
            has_failed |= fetch.stage is Stage.FAILED
        return taken, is_coming, has_failed

    def _part(self, fetch: CompletedFetch, chunk: RecordIndex, limit: int | None) -> _Taken[R]:
        converted: Converted[R] | None = fetch.converted
        if converted is None:
            converted = fetch.converted = self._convert(fetch, chunk)
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
        return _Taken(
            fetch.topic_partition,
            fetch.version,
            rows.next_offset,
            chunk.leader_epoch if chunk.leader_epoch >= 0 else None,
            fetch=fetch,
            rows=rows,
            count=stop - start,
            is_used_up=stop == end and error is None,
            error=error,
        )

    def _deliverable(self) -> list[CompletedFetch]:
        """Return the heads that may be handed out; drop what is out of date on the way."""
        heads = self._buffer.heads()
        found = []
        for fetch, delivery in zip(heads, self._subscriptions.deliveries(heads), strict=True):
            if delivery is Delivery.DELIVERABLE:
                found.append(fetch)
            elif delivery is Delivery.STALE:
                self._buffer.discard(fetch)
        return found

    def raise_errors(self) -> None:
        """Raise what the network thread reported, if anything: for calls that wait for it.

        Raises
        ------
        KafkaError
            The next pending error; errors that stand among the records are left to `collect`.
        """
        error = self._buffer.take_error(self._subscriptions.is_current)
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
        return f"<FetchCollector owes_error={self._owes_error} {self._buffer!r}>"
