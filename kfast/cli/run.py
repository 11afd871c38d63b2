"""A read under way: from slices to the sink, and what is written to the group.

Owns signals, the moments at which text is written and offsets are committed, and the counts. A
signal is noted, and acted on between blocks of whole records; a second one ends the process at
once, whatever it waits for. A process that goes on after it was stopped (Ctrl-Z) draws again. Main
thread.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from kfast.cli.output import Output, OutputError
from kfast.cli.progress import Counts, Progress, can_draw
from kfast.cli.reading import Reading, ReadRequest, pattern_of
from kfast.internals import POLL_MS

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import FrameType, TracebackType

    from kfast.cli.sinks import Sink
    from kfast.cli.slices import Slice, SliceConsumer
    from kfast.types import TopicPartition

_FLUSH_MS: Final = 100
"""How long text may wait to be written."""
_READER_MS: Final = 100
"""How often a pipe is looked at while nothing comes: its reader may have gone."""
_COMMIT_MS: Final = 1_000
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STATUS: Final = 128


class Stops:
    """Notes the signals that would end the process, for the length of a ``with`` statement.

    ``wake`` is called when the first one comes: it ends a call that waits. A signal that is ignored
    stays ignored (``nohup``). ``go_on`` is called when a stopped process goes on.
    """

    def __init__(self, wake: Callable[[], None], go_on: Callable[[], None] = lambda: None) -> None:
        self.received: signal.Signals | None = None
        self._wake = wake
        self._go_on = go_on
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stops:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._note)
        self._handlers[signal.SIGCONT] = signal.signal(signal.SIGCONT, self._continue)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def deliver(self) -> None:
        """Hand the signal that was noted to the handler there was before."""
        if self.received is not None:
            signal.raise_signal(self.received)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            os._exit(_STATUS + number)
        self.received = signal.Signals(number)
        self._wake()

    def _continue(self, _number: int, _frame: FrameType | None) -> None:
        self._go_on()


class Run:
    """Reads a request into a sink; a listener of the group's rebalances too.

    ``limit`` is the most records to write, None for all. With ``commits_at_end`` nothing is
    committed before the caller has completed its files.
    """

    def __init__(
        self,
        consumer: SliceConsumer,
        output: Output,
        request: ReadRequest,
        *,
        limit: int | None,
        commits: bool,
        commits_at_end: bool,
        is_quiet: bool,
        is_verbose: bool,
    ) -> None:
        self._consumer = consumer
        self._output = output
        self._request = request
        self._limit = limit
        self._is_quiet = is_quiet
        self._is_terminal = output.isatty()
        self._commits = request.has_group and commits
        self._commits_on_the_way = self._commits and not commits_at_end
        self._taken: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}
        self._flush_ms = self._commit_ms = _now_ms()
        self._partitions: set[TopicPartition] = set()
        self.counts = Counts()
        self.reading = Reading(
            consumer, request, max_wait_ms=self._before_poll, stopped=self._is_stopped
        )
        self.progress = Progress(
            ", ".join(request.topics),
            self.reading,
            self.counts,
            is_drawn=can_draw(2) and not self._is_terminal,
            is_quiet=is_quiet,
            is_verbose=is_verbose,
            has_end=not (request.follows or request.has_group),
        )
        self.stops = Stops(consumer.wakeup, self.progress.draw_soon)

    def find(self) -> None:
        """Look up what there is to read and begin to fetch it, or join the group."""
        if not self._request.has_group:
            self.reading.find()
            return
        topics = self._request.topics
        pattern = pattern_of(topics)
        self._consumer.subscribe(() if pattern else topics, pattern=pattern, listener=self)

    def write(self, sink: Sink) -> None:
        """Read to the end, to the limit or until a signal comes, and write all of it."""
        self._sink = sink
        with self.stops:
            try:
                sink.begin()
                self._read()
            except (BrokenPipeError, OutputError):
                raise
            except BaseException:
                sink.end()
                raise
            finally:
                self.progress.clear()
            sink.end()
            self._note_written()

    def commit(self) -> None:
        """Commit what has been written, and wait for it."""
        if self._commits and self._written:
            self._consumer.commit(self._take_written())

    # --- reading ----------------------------------------------------------------------------------

    def _read(self) -> None:
        for rows in self.reading.slices():
            most = None if self._limit is None else self._limit - self.counts.records
            used, written = self._sink.put(rows, most, self._is_stopped)
            self._count(rows[:used], written)
            self.progress.update()
            if self.counts.records == self._limit or self._is_stopped():
                return

    def _count(self, rows: Slice, written: int) -> None:
        counts = self.counts
        counts.records += written
        counts.nulled, counts.skipped = self._sink.nulled, self._sink.skipped
        if not len(rows):
            return
        counts.nbytes += rows.nbytes
        offsets = rows.offsets
        counts.first_offset = min(
            offsets[0] if counts.first_offset is None else counts.first_offset, offsets[0]
        )
        counts.last_offset = max(offsets[-1], counts.last_offset)
        self._partitions.add(rows.topic_partition)
        counts.partitions = len(self._partitions)
        self._taken[rows.topic_partition] = rows.next_offset

    def _is_stopped(self) -> bool:
        return self.stops.received is not None

    def _before_poll(self) -> int:
        """Write and commit what is due; return how long a poll may wait, in ms."""
        self.progress.update()
        now_ms = _now_ms()
        wait_ms = POLL_MS
        if self._is_stopped():
            wait_ms = 0
        elif not self._sink.is_pending:
            wait_ms = _READER_MS if self._output.has_reader() else POLL_MS
            self._flush_ms = now_ms
        else:
            wait_ms = self._flush_ms + _FLUSH_MS - now_ms
            if wait_ms <= 0 or self._is_terminal:
                self._flush()
                wait_ms = POLL_MS
        if self._commits_on_the_way and self._written and now_ms >= self._commit_ms + _COMMIT_MS:
            self._commit_ms = now_ms
            self._consumer.commit_async(self._take_written())
        return wait_ms

    def _flush(self) -> None:
        self._sink.flush()
        self._note_written()

    def _note_written(self) -> None:
        self._flush_ms = _now_ms()
        self._written |= self._taken
        self._taken.clear()

    def _take_written(self) -> dict[TopicPartition, int]:
        written, self._written = self._written, {}
        return written

    # --- the group's rebalances -------------------------------------------------------------------

    def on_partitions_assigned(self, _assigned: object, /) -> None:
        """Do nothing."""

    def on_partitions_revoked(self, revoked: Collection[TopicPartition], /) -> None:
        """Write and commit what the next member must not read again."""
        if self._commits_on_the_way:
            self._flush()
            self.commit()
        self._forget(revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition], /) -> None:
        """Say so: others may read again what is not committed."""
        self._forget(lost)
        if lost and not self._is_quiet:
            self.progress.clear()
            click.echo(
                f"the group has taken {len(lost)} partitions from this member, which did not "
                "answer in time; records may be read twice",
                err=True,
            )

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self._taken.pop(tp, None)
            self._written.pop(tp, None)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
