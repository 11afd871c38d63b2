"""RecordIteration: polled records, handed out one batch or one row at a time.

Owns the slice of rows that is being yielded; `Rests` has the rest of the last poll, of which
nothing counts as handed out. `consumed` gives commits, and `position` the user, the offset that
iteration has reached in each partition, and a ``poll`` in between returns the rest first.
Application thread only.

Rows are yielded in slices. Between two slices, and between two batches, the work of a poll is done:
auto-commit, rebalance steps, callbacks, ``max_poll_interval_ms``. Between two rows of a slice only
one number is compared (`PartitionStates.changes`).

What counts as handed out changes in the last instruction before Python gives a row, a batch or a
poll's records to the caller, with no check for signals in between: an exception of a signal handler
comes before or after both. So what does it is bytecode: behind the call of compiled code there is a
check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast.application.rests import Rests
from kfast.types import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from kfast.application.rests import Rest
    from kfast.consumer.fetch.collector import FetchCollector
    from kfast.consumer.subscription_state import SubscriptionState
    from kfast.records.consumer_record import ConsumerRecord
    from kfast.records.consumer_records import ConsumerRecords
    from kfast.records.partition_records import PartitionRecords
    from kfast.types import TopicPartition

SLICE_ROWS: Final = 500
"""Rows yielded before other work is done; Kafka's default of ``max.poll.records``."""

UNKNOWN_EPOCH: Final = -1
"""``OffsetAndMetadata.leader_epoch`` when there is none."""


class RecordIteration:
    """Hands out polled records piece by piece."""

    __slots__ = ("_current", "_rows", "_seen", "_states", "_subscriptions", "rests")

    def __init__(
        self, subscriptions: SubscriptionState, collector: FetchCollector[PartitionRecords]
    ) -> None:
        self._subscriptions = subscriptions
        self._states = subscriptions.partition_states
        self.rests = Rests(subscriptions, collector)
        self._rows: Iterator[ConsumerRecord] = iter(())
        self._current: Rest | None = None
        self._seen = -1

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
        self._current = None
        rest = self.rests.next()
        self.rests.skipped.clear()
        if rest is None:
            return False
        self._seen = self._states.changes
        # The rows count one by one, as they are yielded.
        self._rows = iter(rest.batch[rest.taken : rest.taken + SLICE_ROWS])
        self._current = rest
        return True

    def next_rest(self) -> Rest | None:
        """Return the rest of a partition that may be handed out."""
        self._current = None
        return self.rests.next()

    def take_records(
        self,
        max_records: int | None,
        make: Callable[[list[PartitionRecords]], ConsumerRecords],
    ) -> ConsumerRecords | None:
        """Return the rests as records, for a ``poll`` within an iteration; None for no records."""
        self._current = None
        return self.rests.take(max_records, make)

    def consumed(self, is_last_included: bool = True) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the next offset after what was handed out, as offsets to commit.

        Without ``is_last_included`` what the last poll returned is left out.
        """
        self.rests.drop_stale()
        handed_out = self._subscriptions.consumed(is_last_included=is_last_included)
        offsets = {tp: _next(at.offset, at.offset_epoch) for tp, at in handed_out.items()}
        for tp, rest in self.rests.by_partition.items():
            if tp in offsets and rest.offset < offsets[tp].offset:
                epoch = rest.batch.leader_epoch if rest.taken else rest.previous_epoch
                offsets[tp] = _next(rest.offset, epoch)
        return offsets

    def position(self, tp: TopicPartition) -> int | None:
        """Return the next offset of a partition's rest, None if it has none."""
        self.rests.drop_stale()
        rest = self.rests.by_partition.get(tp)
        return None if rest is None else rest.offset

    def waiting(self) -> Collection[TopicPartition] | None:
        """Return the partitions whose rest waits; None if one can be handed out now."""
        return None if self.rests.next() is not None else self.rests.by_partition.keys()

    def clear(self) -> None:
        """Forget the rest."""
        self._current = None
        self.rests.clear()

    def __repr__(self) -> str:
        return f"<RecordIteration {self.rests!r}>"


def _next(offset: int, epoch: int | None) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", UNKNOWN_EPOCH if epoch is None else epoch)
