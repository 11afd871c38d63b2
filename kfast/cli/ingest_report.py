"""What ``kfast ingest`` prints, and how signals end it, on whichever engine it runs."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from kfast._base.clock import SystemClock
from kfast.columns.table_text import shown, text_table
from kfast.table.ingest_lines import IngestLines
from kfast.table.offsets_json import to_json_dict

if TYPE_CHECKING:
    from kfast import IngestSummary
    from kfast.cli.options import Common
    from kfast.table.entries import Entry
    from kfast.table.ingest.planning import PlannedRange
    from kfast.table.ingest_watcher import IngestWatcher

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PLAN: Final = ("topic", "partition", "from", "until", "records")


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
    """Return what writes lines for a log where standard error is no terminal, and the summary."""
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
