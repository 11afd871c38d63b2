"""RecordIteration: polled records, handed out one batch or one row at a time.

Owns the rest of the last poll while the application iterates. Nothing in it counts as handed out:
`consumed` gives commits, and `position` the user, the offset that iteration has reached in each
partition, and a ``poll`` in between returns the rest first. Calls in between take effect at once:
after a ``seek``, a revocation or an ``assign`` without the partition the rest of its batch is
dropped; a paused partition's rest waits, and nothing newer of the partition is polled meanwhile.
When the log has lost the position, and it is reset, the rows before the new one are still yielded.
Application thread only.

Rows are yielded in slices. Between two slices, and between two batches, the work of a poll is done:
auto-commit, rebalance steps, callbacks, ``max_poll_interval_ms``. Between two rows of a slice only
one number is compared (`PartitionStates.changes`).

What counts as handed out changes in the last step before Python gives a row, a batch or a poll's
records to the caller, with no check for signals in between: a Ctrl-C comes before or after both.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from kfast._values import dataclass
from kfast.types import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from kfast.consumer.fetch_position import FetchPosition
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
    previous_epoch: int | None
    """Leader epoch of the record before the batch."""
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

    def end_at(self, position: FetchPosition | None) -> bool:
        """Drop the rows from the position on, which are read again; return whether any is left."""
        if position is not None and position.offset < self.batch.next_offset:
            self.batch = self.batch[: bisect_left(self.batch.offsets, position.offset)]
        return self.taken < len(self.batch)


class RecordIteration:
    """Hands out polled records piece by piece."""

    __slots__ = (
        "_current",
        "_rows",
        "_seen",
        "_skipped",
        "_states",
        "_subscriptions",
        "rests",
        "returning",
    )

    def __init__(self, subscriptions: SubscriptionState) -> None:
        self._subscriptions = subscriptions
        self._states = subscriptions.partition_states
        self.rests: dict[TopicPartition, Rest] = {}
        """Also of partitions that are paused, or no longer read."""
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
        versions = self._subscriptions.seek_versions()
        epochs = self._subscriptions.previous_epochs()
        for tp, batch in records.items():
            if tp in versions and len(batch):
                self.rests[tp] = Rest(batch, versions[tp], epochs.get(tp))
        self._skipped += [
            batch for tp, batch in records.last_batches() if not len(batch) and len(batch.errors)
        ]

    def next_skipped(self) -> PartitionRecords | None:
        """Return a batch that has errors and no rows, once."""
        return self._skipped.pop(0) if self._skipped else None

    def put_back(self, records: ConsumerRecords) -> None:
        """Take back what a poll was about to return."""
        versions = self._subscriptions.seek_versions()
        epochs = self._subscriptions.previous_epochs()
        for tp, batch in records.items():
            rest = self.rests.get(tp)
            if rest is not None:
                rest.taken -= len(batch)
            elif tp in versions:
                self.rests[tp] = Rest(batch, versions[tp], epochs.get(tp))

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
        return bool(self.rests) or self.returning is not None

    def consumed(self, is_last_included: bool = True) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the next offset after what was handed out, as offsets to commit.

        Without ``is_last_included`` what the last poll returned is left out.
        """
        handed_out = self._subscriptions.consumed(is_last_included=is_last_included)
        found = {tp: _next(at.offset, at.offset_epoch) for tp, at in handed_out.items()}
        self._drop_stale()
        for tp, rest in self.rests.items():
            if tp in found and rest.offset < found[tp].offset:
                epoch = rest.batch.leader_epoch if rest.taken else rest.previous_epoch
                found[tp] = _next(rest.offset, epoch)
        return found

    def position(self, tp: TopicPartition) -> int | None:
        """Return the next offset of a partition's rest, None if it has none."""
        self._drop_stale()
        rest = self.rests.get(tp)
        return None if rest is None else rest.offset

    def waiting(self) -> Collection[TopicPartition] | None:
        """Return the partitions whose rest waits; None if one can be handed out now."""
        return None if self._next_rest() is not None else self.rests.keys()

    def clear(self) -> None:
        """Forget the rest."""
        self.returning = None
        self.rests.clear()
        self._skipped.clear()
        self._current = None

    def _next_rest(self) -> Rest | None:
        self._drop_stale()
        if not self.rests:
            return None
        with self._subscriptions.lock:
            for tp, rest in self.rests.items():
                state = self._subscriptions.state(tp)
                if state is not None and not (state.is_paused or state.is_pending_callback):
                    return rest
        return None

    def _drop_stale(self) -> None:
        """Drop what was read to the end, sought away from or unassigned, or is read again."""
        if self.returning is not None:
            self.put_back(self.returning)
            self.returning = None
        if not self.rests:
            return
        with self._subscriptions.lock:
            for tp, rest in list(self.rests.items()):
                state = self._subscriptions.state(tp)
                if state is None:  # it waits if its topic may come back
                    is_left = self._states.is_remembered(tp)
                else:
                    is_current = state.seek_version == rest.seek_version
                    is_left = is_current and rest.end_at(state.position)
                if not is_left:
                    del self.rests[tp]

    def __repr__(self) -> str:
        left = sum(len(rest.batch) - rest.taken for rest in self.rests.values())
        return f"<RecordIteration {left} records of {len(self.rests)} partitions left>"


def _next(offset: int, epoch: int | None) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", UNKNOWN_EPOCH if epoch is None else epoch)
