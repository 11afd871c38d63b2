"""Polling: ``poll``, and the iteration over batches and rows that is made of it.

Owns what happens inside ``poll`` on the application thread, in order: auto-commit of what earlier
polls handed out, then a loop of wakeups, rebalance steps, callbacks of commits, collecting records
and waiting, until there are records or the time is over. Any of it may be interrupted by what a
signal handler raises: taking records is one step (`FetchCollector`), and what was taken and not
returned is handed out by the next call (`Rests`).

With nothing due, membership in a group costs a poll three reads of plain attributes.

What cannot get better by waiting is raised as soon as it is certain, in the middle of a wait; what
is known by then, once the time of a call is up (`EmptyPolls`):

| | certain | known |
|---|---|---|
| no broker was ever reached | `ConsumerRuntime.unreachable_since` | an attempt has failed |
| a subscribed topic does not exist | `UnknownTopicCheck` | the last metadata is without it |
| a topic is without an assigned partition | `UnknownTopicCheck` | the last metadata is without it |
| an error is retried | `RetriedErrors`, no position is there | `RetriedErrors`, one is missing |

What is known of errors that are retried is raised by an iteration, the end of which would look like
the end of the data, and by no poll: a coordinator that moves is back soon.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kfast.application.arguments import FOREVER_MS
from kfast.consumer.retried_errors import Stage
from kfast.consumer.subscription import SubscriptionType
from kfast.consumer.unknown_topic_check import UnknownTopicCheck, is_unknown, unknown_error
from kfast.errors import IllegalStateError
from kfast.threads.application_event import LONGEST_WAIT_MS
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast.application.lookups import Lookups
    from kfast.application.rests import Rest
    from kfast.application.shared_parts import SharedParts
    from kfast.errors import KafkaError, UnknownTopicOrPartitionError
    from kfast.records.consumer_record import ConsumerRecord
    from kfast.records.consumer_records import ConsumerRecords
    from kfast.records.partition_records import PartitionRecords
    from kfast.threads.consumer_runtime import ConsumerRuntime


class Polling:
    """Polls for one consumer."""

    def __init__(self, shared: SharedParts) -> None:
        config = shared.config
        timeout_ms = config.consumer_timeout_ms
        self._consumer_timeout_ms = FOREVER_MS if math.isinf(timeout_ms) else int(timeout_ms)
        self._max_records = config.max_poll_records
        self._runtime = shared.runtime
        self._subscriptions = shared.runtime.subscriptions
        self._clock = shared.runtime.clock
        self._guard = shared.guard
        self._converter = shared.converter
        self._commits = shared.commits
        self._rebalance = shared.rebalance
        self._leave_group = shared.leave_group
        self._interceptors = shared.interceptors
        self._metrics = shared.metrics
        self._iteration = shared.iteration
        self._empty_polls = EmptyPolls(shared.runtime, shared.lookups)

    # --- one poll ---------------------------------------------------------------------------------

    def poll(self, timeout_ms: int, max_records: int | None) -> ConsumerRecords:
        """Return the available records, the rest of an iteration first.

        They count as handed out once ``FetchCollector.undelivered`` is cleared.
        """
        now_ms = self._begin()
        records = self._rest(max_records) if self._iteration.rests else None
        if records is None:
            deadline_ms = self._clock.deadline_ms(timeout_ms) if timeout_ms else now_ms
            records = self._poll(deadline_ms, max_records, now_ms)
        if records is None and self._iteration.rests:
            records = self._rest(max_records)
        if records is None:
            self._empty_polls.raise_known(is_end=False)
            records = self._converter.records({})
        self._metrics.poll_ends(records)
        return records

    def _rest(self, max_records: int | None) -> ConsumerRecords | None:
        """Return the records that iteration, or an interrupted call, has left."""
        self._run_due_work()
        return self._iteration.take_records(max_records, self._converter.records)

    def _begin(self) -> int:
        """Begin a poll."""
        now_ms = self._note_poll()
        self._metrics.poll_begins(now_ms)
        return now_ms

    def _note_poll(self) -> int:
        """Note that the application polls, for max.poll.interval.ms, and auto-commit if due."""
        self._leave_group.finish()
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
        if runtime.needs_poll_to_join:
            runtime.changed()
        return now_ms

    def _run_due_work(self) -> None:
        """Raise a wakeup, run a rebalance step and callbacks of commits."""
        runtime = self._runtime
        runtime.raise_wakeup()
        if runtime.steps.due is not None:
            self._rebalance.run_due()
        if self._commits.completed:
            self._commits.run_callbacks()

    def _poll(
        self, deadline_ms: int, max_records: int | None, begun_ms: int
    ) -> ConsumerRecords | None:
        """Wait for records, None: none in time, or there is a rest of an iteration to take.

        The caller has waited since ``begun_ms``.
        """
        runtime = self._runtime
        collect = runtime.collector.collect
        rests = self._iteration.rests
        check_ms = begun_ms + LONGEST_WAIT_MS
        while True:
            # Checked here and not in the method: one call less per poll.
            if runtime.wakeup_requested or runtime.steps.due or self._commits.completed:
                self._run_due_work()
            waiting = self._iteration.waiting() if rests else ()
            if waiting is None:  # a callback or a listener has resumed the partition of a rest
                return None
            records: ConsumerRecords | None = collect(max_records, waiting, self._prepare)
            if records is not None:
                return records
            now_ms = self._clock.now_ms()
            runtime.steps.last_poll_ms = now_ms
            if now_ms >= check_ms:
                check_ms = now_ms + LONGEST_WAIT_MS
                self._empty_polls.raise_certain(begun_ms)
            remaining_ms = deadline_ms - now_ms
            if remaining_ms <= 0:
                return None
            # What became due before `collect` has signalled already: look before waiting.
            is_due = runtime.steps.due is not None and self._rebalance.can_run
            if not (is_due or runtime.has_wakeup or self._commits.completed):
                runtime.announce_changes()
                runtime.wakeup_event.wait(min(remaining_ms, LONGEST_WAIT_MS) / 1000)

    def _prepare(self, collected: dict[TopicPartition, PartitionRecords]) -> ConsumerRecords:
        """Make what a poll returns; the positions move if nothing raises."""
        records = self._converter.records(collected)
        if self._interceptors.sees_records and records:
            records = self._interceptors.on_consume(records)
        return records

    # --- iteration --------------------------------------------------------------------------------

    def batches(self, timeout_ms: int | None, consumer: object) -> Batches:
        """Return an iterator over batches; ``timeout_ms`` None: ``consumer_timeout_ms``."""
        timeout_ms = self._consumer_timeout_ms if timeout_ms is None else timeout_ms
        return Batches(self, timeout_ms, consumer)

    def next_piece(self, timeout_ms: int) -> tuple[list[PartitionRecords], Rest | None] | None:
        """Return batches without a row, or the next rest; None: there was none for so long."""
        begun_ms, deadline_ms = self._clock.now_ms(), self._clock.deadline_ms(timeout_ms)
        while True:
            with self._guard:
                self._between_pieces()
                skipped = self._iteration.rests.skipped
                if skipped:
                    return skipped, None
                rest = self._iteration.next_rest()
                if rest is not None:
                    return skipped, rest
                if not self._fill(begun_ms, deadline_ms):
                    return None

    def next_row(self) -> ConsumerRecord:
        """Return the next row, polling if need be; StopIteration after ``consumer_timeout_ms``."""
        begun_ms = self._clock.now_ms()
        deadline_ms = self._clock.deadline_ms(self._consumer_timeout_ms)
        while True:
            row = self._iteration.next_row()
            if row is not None:
                return row
            with self._guard:
                self._between_pieces()
                if self._iteration.begin_slice():
                    continue
                if not self._fill(begun_ms, deadline_ms):
                    raise StopIteration

    def _between_pieces(self) -> None:
        """Between two pieces of one poll, do what is due between two polls."""
        if self._iteration.rests:
            self._note_poll()
            self._run_due_work()

    def _fill(self, begun_ms: int, deadline_ms: int) -> bool:
        """Poll for an iteration that has waited since ``begun_ms``; return whether to go on."""
        if self._clock.now_ms() >= deadline_ms:
            self._empty_polls.raise_known(is_end=True)
            return False
        now_ms = self._begin()
        until_ms = min(deadline_ms, now_ms + LONGEST_WAIT_MS)
        records = self._poll(until_ms, self._max_records, begun_ms)
        if records is not None:
            self._metrics.poll_ends(records)
            self._iteration.rests.keep_undelivered()
        return True

    def __repr__(self) -> str:
        return f"<Polling {self._iteration!r}>"


class Batches:
    """Iterator over the batches of one consumer, which it keeps from being collected."""

    __slots__ = ("_consumer", "_polling", "_timeout_ms")

    def __init__(self, polling: Polling, timeout_ms: int, consumer: object) -> None:
        self._polling = polling
        self._timeout_ms = timeout_ms
        self._consumer = consumer

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> PartitionRecords:
        piece = self._polling.next_piece(self._timeout_ms)
        if piece is None:
            raise StopIteration
        skipped, rest = piece
        # The last instruction before each return is the one by which the batch counts.
        if rest is None:
            batch = skipped[0]
            del skipped[0]
            return batch
        stop = len(rest.batch)
        batch = rest.batch[rest.taken :] if rest.taken else rest.batch
        rest.taken = stop
        return batch

    def __repr__(self) -> str:
        return f"<Batches timeout_ms={self._timeout_ms} of {self._consumer!r}>"


class EmptyPolls:
    """Raises why there are no records.

    An unknown topic or partition is reported once per subscription and waited for from then on. An
    assigned topic that does not exist is waited for without an error.
    """

    def __init__(self, runtime: ConsumerRuntime, lookups: Lookups) -> None:
        self._runtime = runtime
        self._lookups = lookups
        self._subscription_version = -1
        self._metadata_version = -1
        self._check = UnknownTopicCheck(runtime.metadata, 0)
        self._unknown: list[TopicPartition] = []
        self._reported: set[TopicPartition] = set()

    def raise_certain(self, begun_ms: int) -> None:
        """Raise what waiting on would not change, for a call that has waited since ``begun_ms``."""
        error = self._runtime.unreachable_since(begun_ms) or self._retried_error(is_certain=True)
        if error is not None:
            raise error
        missing = self._find_unknown()
        unknown = self._check.check(missing)
        if unknown is not None:
            self._report(unknown, is_urgent=True)

    def raise_known(self, *, is_end: bool) -> None:
        """Raise what the time of a call was too short to be certain of.

        With ``is_end`` an iteration would end now, which must not look like the end of the data.
        Else the caller polls again, and connecting takes its time.
        """
        runtime = self._runtime
        error = runtime.why_unreachable() if is_end else runtime.bootstrap_error()
        error = error or self._retried_error(is_certain=not is_end)
        if error is not None:
            raise error
        unknown = self._find_unknown()
        if unknown and not runtime.metadata.allow_auto_topic_creation:
            self._report(unknown_error(runtime.metadata, unknown[0]), is_urgent=is_end)

    def _retried_error(self, *, is_certain: bool) -> KafkaError | None:
        """Return the error that is retried and leaves nothing to read, None if there is none."""
        runtime = self._runtime
        if not runtime.retries.failing:
            return None
        now_ms = runtime.clock.now_ms()
        positions = [state.position for state in runtime.subscriptions.snapshot()]
        if is_certain:
            reason = None if any(positions) else runtime.retries.certain(now_ms)
        else:
            reason = runtime.retries.timeout_reason(now_ms)
            if reason is not None and reason.stage is not Stage.TOPICS and all(positions):
                is_waiting = not positions and runtime.subscriptions.is_automatic
                reason = reason if is_waiting else None
        return None if reason is None else runtime.retries.raised(reason, now_ms)

    def _find_unknown(self) -> list[TopicPartition]:
        """Return the unknown partitions not reported yet, a topic as its first partition."""
        subscriptions, metadata = self._runtime.subscriptions, self._runtime.metadata
        metadata_version = metadata.version  # before its content
        if subscriptions.subscription_version != self._subscription_version:
            self._subscription_version = subscriptions.subscription_version
            self._check = UnknownTopicCheck(metadata, self._runtime.clock.now_ms())
            self._reported.clear()
        elif metadata_version == self._metadata_version:
            return self._unknown
        self._metadata_version = metadata_version
        expected: set[TopicPartition] = set()
        if subscriptions.subscription_type is SubscriptionType.AUTO_TOPICS:
            expected = {TopicPartition(topic, 0) for topic in subscriptions.subscription()}
        elif subscriptions.subscription_type is SubscriptionType.USER_ASSIGNED:
            topics = metadata.cluster.topics
            expected = {tp for tp in subscriptions.assigned_partitions() if tp.topic in topics}
        self._unknown = sorted(tp for tp in expected - self._reported if is_unknown(metadata, tp))
        return self._unknown

    def _report(self, error: UnknownTopicOrPartitionError, *, is_urgent: bool) -> None:
        """Raise the error with the nearest name; if that is not known yet only if it is urgent."""
        named = self._lookups.missing_topic_error(error, is_urgent=is_urgent)
        if named is None:
            return
        reported = TopicPartition(error.topic or "", error.partition or 0)
        self._unknown = [tp for tp in self._unknown if tp != reported]
        self._reported.add(reported)
        raise named

    def __repr__(self) -> str:
        return f"<EmptyPolls unknown={self._unknown} reported={len(self._reported)}>"
