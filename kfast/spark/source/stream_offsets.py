"""StreamOffsets: how far a stream goes with each micro-batch.

Owns the offsets of a running query on the driver: where the next batch ends
(``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger``, ``maxTriggerDelay``, Trigger.AvailableNow) and
which ranges lie between two offsets. It keeps nothing that a restarted query would miss: Spark's
checkpoint has the offsets.

An idle query asks every 10 ms; the brokers are asked every `LOOK_MS` at most. Partitions that
appear are read from their beginning; what disappeared, or ends before what was read, is data loss:
said before Spark notes where the batch ends, so that the checkpoint is as it was when the logs, or
the options, have been put right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kfast._clock import Clock
from kfast.spark.source.data_loss import DataLoss
from kfast.spark.source.driver import Lookup
from kfast.spark.source.first_batch import FirstBatch
from kfast.spark.source.options import SourceOptions
from kfast.table.offset_ranges import OffsetRange, count_offsets, limit_offsets, plan_ranges
from kfast.table.offsets_json import format_partitions
from kfast.types import TopicPartition

Offsets = dict[TopicPartition, int]

LOOK_MS: Final = 100
"""How old an answer about the ends of logs may be."""


class StreamOffsets:
    """The offsets of one running query.

    Parameters
    ----------
    options : SourceOptions
        Of the query.
    lookup : Lookup
        Answers questions.
    clock : Clock
        Source of time.
    """

    def __init__(self, options: SourceOptions, lookup: Lookup, clock: Clock) -> None:
        self._options = options
        self._lookup = lookup
        self._clock = clock
        self._loss = DataLoss(options.fail_on_data_loss)
        self._ends: Offsets | None = None
        self._looked_ms = 0
        self._batch_ms: int | None = None
        self._target: Offsets | None = None
        self._first = FirstBatch(options, lookup)
        self._new_starts: Offsets = {}

    def initial(self) -> Offsets:
        """Return where a new query starts; see `FirstBatch`."""
        start = self._first.start()
        # What is known of the ends may be older than this.
        self._ends = None
        if self._target is not None:
            self._target.update({tp: max(at, self._target.get(tp, 0)) for tp, at in start.items()})
        return start

    def stop_at_present(self) -> None:
        """Let the query end where the logs end now (Trigger.AvailableNow)."""
        self._target = self._look()

    def latest(self) -> Offsets:
        """Return where the logs end, by the last look at them."""
        if self._target is not None:
            return dict(self._target)
        now_ms = self._clock.now_ms()
        if self._ends is None or now_ms - self._looked_ms >= LOOK_MS:
            self._ends = self._look()
            self._looked_ms = self._clock.now_ms()
        return dict(self._ends)

    def _look(self) -> Offsets:
        return self._lookup.latest(self._lookup.partitions(must_exist=False))

    def next_end(
        self, start: Mapping[TopicPartition, int] | None, max_offsets: int | None
    ) -> Offsets:
        """Return where the next micro-batch ends.

        Parameters
        ----------
        start : Mapping of TopicPartition to int, or None
            Where it starts, if Spark says so.
        max_offsets : int or None
            Most offsets in it.

        Raises
        ------
        OffsetOutOfRangeError
            Something that was read is gone, and ``failOnDataLoss`` is true.
        """
        held = self._first.held(start)
        if start and held.keys() >= start.keys():
            self._batch_ms = self._clock.now_ms()
            return held
        ends = self.latest()
        if start is None:
            return ends
        self._report_unselected(start)
        ends = {**self._above(start, ends), **held}
        self._report_losses(start, ends)
        if self._must_wait(start, ends):
            return dict(start)
        if max_offsets is None:
            return ends
        new = [tp for tp in ends if tp not in start]
        begins = {**self._starts_of_new(new), **start}
        return limit_offsets(begins, ends, max_offsets)

    def _above(self, start: Mapping[TopicPartition, int], ends: Offsets) -> Offsets:
        """Look again, several times, before believing that a log is shorter or gone.

        A broker that has just started may know less than the one that was asked before.
        """
        for _ in range(self._options.num_retries):
            if all(tp in ends and ends[tp] >= at for tp, at in start.items()):
                break
            self._lookup.pause()
            ends = self._look()
            self._ends, self._looked_ms = ends, self._clock.now_ms()
            if self._target is not None:
                self._target = ends
        return dict(ends)

    def _must_wait(self, start: Mapping[TopicPartition, int], ends: Offsets) -> bool:
        minimum = self._options.min_offsets_per_trigger
        if minimum is None or self._target is not None:
            return False
        now_ms = self._clock.now_ms()
        is_due = (
            self._batch_ms is None
            or now_ms - self._batch_ms >= self._options.max_trigger_delay_ms
            or count_offsets({**dict.fromkeys(ends, 0), **start}, ends) >= minimum
        )
        if is_due:
            self._batch_ms = now_ms
        return not is_due

    def ranges(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> list[OffsetRange]:
        """Return what each task of the micro-batch between two offsets reads.

        Raises
        ------
        OffsetOutOfRangeError
            Something to be read is gone, and ``failOnDataLoss`` is true.
        """
        start = self._first.true_start(start, end)
        new = end.keys() - start.keys()
        begins = {**self._starts_of_new(new), **start}
        for tp in sorted(new):
            if begins[tp] != 0:
                self._loss.report(
                    f"{tp} is new and starts at {begins[tp]}, not at 0",
                    cause="its first records were removed before the query saw them",
                    partition=tp,
                    offset=0,
                    log_start_offset=begins[tp],
                )
        self._report_losses(begins, end)
        ranges = [OffsetRange(*tp, begins[tp], until) for tp, until in sorted(end.items())]
        self._new_starts = {tp: at for tp, at in self._new_starts.items() if tp not in start}
        return plan_ranges(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )

    def _report_unselected(self, start: Mapping[TopicPartition, int]) -> None:
        unselected = [tp for tp in start if not self._options.topics.has(tp)]
        if unselected:
            self._loss.report(
                f"the checkpoint has {format_partitions(unselected)}, and this query reads "
                f"{self._options.topics}",
                cause="the checkpoint is another query's, or the topics were changed",
                hint="use another checkpoint, or set failOnDataLoss=false to leave them out",
                partition=min(unselected),
            )

    def _report_losses(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> None:
        gone = start.keys() - end.keys()
        if gone:
            self._loss.report(
                f"{format_partitions(gone)} of this query are gone",
                cause="the topic was deleted, or is not selected any more",
                partition=min(gone),
            )
        for tp, until in sorted(end.items()):
            if until < start.get(tp, 0):
                self._loss.report(
                    f"{tp} ends at {until}, but was read up to {start[tp]}",
                    cause="the topic was created anew, or lost its last records",
                    partition=tp,
                    offset=start[tp],
                )

    def _starts_of_new(self, partitions: set[TopicPartition] | list[TopicPartition]) -> Offsets:
        """Return the first offsets of partitions that appeared, the same for limit and plan."""
        unknown = [tp for tp in partitions if tp not in self._new_starts]
        self._new_starts.update(self._lookup.earliest(unknown))
        return {tp: self._new_starts[tp] for tp in partitions}

    def __repr__(self) -> str:
        state = "available now" if self._target is not None else "running"
        return f"<StreamOffsets {self._options.topics} {state}>"
