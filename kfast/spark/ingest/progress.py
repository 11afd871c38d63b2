"""IngestProgress: reports the batches of a running query to those who watch an ingest.

Rows, bytes, offsets and what was not read as it is in Kafka come from the table's log, which has
them for every writer; the lag comes from Spark. Pure but for reading the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kfast.spark.source.query_lag import progress_offsets, query_lag
from kfast.table.entries import Entry
from kfast.table.ingest.summary import IngestSummary
from kfast.table.ingest_totals import IngestTotals
from kfast.table.ingest_watcher import IngestStart, IngestWatcher
from kfast.table.table_log import TableLog


class IngestProgress:
    """The progress of one run of a query, which has begun to write its table.

    ``published`` is called with the manifest of each batch, and ``watchers`` report on the run.
    """

    def __init__(
        self,
        log: TableLog,
        *,
        published: Callable[[Entry], object] | None = None,
        watchers: Sequence[IngestWatcher] = (),
    ) -> None:
        last = log.last()
        assert last is not None  # the query has begun to write the table
        self._log = log
        self._published = published
        self._watchers = watchers
        self._writer = last.writer
        self._last = last
        self._seen = -1
        self._begin = -1 if last.batch_id is None else last.batch_id
        """The newest batch of the runs before; this run may repeat it."""
        self.totals = IngestTotals()
        self.lag: int | None = None
        """Number of offsets left to read, None if it is not known."""

    def begin(self, topics: str) -> None:
        """Report the start to the watchers; ``topics`` is for people."""
        last = self._last
        start = IngestStart(self._log.store.url, topics, last.ends, None, last.rows)
        for watcher in self._watchers:
            watcher.begin(start)

    def update(self, progresses: Iterable[Any]) -> None:
        """Report the new batches of ``StreamingQuery.recentProgress``, and what is due."""
        for progress in progresses:
            batch_id = int(progress.batchId)
            if batch_id <= self._seen:
                continue
            entry = self._entry(batch_id)
            self.lag = _lag(progress)
            if entry is not None:  # without new records Spark reports the next batch
                self._seen = batch_id
                self._count(entry)
        for watcher in self._watchers:
            watcher.tick(lambda: self.lag)

    def close(self, *, is_complete: bool) -> None:
        """Report the rest, with a batch that was published when the query was stopped."""
        following = max(self._seen, self._begin) + 1
        while (entry := self._entry(following)) is not None:
            self._seen = following
            self._count(entry)
            following += 1
        for watcher in self._watchers:
            watcher.close(is_complete=is_complete)

    def summary(self, seconds: float) -> IngestSummary:
        """Return the counts of the run: of the batches that it has added to the table."""
        return IngestSummary.of(self.totals, seconds, self._last.ends)

    def _entry(self, batch_id: int) -> Entry | None:
        """The entry of a batch, None if there is none of this writer."""
        entry = self._log.published(self._writer, batch_id)
        return None if entry is None or entry.writer.id != self._writer.id else entry

    def _count(self, entry: Entry) -> None:
        self._last = entry
        self.totals.add(entry)
        for watcher in self._watchers:
            watcher.add(entry)
        if self._published is not None:
            self._published(entry)

    def __repr__(self) -> str:
        return f"<IngestProgress after batch {self._seen}>"


def _lag(progress: Any) -> int | None:
    """Return how many offsets are left to read, None if Spark does not report it."""
    sources = progress_offsets(progress)
    if not all(latest for _, _, latest in sources):
        return None
    lag = query_lag("", None, int(progress.batchId), sources)
    return None if lag is None else lag.total
