"""The output of ``kfast ingest``, and how signals end it, on whichever engine it runs.

`IngestLines` are the lines for the log of a service, of cron or of a container: one at the start,
one a minute whether records come or not, and a summary at the end, after an error too, of the
batches that were published before it. Numbers are those of manifests.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from kfast._base.clock import SystemClock
from kfast.columns.table_text import shown, text_table
from kfast.table.ingest_totals import IngestTotals
from kfast.table.offsets_json import to_json_dict
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast import IngestSummary
    from kfast._base.clock import Clock
    from kfast.cli.options import Common
    from kfast.table.entries import Entry
    from kfast.table.ingest.planning import PlannedRange
    from kfast.table.ingest_watcher import IngestStart, IngestWatcher, ReadLag

EVERY_MS: Final = 60_000
_SHOWN: Final = 12
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PLAN: Final = ("topic", "partition", "from", "until", "records")


class IngestLines:
    """The lines of one ingest, given to ``write`` without a line end; an `IngestWatcher`.

    Without ``is_log`` there is the summary alone, as on a terminal, where other lines say how far
    it is. Without ``has_summary`` it comes after an error only.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        clock: Clock,
        *,
        is_log: bool = True,
        has_summary: bool = True,
        every_ms: int = EVERY_MS,
    ) -> None:
        self._write = write
        self._clock = clock
        self._is_log = is_log
        self._has_summary = has_summary
        self._every_ms = every_ms
        self._url = ""
        self._began_ms = self._line_ms = 0
        self._totals = IngestTotals()
        self._line_rows = self._line_bytes = 0

    def begin(self, start: IngestStart) -> None:
        """Write the first line: table, topics, partitions, and where it goes on."""
        self._url = start.url
        self._began_ms = self._line_ms = self._clock.now_ms()
        self._totals.partitions = len(start.begins)
        if self._is_log:
            fields = [f"{start.url}: ingest of {start.topics} begins"]
            if start.begins:
                count = len(start.begins)
                fields.append(f"{count} partitions from {offsets_text(start.begins)}")
            if start.offsets is not None:
                fields.append(f"{start.offsets:,} offsets to read")
            self._write(f"{', '.join(fields)}; the table has {start.rows:,} rows")

    def add(self, entry: Entry) -> None:
        """Count a batch."""
        self._totals.add(entry)

    def tick(self, lag: ReadLag) -> None:
        """Write a line if the last one was a minute ago."""
        now_ms = self._clock.now_ms()
        if not self._is_log or not self._url or now_ms - self._line_ms < self._every_ms:
            return
        totals, seconds = self._totals, (now_ms - self._line_ms) / 1000
        rows, nbytes = totals.rows - self._line_rows, totals.bytes - self._line_bytes
        behind = lag()
        fields = [
            f"{rows:,} rows",
            f"{nbytes / 1e6:,.1f} MB in {seconds:.0f} s",
            f"lag {'unknown' if behind is None else f'{behind:,}'}",
            f"{totals.rows:,} rows since the start",
            *totals.losses,
        ]
        self._write(f"{self._url}: {', '.join(fields)}")
        self._line_ms, self._line_rows, self._line_bytes = now_ms, totals.rows, totals.bytes

    def close(self, *, is_complete: bool) -> None:
        """Write the summary, unless the ingest has not begun."""
        if not self._url or (is_complete and not self._has_summary):
            return
        totals, seconds = self._totals, (self._clock.now_ms() - self._began_ms) / 1000
        fields = [
            f"{totals.rows:,} rows",
            f"{totals.bytes / 1e6:,.1f} MB",
            f"{totals.files} files",
            f"{totals.partitions} partitions",
            *(text for text in totals.losses if not text.startswith("0 ")),
            f"{seconds:.1f} s",
        ]
        ended = "" if is_complete else "; then it failed, and the next run goes on there"
        self._write(f"{self._url}: {', '.join(fields)}{ended}")

    def __repr__(self) -> str:
        return f"<IngestLines of {self._url or 'an ingest that has not begun'}>"


def offsets_text(ends: Mapping[TopicPartition, int]) -> str:
    """Return topics with the offsets of their partitions, a few of them."""
    by_topic: dict[str, list[str]] = {}
    for tp in sorted(ends)[:_SHOWN]:
        by_topic.setdefault(tp.topic, []).append(f"{tp.partition}:{ends[tp]}")
    text = ", ".join(f"{topic} {' '.join(offsets)}" for topic, offsets in by_topic.items())
    return text + (f" and {len(ends) - _SHOWN} more" if len(ends) > _SHOWN else "")


@contextmanager
def ended_by_signals(stop: Callable[[], object]) -> Iterator[Sequence[signal.Signals]]:
    """Call ``stop`` at the first signal; a second one is handled as before. Yields them."""
    received: list[signal.Signals] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number))
        stop()
        handler = previous[received[-1]]
        if len(received) > 1 and callable(handler):
            handler(number, frame)

    previous = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def ingest_watchers(common: Common, *, has_summary: bool) -> Sequence[IngestWatcher]:
    """Return the watcher of an ingest; it logs lines where standard error is no terminal."""
    if common.is_quiet:
        return ()
    is_terminal = sys.stderr.isatty()

    def write(line: str) -> None:
        with suppress(OSError):  # what reads the log is gone, or its disk is full: no reason to end
            click.echo(shown(line), err=True)

    return (IngestLines(write, SystemClock(), is_log=not is_terminal, has_summary=has_summary),)


class BatchLines:
    """A line for each batch that is published, with its rate: on a terminal, and with ``-v``."""

    def __init__(self, common: Common, clock: Callable[[], float] = time.monotonic) -> None:
        is_asked_for = sys.stderr.isatty() or common.verbosity > 0
        self._is_shown = is_asked_for and not common.is_quiet
        self._clock = clock
        self._last = clock()

    def published(self, entry: Entry) -> None:
        """Print the line."""
        files = entry.counts.files
        if not self._is_shown or not (files or entry.counts.rows):
            return
        now = self._clock()
        seconds, self._last = max(now - self._last, 0.001), now
        rate = f"{entry.counts.rows / seconds:,.0f} rows/s"
        speed = f"{entry.counts.bytes / 1e6 / seconds:,.1f} MB/s"
        named = "1 file" if files == 1 else f"{files} files" if files else "a merge"
        click.echo(f"published {entry.counts.rows:,} rows in {named}, {rate}, {speed}", err=True)


def print_plan(planned: Sequence[PlannedRange], output: str) -> None:
    """Print what a run would read: the table of ``--dry-run``, or its JSON."""
    rows = [
        (*row.topic_partition, row.from_offset, row.until_offset, row.offsets) for row in planned
    ]
    if output == "json":
        click.echo(json.dumps([dict(zip(_PLAN, row, strict=True)) for row in rows]))
        return
    cells = [[str(cell) for cell in row] for row in rows]
    right = [name != "topic" for name in _PLAN]
    width = None if sys.stdout.isatty() else sys.maxsize
    click.echo(text_table(_PLAN, cells, right=right, width=width))


def report_end(
    common: Common,
    summary: IngestSummary,
    signals: Sequence[signal.Signals],
    *,
    is_json: bool,
    is_follow: bool,
) -> None:
    """Print the summary in JSON; raise the first signal again unless it is how a run ends."""
    if is_json:
        click.echo(_summary_json(summary))
    if signals and not is_follow:
        if not common.is_quiet:
            click.echo(f"interrupted after {summary.rows:,} rows were published", err=True)
        signal.raise_signal(signals[0])


def _summary_json(summary: IngestSummary) -> str:
    return json.dumps(
        {
            "rows": summary.rows,
            "bytes": summary.bytes,
            "files": summary.files,
            "batches": summary.batches,
            "seconds": summary.seconds,
            "lost_offsets": summary.lost_offsets,
            "bad_records": summary.bad_records,
            "dead_letters": summary.dead_letters,
            "unknown_fields": summary.unknown_fields,
            "ends": to_json_dict(summary.ends),
        }
    )
