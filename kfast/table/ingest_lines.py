"""IngestLines: lines about an ingest for the log of a service, of cron or of a container.

Owns their text and when they come: one at the start, one a minute whether records come or not, and
a summary at the end, after an error too, of what was published before it. Numbers are those of
manifests. All callers have the same lines: ``kfast ingest`` and the ingest of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kfast.table.ingest_totals import IngestTotals
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast.table.entries import Entry
    from kfast.table.ingest_watcher import IngestStart, ReadLag

EVERY_MS: Final = 60_000
_SHOWN: Final = 12


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
