"""Rests: records behind the positions that the application does not have yet.

Owns the rest of the last poll while the application iterates, and what an interrupted call was
about to return. Nothing in it counts as handed out. Calls in between take effect at once: after a
``seek``, a revocation or an ``assign`` without the partition the rest of its batch is dropped; a
paused partition's rest waits, and nothing newer of the partition is polled meanwhile. When the log
has lost the position, and it is reset, the rows before the new one are still handed out.

Application thread only. Compiled: what a method calls in bytecode, which a signal handler may
interrupt, it calls before its first change, so that whatever raises leaves all records.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from kfast.consumer.fetch.collector import Undelivered

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfast.consumer.fetch.collector import FetchCollector
    from kfast.consumer.fetch_position import FetchPosition
    from kfast.consumer.subscription_state import SubscriptionState
    from kfast.records.consumer_records import ConsumerRecords
    from kfast.records.partition_records import PartitionRecords
    from kfast.types import TopicPartition


class Rest:
    """What is left of one partition's batch: the rows from ``taken`` on.

    ``seek_version`` is the partition's when its position moved past the batch, ``previous_epoch``
    the leader epoch of the record before it.
    """

    __slots__ = ("batch", "previous_epoch", "seek_version", "taken")

    def __init__(
        self, batch: PartitionRecords, seek_version: int, previous_epoch: int | None
    ) -> None:
        self.batch = batch
        self.seek_version = seek_version
        self.previous_epoch = previous_epoch
        self.taken = 0

    @property
    def offset(self) -> int:
        """The first offset not handed out."""
        return int(self.batch.offsets[self.taken])

    def rows_before(self, position: FetchPosition | None) -> PartitionRecords:
        """Return the batch without the rows from the position on, which are read again."""
        if position is None or position.offset >= self.batch.next_offset:
            return self.batch
        return self.batch[: bisect_left(self.batch.offsets, position.offset)]


class _Taken(Undelivered["PartitionRecords"]):
    """What `Rests.take` has returned: each rest with its rows that were taken before."""

    __slots__ = ("skipped", "taken")

    def __init__(
        self,
        records: ConsumerRecords,
        taken: list[tuple[TopicPartition, Rest, int]],
        skipped: list[PartitionRecords],
    ) -> None:
        super().__init__(records)
        self.taken = taken
        self.skipped = skipped


class Rests:
    """The rest of each partition, in the order in which they are handed out."""

    __slots__ = ("_collector", "_states", "_subscriptions", "by_partition", "skipped")

    def __init__(
        self, subscriptions: SubscriptionState, collector: FetchCollector[PartitionRecords]
    ) -> None:
        self._subscriptions = subscriptions
        self._states = subscriptions.partition_states
        self._collector = collector
        self.by_partition: dict[TopicPartition, Rest] = {}
        """Also of partitions that are paused, or no longer read."""
        self.skipped: list[PartitionRecords] = []
        """Batches without a row, because none could be deserialized."""

    def __bool__(self) -> bool:
        return bool(self.by_partition) or self._collector.undelivered is not None

    def next(self) -> Rest | None:
        """Return the next rest that may be handed out now."""
        self.drop_stale()
        return next((rest for _, rest in self._deliverable()), None) if self.by_partition else None

    def take(
        self,
        max_records: int | None,
        make: Callable[[list[PartitionRecords]], ConsumerRecords],
    ) -> ConsumerRecords | None:
        """Return the rests that may be handed out, as undelivered records; None for none."""
        self.drop_stale()
        batches = list(self.skipped)
        taken = []
        left = max_records
        for tp, rest in self._deliverable():
            if left is not None and left <= 0:
                break
            start, stop = rest.taken, len(rest.batch)
            if left is not None:
                stop = min(stop, start + left)
                left -= stop - start
            is_whole = stop - start == len(rest.batch)
            batches.append(rest.batch if is_whole else rest.batch[start:stop])
            taken.append((tp, rest, start, stop))
        if not batches:
            return None
        records = make(batches)
        undelivered = _Taken(
            records, [(tp, rest, start) for tp, rest, start, _ in taken], self.skipped
        )
        for _, rest, _, stop in taken:
            rest.taken = stop
        self.skipped = []
        self._collector.undelivered = undelivered
        return records

    def _deliverable(self) -> list[tuple[TopicPartition, Rest]]:
        with self._subscriptions.lock:
            return [
                (tp, rest)
                for tp, rest in self.by_partition.items()
                if (state := self._subscriptions.state(tp)) is not None and not state.is_withheld
            ]

    def keep_undelivered(self) -> None:
        """Make rests of what an earlier call did not return."""
        undelivered = self._collector.undelivered
        if undelivered is None:
            return
        if isinstance(undelivered, _Taken):
            for tp, rest, start in undelivered.taken:
                rest.taken = start
                self.by_partition[tp] = rest
            self.skipped = undelivered.skipped + self.skipped
        else:
            records = undelivered.records
            collected = {item.topic_partition: item for item in undelivered.collected}
            rests = {
                tp: Rest(batch, collected[tp].seek_version, collected[tp].previous_epoch)
                for tp, batch in records.items()
                if tp in collected
            }
            last = [batch for _, batch in records.last_batches()]
            skipped = [batch for batch in last if not len(batch) and len(batch.errors)]
            self.by_partition.update(rests)
            self.skipped = self.skipped + skipped
        self._collector.undelivered = None

    def drop_stale(self) -> None:
        """Drop what was read to the end, sought away from or unassigned, or is read again."""
        self.keep_undelivered()
        if not self.by_partition:
            return
        left: dict[TopicPartition, Rest] = {}
        batches: list[tuple[Rest, PartitionRecords]] = []
        with self._subscriptions.lock:
            for tp, rest in self.by_partition.items():
                state = self._subscriptions.state(tp)
                if state is None:  # it waits if its topic may come back
                    if self._states.is_remembered(tp):
                        left[tp] = rest
                elif state.seek_version == rest.seek_version:
                    batch = rest.rows_before(state.position)
                    batches.append((rest, batch))
                    if rest.taken < len(batch):
                        left[tp] = rest
        if len(left) < len(self.by_partition):
            self.by_partition = left
        for rest, batch in batches:
            rest.batch = batch

    def clear(self) -> None:
        """Forget everything."""
        self._collector.undelivered = None
        self.by_partition = {}
        self.skipped = []

    def __repr__(self) -> str:
        left = sum(len(rest.batch) - rest.taken for rest in self.by_partition.values())
        return f"<Rests {left} records of {len(self.by_partition)} partitions>"
