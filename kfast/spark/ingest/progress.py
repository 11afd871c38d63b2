"""IngestProgress: the progress lines of a running ingest.

Owns the text for a terminal: one line per batch and a summary. Others that report on the ingest,
such as the lines for a log, are its watchers, and get each batch from here. Rows, bytes, offsets
and what was not read as it is in Kafka come from the table's log, which has them for every writer;
time and lag from Spark. Pure but for reading the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kfast.spark.source.query_lag import progress_offsets, query_lag
from kfast.table.entries import Entry, Writer
from kfast.table.ingest_lines import offsets_text
from kfast.table.ingest_watcher import IngestStart, IngestWatcher
from kfast.table.offsets_json import format_partitions
from kfast.table.read_counts import ReadCounts, SkippedBatch
from kfast.table.table_log import TableLog
from kfast.types import TopicPartition


class IngestProgress:
    """The progress of one run of a query, which began at ``now_ms``."""

    def __init__(
        self,
        log: TableLog,
        writer: Writer,
        now_ms: int,
        watchers: Sequence[IngestWatcher] = (),
    ) -> None:
        self._log = log
        self._watchers = watchers
        self._writer = writer
        self._began_ms = now_ms
        self._seen = -1
        last = log.last()
        self._begin = -1 if last is None or last.batch_id is None else last.batch_id
        """The newest batch of the runs before; this run may repeat it."""
        self._batches = 0
        self._files = 0
        self._bytes = 0
        self._counts = ReadCounts()
        self._dead_letters = 0
        self._anew: set[TopicPartition] = set()
        self._gone: set[TopicPartition] = set()
        self._last: Entry | None = None
        self._lag: int | None = None

    def begin(self, topics: str) -> None:
        """Report the start to the watchers; ``topics`` is for people."""
        last = self._log.last()
        assert last is not None  # the query has begun to write the table
        start = IngestStart(self._log.store.url, topics, last.ends, None, last.rows)
        for watcher in self._watchers:
            watcher.begin(start)

    def tick(self) -> None:
        """Let the watchers report what is due."""
        for watcher in self._watchers:
            watcher.tick(lambda: self._lag)

    def close(self, *, is_complete: bool) -> None:
        """Let the watchers report the rest; after `summary`, which counts the last batch."""
        for watcher in self._watchers:
            watcher.close(is_complete=is_complete)

    def lines(self, progresses: Iterable[Any]) -> Iterator[str]:
        """Yield a line for each new batch of ``StreamingQuery.recentProgress``."""
        for progress in progresses:
            batch_id = int(progress.batchId)
            if batch_id <= self._seen:
                continue
            entry = self._entry(batch_id)
            if entry is None:  # no new records: Spark reports the next batch
                self._lag = _lag(progress)
                continue
            self._seen = batch_id
            self._count(entry)
            self._lag = _lag(progress)
            yield batch_line(entry, int(progress.batchDuration), self._lag)

    def _entry(self, batch_id: int) -> Entry | None:
        """The entry of a batch, None if there is none of this writer."""
        entry = self._log.published(self._writer, batch_id)
        return None if entry is None or entry.writer.id != self._writer.id else entry

    def _count(self, entry: Entry) -> None:
        self._batches += 1
        self._files += entry.counts.files
        self._counts.add(counts_of(entry))
        self._bytes += entry.counts.bytes
        self._dead_letters += entry.counts.dead_letters
        self._anew.update(entry.restarted)
        self._gone.update(entry.gone)
        self._last = entry
        for watcher in self._watchers:
            watcher.add(entry)

    def summary(self, now_ms: int) -> str:
        """Return the totals of the run, with a batch that was published when it was stopped."""
        following = max(self._seen, self._begin) + 1
        while (entry := self._entry(following)) is not None:
            self._seen = following
            self._count(entry)
            following += 1
        if self._last is None:
            return f"no new records for {self._log.store.url}"
        seconds = max(now_ms - self._began_ms, 1) / 1000
        rows, differences = self._counts.rows, self._counts.differences
        if self._dead_letters:
            differences.append(f"{self._dead_letters:,} dead letters")
        for what, partitions in (("created anew", self._anew), ("gone", self._gone)):
            if partitions:
                differences.append(f"{what}: {format_partitions(partitions)}")
        lost = f"not as in Kafka: {', '.join(differences)}\n" if differences else ""
        return (
            f"{rows:,} rows in {self._batches} batches, {self._files} files, "
            f"{self._bytes / 1e6:,.1f} MB of Parquet; {seconds:.1f} s, "
            f"{rows / seconds:,.0f} rows/s\n{lost}"
            f"{self._log.store.url} has {self._last.rows:,} rows of {len(self._last.ends)} "
            "partitions"
        )

    def __repr__(self) -> str:
        return f"<IngestProgress after batch {self._seen}>"


def batch_line(entry: Entry, duration_ms: int, lag: int | None) -> str:
    """Return the line of a batch; ``lag`` is the number of offsets left to read."""
    seconds, unknown = max(duration_ms, 1) / 1000, entry.counts.unknown_fields
    fields = [
        f"batch {entry.batch_id}",
        f"{entry.counts.rows:,} rows",
        f"{entry.counts.rows / seconds:,.0f} rows/s",
        f"{entry.counts.bytes / 1e6 / seconds:,.1f} MB/s",
        *counts_of(entry).differences,
        *([f"{unknown:,} fields without a column"] if unknown else []),
        *([f"created anew: {format_partitions(entry.restarted)}"] if entry.restarted else []),
        *([f"gone: {format_partitions(entry.gone)}"] if entry.gone else []),
        *([] if lag is None else [f"lag {lag:,}"]),
        offsets_text(entry.ends),
    ]
    return " | ".join(fields)


def counts_of(entry: Entry) -> ReadCounts:
    """Return what the manifest of a batch has about its reading."""
    counts = ReadCounts(entry.counts.rows, entry.counts.lost_offsets, entry.counts.bad_records)
    for batch_range in entry.ranges:
        for batch in batch_range.skipped_batches.split():
            base, _, last = batch.partition("-")
            # Tasks that share a batch have it each.
            counts.skip(SkippedBatch(*batch_range.topic_partition, int(base), int(last)))
    return counts


def _lag(progress: Any) -> int | None:
    """Return how many offsets are left to read, None if Spark does not report it."""
    sources = progress_offsets(progress)
    if not all(latest for _, _, latest in sources):
        return None
    found = query_lag("", None, int(progress.batchId), sources)
    return None if found is None else found.total
