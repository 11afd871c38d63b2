"""Polling: one ``poll``, from the first look to the records, and iteration made of it.

Owns what happens inside ``poll`` on the application thread, in order: auto-commit of what earlier
polls handed out, then again and again until there is something: wakeups, rebalance steps, callbacks
of commits, records, waiting. Nothing that can raise runs after positions have moved, and a Ctrl-C
that comes then is raised when the records are safe: the next poll returns them.

With nothing due, being a member of a group costs a poll three looks at plain attributes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kfast.application.arguments import FOREVER_MS, unknown_partition
from kfast.errors import IllegalStateError
from kfast.records.consumer_records import ConsumerRecords

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfast._runtime.access_guard import AccessGuard
    from kfast._runtime.interrupts import Interrupts
    from kfast.application.commits import ConsumerCommits
    from kfast.application.interceptors import Interceptors
    from kfast.application.iteration import RecordIteration
    from kfast.application.lookups import Lookups
    from kfast.application.metrics import ConsumerMetrics
    from kfast.application.rebalance import RebalanceRunner
    from kfast.application.record_converter import RecordConverter
    from kfast.config import ConsumerConfig
    from kfast.records.consumer_record import ConsumerRecord
    from kfast.records.partition_records import PartitionRecords
    from kfast.threads.consumer_runtime import ConsumerRuntime
    from kfast.types import TopicPartition

_LONGEST_WAIT_MS: Final = 250
"""Longest single wait: how often the consumer shows that its application is still in ``poll``.

It also bounds how late a Ctrl-C can be that comes in the very moment a wait begins: the interpreter
looks for signals before it, and nothing ends a wait that begins after the signal.
"""


class Polling:
    """Polls for one consumer.

    Parameters
    ----------
    config : ConsumerConfig
        ``max_poll_records``, ``consumer_timeout_ms``.
    runtime : ConsumerRuntime
        Where records come from.
    guard : AccessGuard
        Entered for every piece of an iteration.
    converter : RecordConverter
        Knows what empty results look like.
    commits, rebalance, interceptors, metrics
        What else is done in a poll.
    iteration : RecordIteration
        What was polled and not yielded.
    interrupts : Interrupts
        Keep Ctrl-C from losing what was collected.
    lookups : Lookups
        Knows the words for what is not there.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        runtime: ConsumerRuntime,
        guard: AccessGuard,
        converter: RecordConverter,
        commits: ConsumerCommits,
        rebalance: RebalanceRunner,
        interceptors: Interceptors,
        metrics: ConsumerMetrics,
        iteration: RecordIteration,
        interrupts: Interrupts,
        lookups: Lookups,
    ) -> None:
        patience = config.consumer_timeout_ms
        self._patience_ms = FOREVER_MS if math.isinf(patience) else int(patience)
        self._max_records = config.max_poll_records
        self._runtime = runtime
        self._subscriptions = runtime.subscriptions
        self._clock = runtime.clock
        self._guard = guard
        self._converter = converter
        self._commits = commits
        self._rebalance = rebalance
        self._interceptors = interceptors
        self._metrics = metrics
        self._iteration = iteration
        self._interrupts = interrupts
        self._lookups = lookups
        self._seen_subscription = -1
        self._reported: set[str | TopicPartition] = set()
        self._hand_overs = 0

    # --- one poll ---------------------------------------------------------------------------------

    def poll(self, timeout_ms: int, max_records: int | None) -> ConsumerRecords:
        """Return the records that are there, what an iteration has left first.

        They count as handed out once ``RecordIteration.leaving`` is cleared.
        """
        records = ConsumerRecords({}, template=self._converter.template)
        try:
            self._interrupts.begin()
            records = self._next_records(timeout_ms, max_records)
        except BaseException as error:
            self._metrics.poll_ends(records)
            if self._interrupts.end():
                raise KeyboardInterrupt from error
            raise
        self._metrics.poll_ends(records)
        self._iteration.leaving = records
        if self._interrupts.end():
            raise KeyboardInterrupt
        return records

    def _next_records(self, timeout_ms: int, max_records: int | None) -> ConsumerRecords:
        """Poll; interrupts are put off when it returns."""
        now_ms = self._begin()
        if self._iteration.has_rest:
            self._live()
            self._interrupts.defer()
            rest = self._iteration.take_records(max_records, self._converter.template)
            if rest is not None:
                return rest
            self._interrupts.resume()
        return self._poll(now_ms + timeout_ms, max_records)

    def _begin(self) -> int:
        """Begin a poll."""
        now_ms = self._show_life()
        self._hand_overs = self._subscriptions.hand_overs
        self._metrics.poll_begins(now_ms)
        return now_ms

    @property
    def has_handed_over(self) -> bool:
        """Whether the last poll moved positions: no later one says that its records are done."""
        return self._subscriptions.hand_overs != self._hand_overs

    def _show_life(self) -> int:
        """Note that the application is here, and commit what it has done."""
        if not self._subscriptions.has_subscription():
            raise IllegalStateError(
                "poll() without anything to read", hint="subscribe() or assign() first"
            )
        runtime = self._runtime
        runtime.start()
        now_ms = self._clock.now_ms()
        runtime.steps.last_poll_ms = now_ms
        if now_ms >= self._commits.due_ms:
            self._commits.auto_commit_due(now_ms)
        if runtime.awaits_poll:
            runtime.changed()
        return now_ms

    def _live(self) -> None:
        """Do what is due beside reading; three plain looks when nothing is."""
        runtime = self._runtime
        runtime.raise_wakeup()
        if runtime.steps.due is not None:
            self._rebalance.run_due()
        if self._commits.completed:
            self._commits.run_callbacks()

    def _poll(self, deadline_ms: int, max_records: int | None) -> ConsumerRecords:
        """Wait for records; interrupts are put off when it returns."""
        runtime = self._runtime
        interrupts = self._interrupts
        collect = runtime.collector.collect
        template = self._converter.template
        while True:
            # Looked at here and not in there: a call less on the way of every record.
            if runtime.wakeup_requested or runtime.steps.due or self._commits.completed:
                self._live()
            interrupts.defer()
            collected = collect(max_records)
            if collected:
                records = ConsumerRecords(collected, template=template)
                if self._interceptors.sees_records and records:
                    records = self._intercepted(records)
                return records
            interrupts.resume()
            now_ms = self._clock.now_ms()
            runtime.steps.last_poll_ms = now_ms
            remaining_ms = deadline_ms - now_ms
            if remaining_ms <= 0:
                self._raise_why_empty()
                return ConsumerRecords({}, template=template)
            # What became due before `collect` began to listen has signalled already.
            if not (runtime.has_wakeup or runtime.steps.due or self._commits.completed):
                runtime.fetch_buffer.wait(min(remaining_ms, _LONGEST_WAIT_MS) / 1000)

    def _intercepted(self, records: ConsumerRecords) -> ConsumerRecords:
        try:
            return self._interrupts.run(self._interceptors.on_consume, records)
        except BaseException:
            self._iteration.put_back(records)
            raise

    def _raise_why_empty(self) -> None:
        """Raise what explains an empty poll better than an empty result would."""
        error = self._runtime.bootstrap_error()
        if error is not None:
            raise error
        version = self._subscriptions.subscription_version
        if version != self._seen_subscription:
            self._seen_subscription = version
            self._reported.clear()
        for topic in self._runtime.unknown_topics():
            if topic not in self._reported:
                self._reported.add(topic)
                raise self._lookups.unknown_topic_error(topic)
        for tp in self._runtime.unknown_partitions():
            if tp not in self._reported:
                self._reported.add(tp)
                known = self._runtime.metadata.cluster.partitions_for_topic(tp.topic)
                raise unknown_partition(tp, known or ())

    # --- iteration --------------------------------------------------------------------------------

    def batches(
        self,
        patience_ms: int | None,
        consumer: object,  # noqa: ARG002 - whoever iterates keeps it from being collected
    ) -> Iterator[PartitionRecords]:
        """Yield batch after batch until there was none for so long.

        Parameters
        ----------
        patience_ms : int or None
            How long; None means ``consumer_timeout_ms``.
        consumer : object
            Lives until the iteration has ended, even if nobody else knows it.
        """
        patience_ms = self._patience_ms if patience_ms is None else patience_ms
        last_ms = self._clock.now_ms()
        while True:
            with self._guard:
                self._between_pieces()
                rest = self._iteration.next_rest()
                if rest is None:
                    left_ms = patience_ms - (self._clock.now_ms() - last_ms)
                    if left_ms <= 0:
                        return
                    self._fill(left_ms)
                    continue
            yield rest.take(None)
            last_ms = self._clock.now_ms()

    def next_row(self) -> ConsumerRecord:
        """Return the next row, whatever has to be done before it.

        Raises
        ------
        StopIteration
            None came for ``consumer_timeout_ms``.
        """
        start_ms = self._clock.now_ms()
        while True:
            row = self._iteration.next_row()
            if row is not None:
                return row
            with self._guard:
                self._between_pieces()
                if self._iteration.begin_slice():
                    continue
                left_ms = self._patience_ms - (self._clock.now_ms() - start_ms)
                if left_ms <= 0:
                    raise StopIteration
                self._fill(left_ms)

    def _between_pieces(self) -> None:
        """Live between two pieces of one poll as between two polls."""
        if self._iteration.has_rest:
            self._show_life()
            self._live()

    def _fill(self, left_ms: int) -> None:
        try:
            self._interrupts.begin()
            now_ms = self._begin()
            records = self._poll(now_ms + min(left_ms, _LONGEST_WAIT_MS), self._max_records)
            self._iteration.put(records)
            self._metrics.poll_ends(records)
        except BaseException as error:
            if self._interrupts.end():
                raise KeyboardInterrupt from error
            raise
        if self._interrupts.end():
            raise KeyboardInterrupt

    def __repr__(self) -> str:
        return f"<Polling {self._iteration!r}>"
