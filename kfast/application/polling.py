"""Polling: ``poll``, and the iteration over batches and rows that is made of it.

Owns what happens inside ``poll`` on the application thread, in order: auto-commit of what earlier
polls handed out, then a loop of wakeups, rebalance steps, callbacks of commits, collecting records
and waiting, until there are records or the time is over. Nothing that can raise runs after
positions have moved; a Ctrl-C that comes then is raised once the records are kept for the next
poll.

With nothing due, membership in a group costs a poll three reads of plain attributes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kfast.application.arguments import FOREVER_MS
from kfast.application.empty_polls import EmptyPolls
from kfast.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfast.application.shared_parts import SharedParts
    from kfast.records.consumer_record import ConsumerRecord
    from kfast.records.consumer_records import ConsumerRecords
    from kfast.records.partition_records import PartitionRecords

_LONGEST_WAIT_MS: Final = 250
"""Longest single wait: how often ``last_poll_ms`` is renewed while the application is in ``poll``.

It also bounds the delay of a Ctrl-C that comes just as a wait begins: the interpreter checks for
signals before the wait, and nothing ends a wait that begins after the signal.
"""


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
        self._interceptors = shared.interceptors
        self._metrics = shared.metrics
        self._iteration = shared.iteration
        self._interrupts = shared.interrupts
        self._empty_polls = EmptyPolls(shared.runtime, shared.lookups)
        self._advances = 0

    # --- one poll ---------------------------------------------------------------------------------

    def poll(self, timeout_ms: int, max_records: int | None) -> ConsumerRecords:
        """Return the available records, the rest of an iteration first.

        They count as handed out once ``RecordIteration.returning`` is cleared.
        """
        records = self._converter.records({})
        try:
            self._interrupts.begin()
            records = self._next_records(timeout_ms, max_records)
        except BaseException as error:
            self._metrics.poll_ends(records)
            if self._interrupts.end():
                raise KeyboardInterrupt from error
            raise
        self._metrics.poll_ends(records)
        self._iteration.returning = records
        if self._interrupts.end():
            raise KeyboardInterrupt
        return records

    def _next_records(self, timeout_ms: int, max_records: int | None) -> ConsumerRecords:
        """Poll; interrupts are deferred when it returns."""
        now_ms = self._begin()
        records = self._rest(max_records) if self._iteration.has_rest else None
        if records is None:
            deadline_ms = self._clock.deadline_ms(timeout_ms) if timeout_ms else now_ms
            records = self._poll(deadline_ms, max_records, now_ms)
        if records is None and self._iteration.rests:
            records = self._rest(max_records)
        if records is None:
            self._empty_polls.raise_known(is_end=False)
            return self._converter.records({})
        return records

    def _rest(self, max_records: int | None) -> ConsumerRecords | None:
        """Return what iteration has left; interrupts are deferred when it returns records."""
        self._run_due_work()
        self._interrupts.defer()
        rest = self._iteration.take_records(max_records, self._converter.records)
        if rest is None:
            self._interrupts.resume()
        return rest

    def _begin(self) -> int:
        """Begin a poll."""
        now_ms = self._note_poll()
        self._advances = self._subscriptions.advances
        self._metrics.poll_begins(now_ms)
        return now_ms

    @property
    def has_advanced_positions(self) -> bool:
        """Whether the last poll moved positions: no later poll confirms its records."""
        return self._subscriptions.advances != self._advances

    def _note_poll(self) -> int:
        """Note that the application polls, for max.poll.interval.ms, and auto-commit if due."""
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

        The caller has waited since ``begun_ms``. Interrupts are deferred when it returns records.
        """
        runtime = self._runtime
        interrupts = self._interrupts
        collect = runtime.collector.collect
        iteration = self._iteration
        check_ms = begun_ms + _LONGEST_WAIT_MS
        while True:
            # Checked here and not in the method: one call less per poll.
            if runtime.wakeup_requested or runtime.steps.due or self._commits.completed:
                self._run_due_work()
            waiting = iteration.waiting() if iteration.rests else ()
            if waiting is None:  # a callback or a listener has resumed the partition of a rest
                return None
            interrupts.defer()
            collected = collect(max_records, waiting)
            if collected:
                records = self._converter.records(collected)
                if self._interceptors.sees_records and records:
                    records = self._intercepted(records)
                return records
            interrupts.resume()
            now_ms = self._clock.now_ms()
            runtime.steps.last_poll_ms = now_ms
            if now_ms >= check_ms:
                check_ms = now_ms + _LONGEST_WAIT_MS
                self._empty_polls.raise_certain(begun_ms)
            remaining_ms = deadline_ms - now_ms
            if remaining_ms <= 0:
                return None
            # What became due before `collect` has signalled already: look before waiting.
            if not (runtime.has_wakeup or runtime.steps.due or self._commits.completed):
                runtime.fetch_buffer.wait(min(remaining_ms, _LONGEST_WAIT_MS) / 1000)

    def _intercepted(self, records: ConsumerRecords) -> ConsumerRecords:
        try:
            return self._interrupts.run(self._interceptors.on_consume, records)
        except BaseException:
            self._iteration.put_back(records)
            raise

    # --- iteration --------------------------------------------------------------------------------

    def batches(
        self,
        timeout_ms: int | None,
        consumer: object,  # noqa: ARG002 - the generator keeps it from being collected
    ) -> Iterator[PartitionRecords]:
        """Yield batches until there was none for ``timeout_ms``, None: ``consumer_timeout_ms``."""
        timeout_ms = self._consumer_timeout_ms if timeout_ms is None else timeout_ms
        begun_ms, deadline_ms = self._clock.now_ms(), self._clock.deadline_ms(timeout_ms)
        while True:
            with self._guard:
                self._between_pieces()
                batch = self._iteration.next_skipped()
                rest = None if batch is not None else self._iteration.next_rest()
                if batch is None and rest is None:
                    if not self._fill(begun_ms, deadline_ms):
                        return
                    continue
            if rest is not None:
                batch = rest.take(None)
            assert batch is not None
            yield batch
            begun_ms, deadline_ms = self._clock.now_ms(), self._clock.deadline_ms(timeout_ms)

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
        if self._iteration.has_rest:
            self._note_poll()
            self._run_due_work()

    def _fill(self, begun_ms: int, deadline_ms: int) -> bool:
        """Poll for an iteration that has waited since ``begun_ms``; return whether to go on."""
        if self._clock.now_ms() >= deadline_ms:
            self._empty_polls.raise_known(is_end=True)
            return False
        try:
            self._interrupts.begin()
            now_ms = self._begin()
            until_ms = min(deadline_ms, now_ms + _LONGEST_WAIT_MS)
            records = self._poll(until_ms, self._max_records, begun_ms)
            if records is None:
                records = self._converter.records({})
            self._iteration.put(records)
            self._metrics.poll_ends(records)
        except BaseException as error:
            if self._interrupts.end():
                raise KeyboardInterrupt from error
            raise
        if self._interrupts.end():
            raise KeyboardInterrupt
        return True

    def __repr__(self) -> str:
        return f"<Polling {self._iteration!r}>"
