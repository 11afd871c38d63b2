"""RecordIteration: polled records, handed out one batch or one row at a time.

Owns the rest of the last poll while the application iterates. Nothing in it counts as handed out:
`consumed` gives commits, and `position` the user, the offset that iteration has reached in each
partition, and a ``poll`` in between returns the rest first. Calls in between take effect at once:
after a ``seek``, a revocation or an ``assign`` without the partition the rest of its batch is
dropped; a paused partition's rest waits. Application thread only.

Rows are yielded in slices. Between two slices, and between two batches, the work of a poll is done:
auto-commit, rebalance steps, callbacks, ``max_poll_interval_ms``. Between two rows of a slice only
one number is compared (`PartitionStates.changes`).

What counts as handed out changes in the last step before Python gives a row, a batch or a poll's
records to the caller, with no check for signals in between: a Ctrl-C comes before or after both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast._values import dataclass
from kfast.types import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kfast.consumer.subscription_state import SubscriptionState
    from kfast.records.consumer_record import ConsumerRecord
    from kfast.records.consumer_records import ConsumerRecords
    from kfast.records.partition_records import PartitionRecords
    from kfast.types import TopicPartition

SLICE_ROWS: Final = 500
"""Rows yielded before other work is done; Kafka's default of ``max.poll.records``."""

UNKNOWN_EPOCH: Final = -1
"""``OffsetAndMetadata.leader_epoch`` when there is none."""


@dataclass(slots=True, eq=False)
class Rest:
    """What is left of one partition's batch."""

    batch: PartitionRecords
    seek_version: int
    taken: int = 0

    @property
    def offset(self) -> int:
        """The first offset not handed out."""
        return int(self.batch.offsets[self.taken])

    def take(self, count: int | None) -> PartitionRecords:
        start, end = self.taken, len(self.batch)
        stop = end if count is None else min(end, start + count)
        part = self.batch if stop - start == end else self.batch[start:stop]
        self.taken = stop  # last: what comes before it can be interrupted
        return part


class RecordIteration:
    """Hands out polled records piece by piece."""

    __slots__ = (
        "_current",
        "_rests",
        "_rows",
        "_seen",
        "_skipped",
        "_states",
        "_subscriptions",
        "returning",
    )

    def __init__(self, subscriptions: SubscriptionState) -> None:
        self._subscriptions = subscriptions
        self._states = subscriptions.partition_states
        self._rests: dict[TopicPartition, Rest] = {}
        self._skipped: list[PartitionRecords] = []
        """Batches without a row, because none could be deserialized."""
        self._rows: Iterator[ConsumerRecord] = iter(())
        self._current: Rest | None = None
        self._seen = -1
        self.returning: ConsumerRecords | None = None
        """What a poll is about to return. ``KafkaConsumer.poll`` clears it as its last step; when a
        Ctrl-C comes before that, the records are taken back."""

    def put(self, records: ConsumerRecords) -> None:
        """Take what a poll returned; nothing that can be handed out may be left."""
        consumed = self._subscriptions.consumed()
        for tp, batch in records.items():
            if tp in consumed and len(batch):
                self._rests[tp] = Rest(batch, consumed[tp][1])
        self._skipped += [
            batch for tp, batch in records.last_batches() if not len(batch) and len(batch.errors)
        ]

    def next_skipped(self) -> PartitionRecords | None:
        """Return a batch that has errors and no rows, once."""
        return self._skipped.pop(0) if self._skipped else None

    def put_back(self, records: ConsumerRecords) -> None:
        """Take back what a poll was about to return."""
        consumed = self._subscriptions.consumed()
        for tp, batch in records.items():
            rest = self._rests.get(tp)
            if rest is not None:
                rest.taken -= len(batch)
            elif tp in consumed:
                self._rests[tp] = Rest(batch, consumed[tp][1])

    def next_row(self) -> ConsumerRecord | None:
        """Return the next row of the current slice, None at its end or after a change of state."""
        current = self._current
        if current is not None and self._states.changes == self._seen:
            for row in self._rows:
                current.taken += 1
                return row
        return None

    def begin_slice(self) -> bool:
        """Begin the next slice of rows; return whether there is one."""
        self._skipped.clear()
        found = self._next_rest()
        if found is None:
            self._current = None
            return False
        self._seen = self._states.changes
        self._current = found
        # The rows count one by one, as they are yielded.
        self._rows = iter(found.batch[found.taken : found.taken + SLICE_ROWS])
        return True

    def next_rest(self) -> Rest | None:
        """Return what is left of a partition that may be handed out."""
        self._current = None
        return self._next_rest()

    def take_records(
        self,
        max_records: int | None,
        make: Callable[[list[PartitionRecords]], ConsumerRecords],
    ) -> ConsumerRecords | None:
        """Return what is left, for a ``poll`` in the middle of an iteration; None for nothing."""
        self._current = None
        parts = []
        left = max_records
        while (left is None or left > 0) and (found := self._next_rest()) is not None:
            part = found.take(left)
            left = None if left is None else left - len(part)
            parts.append(part)
        return make(parts) if parts else None

    @property
    def has_rest(self) -> bool:
        """Whether anything is left, also of partitions that are no longer read."""
        return bool(self._rests) or self.returning is not None

    def consumed(self, is_last_included: bool = True) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the next offset after what was handed out, as offsets to commit.

        Without ``is_last_included`` what the last poll returned is left out.
        """
        handed_out = self._subscriptions.consumed(is_last_included=is_last_included)
        found = {
            tp: OffsetAndMetadata(
                at.offset, "", UNKNOWN_EPOCH if at.offset_epoch is None else at.offset_epoch
            )
            for tp, (at, _) in handed_out.items()
        }
        self._drop_stale()
        for tp, rest in self._rests.items():
            if tp in found and rest.offset < found[tp].offset:
                # The epoch of records before this batch is not known any more.
                epoch = rest.batch.leader_epoch if rest.taken else UNKNOWN_EPOCH
                found[tp] = OffsetAndMetadata(rest.offset, "", epoch)
        return found

    def position(self, tp: TopicPartition) -> int | None:
        """Return the next offset of a partition's rest, None if it has none."""
        self._drop_stale()
        rest = self._rests.get(tp)
        return None if rest is None else rest.offset

    def clear(self) -> None:
        """Forget the rest."""
        self.returning = None
        self._rests.clear()
        self._skipped.clear()
        self._current = None

    def _next_rest(self) -> Rest | None:
        self._drop_stale()
        if not self._rests:
            return None
        with self._subscriptions.lock:
            for tp, rest in self._rests.items():
                state = self._subscriptions.state(tp)
                if state is not None and not (state.is_paused or state.is_pending_callback):
                    return rest
        return None

    def _drop_stale(self) -> None:
        """Drop batches that were read to the end, and those whose position was moved."""
        if self.returning is not None:
            self.put_back(self.returning)
            self.returning = None
        if not self._rests:
            return
        with self._subscriptions.lock:
            for tp, rest in list(self._rests.items()):
                state = self._subscriptions.state(tp)
                is_read = rest.taken >= len(rest.batch)
                if is_read or state is None or state.seek_version != rest.seek_version:
                    del self._rests[tp]

    def __repr__(self) -> str:
        left = sum(len(rest.batch) - rest.taken for rest in self._rests.values())
        return f"<RecordIteration {left} records of {len(self._rests)} partitions left>"
