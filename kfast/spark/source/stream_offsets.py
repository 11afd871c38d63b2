"""StreamOffsets and FirstBatch: the start and end offsets of a stream's micro-batches.

Owns the offsets of a running query on the driver: where it starts, where the next batch ends
(``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger``, ``maxTriggerDelay``, Trigger.AvailableNow) and
the ranges between two offsets. A restarted query needs nothing of it: Spark's checkpoint has the
offsets.

Spark polls an idle query every 10 ms; the log ends are looked up once per `ENDS_MAX_AGE_MS`, for
more than 400 partitions less often. New partitions are read from their beginning; a partition that
is gone, or ends before what was read, is data loss: reported before Spark writes the batch's end to
the checkpoint, so that the query can resume from it after the logs, or the options, have been
fixed. Driver only, one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import Final

from kfast._base.clock import Clock
from kfast._base.logs import get_logger
from kfast.spark.source.data_loss import DataLoss
from kfast.spark.source.driver import Lookup, starts_instead
from kfast.spark.source.options import SourceOptions
from kfast.table.offset_ranges import OffsetRange, count_offsets, limit_offsets, plan_ranges
from kfast.table.offsets_json import format_partitions
from kfast.table.topic_ids import TopicIds
from kfast.types import TopicPartition

logger = get_logger(__name__)
Offsets = dict[TopicPartition, int]

ENDS_MAX_AGE_MS: Final = 100
"""Greatest age of the known log ends, of up to 400 partitions."""

_ENDS_PARTITIONS_PER_MS: Final = 4
# Looking up the ends of many partitions takes some 50 microseconds of the driver's time for each:
# an idle query of thousands would do nothing else.


class FirstBatch:
    """The first micro-batch of one query, whether this run plans it or repeats it.

    Spark's checkpoint has the end of each micro-batch, but not the start of the first: Spark asks
    for it again when the first batch has to be repeated. By then the end of a log, where
    ``startingOffsets=latest`` starts, may have grown. So the first batch of a query that starts at
    the end of a log ends there as well: it is empty, and its end in the checkpoint is where the
    query started. A partition whose start does not move with the log's end is read at once.

    A query that dies before Spark has written its first batch to the checkpoint has not begun:
    started again, it resolves its options anew. Where "latest" must not mean a later moment even
    so, ``startingOffsets`` has to give offsets. The same holds for options that were changed before
    the first batch was done.
    """

    def __init__(self, options: SourceOptions, lookup: Lookup) -> None:
        self._options = options
        self._lookup = lookup
        self._start: Offsets | None = None
        self._growing: set[TopicPartition] = set()
        self._is_due = False
        self._is_repeated = False

    def start(self) -> Offsets:
        """Return where a new query starts: the same whenever Spark asks, though logs grow."""
        if self._start is None:
            partitions = self._lookup.partitions(must_exist=bool(self._options.topics.names))
            start = self._lookup.resolve(self._options.start, partitions)
            if start.keys() < partitions and self._options.topics.names:
                self._lookup.partitions(must_exist=True)  # raises: one was deleted meanwhile
            instead = starts_instead(self._options, self._lookup, start)
            self._start = start | instead
            self._growing = self._options.start.growing(set(start)) | instead.keys()
            self._is_due = True
        return dict(self._start)

    def fixed_ends(self, start: Mapping[TopicPartition, int] | None) -> Offsets:
        """Return the partitions of which the next batch must end where it starts.

        ``start`` is where that batch starts, None before pyspark 4.2.
        """
        if start is None or not self._is_due:
            return {}
        return {tp: at for tp, at in start.items() if tp in self._growing}

    def end_planned(self) -> None:
        """Note that the end of a batch was planned: the next one may end anywhere.

        Not before all look-ups for it are done: where one raises, the first batch is still due.
        """
        self._is_due, self._is_repeated = False, False

    def true_start(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Return where the batch with this end starts.

        That is `start`, unless it repeats the first batch of an earlier run: then `start` is where
        a query would start now. Partitions that the batch did not have are new.
        """
        if self._is_due:  # Spark plans it without latestOffset(): the checkpoint has its end
            self._is_due, self._is_repeated = False, True
        if not self._is_repeated:
            return start
        return {
            tp: min(at, end[tp]) if tp in self._growing else at
            for tp, at in start.items()
            if tp in end
        }

    def __repr__(self) -> str:
        state = "unresolved" if self._start is None else "due" if self._is_due else "planned"
        return f"<FirstBatch {self._options.topics} {state}>"


class StreamOffsets:
    """The offsets of one running query."""

    def __init__(
        self,
        options: SourceOptions,
        lookup: Lookup,
        clock: Clock,
        topic_ids: TopicIds | None = None,
    ) -> None:
        self._options = options
        self._lookup = lookup
        self._clock = clock
        self._ids = topic_ids or TopicIds()
        self._loss = DataLoss(options.fail_on_data_loss)
        self._ends: Offsets | None = None
        self._ends_ms = 0
        self._batch_ms: int | None = None
        self._target: Offsets | None = None
        self._first = FirstBatch(options, lookup)
        self._new_starts: Offsets = {}
        self._restarted: set[TopicPartition] = set()
        self.batch_topic_ids: Mapping[str, str] = {}
        """Ids of topics that the batch of the last `ranges` is read under, as far as known."""

    def initial(self) -> Offsets:
        """Return where a new query starts; see `FirstBatch`."""
        start = self._first.start()
        self._ids.adopt(self._lookup.topic_ids)
        # The known ends may be older than this start.
        self._ends = None
        if self._target is not None:
            self._target.update({tp: max(at, self._target.get(tp, 0)) for tp, at in start.items()})
        return start

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Kafka's ids of the topics that were looked up last."""
        if not self._lookup.topic_ids:
            self._lookup.partitions(must_exist=False)
        return self._lookup.topic_ids

    def stop_at_present(self) -> None:
        """Let the query end where the logs end now (Trigger.AvailableNow)."""
        self._target = self._log_ends()

    def latest(self) -> Offsets:
        """Return the log ends, at most `ENDS_MAX_AGE_MS` old, older for very many partitions."""
        if self._target is not None:
            return dict(self._target)
        now_ms = self._clock.now_ms()
        if self._ends is None or now_ms - self._ends_ms >= max(
            ENDS_MAX_AGE_MS, len(self._ends) // _ENDS_PARTITIONS_PER_MS
        ):
            self._ends = self._log_ends()
            self._ends_ms = self._clock.now_ms()
        return dict(self._ends)

    def _log_ends(self) -> Offsets:
        return self._lookup.latest(self._lookup.partitions(must_exist=False))

    def next_end(
        self, start: Mapping[TopicPartition, int] | None, max_offsets: int | None
    ) -> Offsets:
        """Return where the next micro-batch ends, with at most ``max_offsets`` offsets.

        ``start`` is where it starts, None before pyspark 4.2. Raises ``OffsetOutOfRangeError`` if
        offsets that were read are gone and ``failOnDataLoss`` is true.
        """
        end = self._next_end(start, max_offsets)
        self._first.end_planned()
        return end

    def _next_end(
        self, start: Mapping[TopicPartition, int] | None, max_offsets: int | None
    ) -> Offsets:
        fixed = self._first.fixed_ends(start)
        if start and fixed.keys() >= start.keys():
            self._batch_ms = self._clock.now_ms()
            return fixed
        ends = self.latest()
        if start is not None:
            self._report_unselected(start)
        topic_ids = self._lookup.topic_ids
        anew = self._created_anew(ends if start is None else start)
        begins = self._begins_of(anew, ends if start is None else start.keys() & ends.keys())
        # In this order: once the ids are accepted, the topics are not found anew again.
        self._restarted.update(begins)
        self._ids.accept(topic_ids)
        # One that was deleted again meanwhile has no beginning, and its end is no longer one.
        ends = {tp: at for tp, at in ends.items() if tp.topic not in anew or tp in begins}
        if start is None:
            return ends | begins
        read = {tp: at for tp, at in start.items() if tp.topic not in anew}
        ends = {**self._above(read, ends), **fixed, **begins}
        self._report_losses(read, ends)
        if not anew and self._must_wait(start, ends):
            return dict(start)
        if max_offsets is None:
            return ends
        new = [tp for tp in ends if tp not in start]
        starts = {**self._starts_of_new(new), **start}
        ends = {tp: until for tp, until in ends.items() if tp in starts}
        return limit_offsets(starts, ends, max_offsets)

    def _created_anew(self, partitions: Iterable[TopicPartition]) -> set[str]:
        """Report the topics that were deleted and created again since they were read."""
        topic_ids = self._lookup.topic_ids
        first = {tp.topic: tp for tp in sorted(partitions, reverse=True)}
        changed = {t: former for t, former in self._ids.changed(topic_ids).items() if t in first}
        for topic, former in sorted(changed.items()):
            self._loss.report(
                f"the topic {topic} was deleted and created anew: its id was {former} and is "
                f"{topic_ids[topic]}",
                cause="what was not read of the earlier one is lost",
                hint="set failOnDataLoss=false to read the new one from its beginning",
                partition=first[topic],
            )
        return set(changed)

    def _begins_of(self, topics: set[str], partitions: Iterable[TopicPartition]) -> Offsets:
        """Return where topics that were created anew begin.

        That is where the next batch ends, and so before it starts: it reads nothing of them,
        whichever run plans it, and the batch after it reads them from their beginning.
        """
        begins = self._lookup.earliest([tp for tp in partitions if tp.topic in topics])
        if begins:
            logger.warning("reading from the beginning: %s", format_partitions(begins))
        return begins

    def _above(self, start: Mapping[TopicPartition, int], ends: Offsets) -> Offsets:
        """Look up the ends again, several times, if a log seems shorter or gone.

        A broker that has just started may have older metadata than the one asked before.
        """
        for _ in range(self._options.num_retries):
            if all(tp in ends and ends[tp] >= at for tp, at in start.items()):
                break
            self._lookup.pause()
            ends = self._log_ends()
            self._ends, self._ends_ms = ends, self._clock.now_ms()
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
        """Return the ranges that the tasks of the micro-batch between two offsets read.

        Raises ``OffsetOutOfRangeError`` if offsets are gone and ``failOnDataLoss`` is true.
        """
        if self._ids.by_topic and not self._lookup.topic_ids:  # a batch of an earlier run
            self._lookup.partitions(must_exist=False)
        anew = self._created_anew({**start, **end})
        unread = self._restarted.union(tp for tp in {**start, **end} if tp.topic in anew)
        end = {tp: at for tp, at in end.items() if tp not in unread}
        start = {
            tp: at for tp, at in self._first.true_start(start, end).items() if tp not in unread
        }
        new = end.keys() - start.keys()
        starts_of_new = self._starts_of_new(new)
        if gone := new - starts_of_new.keys():
            self._report_gone(gone)
            new -= gone
            end = {tp: at for tp, at in end.items() if tp not in gone}
        begins = {**starts_of_new, **start}
        lost = {tp: begins[tp] for tp in sorted(new) if begins[tp] != 0}
        for tp in lost:
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
        self._restarted = set()
        self._ids.save({tp.topic for tp in end} | {tp.topic for tp in unread})
        self.batch_topic_ids = dict(self._ids.by_topic)
        planned = plan_ranges(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return _with_lost(planned, lost)

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
            self._report_gone(gone)
        for tp, until in sorted(end.items()):
            if until < start.get(tp, 0):
                self._loss.report(
                    f"{tp} ends at {until}, but was read up to {start[tp]}",
                    cause="the topic was created anew, or lost its last records",
                    partition=tp,
                    offset=start[tp],
                )

    def _report_gone(self, partitions: Set[TopicPartition]) -> None:
        self._loss.report(
            f"{format_partitions(partitions)} of this query are gone",
            cause="the topic was deleted, or is not selected any more",
            partition=min(partitions),
        )

    def _starts_of_new(self, partitions: set[TopicPartition] | list[TopicPartition]) -> Offsets:
        """Return the first offsets of new partitions, the same for the limit and the plan.

        Partitions that were deleted meanwhile are left out.
        """
        unknown = [tp for tp in partitions if tp not in self._new_starts]
        self._new_starts.update(self._lookup.earliest(unknown))
        return {tp: self._new_starts[tp] for tp in partitions if tp in self._new_starts}

    def __repr__(self) -> str:
        state = "available now" if self._target is not None else "running"
        return f"<StreamOffsets {self._options.topics} {state}>"


def _with_lost(planned: list[OffsetRange], lost: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Let the first range of some partitions begin at 0, so that its task counts what is lost.

    ``lost`` has where the log of each begins; one without a range gets one that is all lost.
    """
    first: dict[TopicPartition, int] = {}
    for offset_range in planned:
        at = first.get(offset_range.topic_partition, offset_range.from_offset)
        first[offset_range.topic_partition] = min(at, offset_range.from_offset)
    return [
        replace(offset_range, from_offset=0)
        if offset_range.topic_partition in lost
        and offset_range.from_offset == first[offset_range.topic_partition]
        else offset_range
        for offset_range in planned
    ] + [OffsetRange(*tp, 0, begin) for tp, begin in lost.items() if tp not in first]
