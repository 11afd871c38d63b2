"""IngestMetrics: rows, bytes, offsets and lag of an ingest, as text for Prometheus.

Owns names and form (Prometheus' text format 0.0.4). Everything but the lag is read from the log of
the table, whoever writes it: from the entries that were added since the ingest began. Those are
read in steps (`update`), so that none is removed before it was counted. One thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kfast.table.entries import Entry
from kfast.table.ingest_totals import IngestTotals
from kfast.table.table_log import TableLog
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast.internals import MetricsServer

Lag = Mapping[TopicPartition, int]

_COUNTERS: Final = (
    ("rows", "Records written to the table"),
    ("bytes", "Bytes of the files written"),
    ("files", "Files written"),
    ("batches", "Batches published"),
    ("lost_offsets", "Offsets that the logs had no more"),
    ("skipped_batches", "Record batches left out as corrupt"),
    ("bad_records", "Keys and values that are not of their format"),
    ("dead_letters", "Of these, those written to a folder or a topic of dead letters"),
    ("unknown_fields", "Fields of JSON documents that have no column"),
)
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


_OVER_TICKS: Final = 5
_UPDATE_TICKS: Final = 50
"""How often it is asked whether the ingest is over, and whether there are new batches: of the calls
of ``tick``, which come every 0.2 s."""


def serve_metrics(
    address: str,
    log: TableLog,
    lag: Callable[[], Lag],
    is_over: Callable[[], bool] = lambda: False,
) -> MetricsServer:
    """Serve the metrics of an ingest at an address, until it ``is_over``.

    Raises ``ConfigurationError`` if the address is malformed, or cannot be taken.
    """
    from kfast.internals import MetricsServer  # noqa: PLC0415 - if it is asked for

    metrics = IngestMetrics(log, lag, is_over)
    return MetricsServer(address, metrics.text, metrics.tick)


class IngestMetrics:
    """The metrics of an ingest that begins now; ``lag`` returns what is left to read, if known."""

    def __init__(
        self, log: TableLog, lag: Callable[[], Lag], is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self._log = log
        self._lag = lag
        self._is_over = is_over
        self._ticks = 0
        self._last: Entry | None = log.last()
        self._totals = IngestTotals()
        self._published_ms: int | None = None

    def update(self) -> None:
        """Count the batches that were published since the last time."""
        for entry, created_ms in self._log.after(self._last):
            self._last = entry
            if entry.batch_id is not None:
                self._totals.add(entry)
                self._published_ms = created_ms or self._published_ms

    def tick(self) -> bool:
        """Count what is new now and then; return whether the ingest goes on."""
        self._ticks += 1
        if self._ticks % _UPDATE_TICKS == 0:
            self.update()
        return self._ticks % _OVER_TICKS != 0 or not self._is_over()

    def text(self) -> str:
        """Return all metrics as of now."""
        self.update()
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        for name, help_text in _COUNTERS:
            yield from _metric(f"{name}_total", "counter", f"{help_text}, since the ingest began.")
            yield f"kfast_ingest_{name}_total {getattr(self._totals, name)}"
        if self._last is not None:
            yield from _metric(
                "table_rows", "gauge", "Records written to the table by all ingests."
            )
            yield f"kfast_ingest_table_rows {self._last.rows}"
            yield from _metric("end_offset", "gauge", "Next offset of each partition of the table.")
            yield from _by_partition("end_offset", self._last.ends)
        if self._published_ms is not None:
            yield from _metric(
                "last_batch_timestamp_seconds", "gauge", "When the last batch was published."
            )
            yield f"kfast_ingest_last_batch_timestamp_seconds {self._published_ms / 1000:.3f}"
        lag = self._lag()
        if lag:
            yield from _metric("lag_offsets", "gauge", "Offsets that are not in the table yet.")
            yield from _by_partition("lag_offsets", lag)

    def __repr__(self) -> str:
        return f"<IngestMetrics after {self._last}>"


def _metric(name: str, kind: str, help_text: str) -> Iterator[str]:
    yield f"# HELP kfast_ingest_{name} {help_text}"
    yield f"# TYPE kfast_ingest_{name} {kind}"


def _by_partition(name: str, values: Mapping[TopicPartition, int]) -> Iterator[str]:
    for tp in sorted(values):
        topic = tp.topic.translate(_ESCAPED)
        labels = f'topic="{topic}",partition="{tp.partition}"'
        yield f"kfast_ingest_{name}{{{labels}}} {values[tp]}"
