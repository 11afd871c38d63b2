"""QueryLag: lag and counts of a streaming query, from the offsets in its progress. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kfast.table.offsets_json import format_partitions, from_json_dict
from kfast.table.read_counts import ReadCounts
from kfast.types import TopicPartition

SourceOffsets = tuple[str | None, str | None, str | None]
"""Start, end and latest offset of a source, as JSON."""


@dataclass(frozen=True, slots=True)
class QueryLag:
    """The lag of a query after one micro-batch.

    Parameters
    ----------
    query_id, query_name : str, str or None
        Spark's id and the user's name of the query.
    batch_id : int
        Spark's number of the micro-batch.
    partitions : Mapping of TopicPartition to int
        Lag by partition: offsets between the micro-batch's end and the end of the log. Empty if
        Spark does not report it, as for a batch that an earlier run had planned.
    offsets : int
        Offsets in the micro-batch.
    counts : ReadCounts or None
        What the tasks of the micro-batch read, lost, skipped and found malformed; None where the
        workers cannot report it (Spark Connect, a source that was not registered).
    restarted : tuple of TopicPartition
        Partitions of topics that were created anew, which are read again from their beginning.
    gone : tuple of TopicPartition
        Partitions that the query had until this micro-batch, and has no more: their topics were
        deleted, or are not selected. What was not read of them is lost.
    """

    query_id: str
    query_name: str | None
    batch_id: int
    partitions: Mapping[TopicPartition, int]
    offsets: int
    counts: ReadCounts | None = None
    restarted: tuple[TopicPartition, ...] = ()
    gone: tuple[TopicPartition, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether nothing is known to be lost, skipped, malformed, gone or anew."""
        return not (self.restarted or self.gone) and (
            self.counts is None or self.counts.is_complete
        )

    @property
    def total(self) -> int:
        """Sum of the lags of all partitions."""
        return sum(self.partitions.values())

    def __str__(self) -> str:
        name = self.query_name or self.query_id
        worst = max(self.partitions, key=lambda tp: self.partitions[tp], default=None)
        most = f", most {self.partitions[worst]} on {worst}" if worst and self.total else ""
        lag = f"lag {self.total} over {len(self.partitions)} partitions{most}"
        if not self.partitions:
            lag = "lag not known"
        counts = f", read {self.counts}" if self.counts else ""
        restarted = f", created anew: {format_partitions(self.restarted)}" if self.restarted else ""
        gone = f", gone: {format_partitions(self.gone)}" if self.gone else ""
        return (
            f"query {name} batch {self.batch_id}: {self.offsets} offsets, {lag}{counts}{restarted}"
            f"{gone}"
        )


def progress_offsets(progress: Any) -> list[SourceOffsets]:
    """Return the offsets of each source in a ``StreamingQueryProgress``.

    A batch that an earlier run of the query had planned is repeated without asking for the latest
    offsets, and Spark reports the batch's own end for them: they are None here.
    """
    is_asked = "latestOffset" in progress.durationMs
    return [
        (source.startOffset, source.endOffset, source.latestOffset if is_asked else None)
        for source in progress.sources
    ]


def query_lag(
    query_id: str,
    query_name: str | None,
    batch_id: int,
    sources: Iterable[SourceOffsets],
    counts: ReadCounts | None = None,
) -> QueryLag | None:
    """Return the lag over all of a query's Kafka sources, None if it has none.

    A source whose offsets are not by topic and partition is not Kafka's.
    """
    partitions: dict[TopicPartition, int] = {}
    restarted: list[TopicPartition] = []
    gone: list[TopicPartition] = []
    offsets = 0
    is_kafka = False
    for texts in sources:
        start, end, latest = map(_offsets, texts)
        if end is None:
            continue
        is_kafka = True
        offsets += sum(max(0, at - (start or {}).get(tp, at)) for tp, at in end.items())
        restarted += [tp for tp, at in end.items() if at < (start or {}).get(tp, at)]
        gone += (start or {}).keys() - end.keys()
        for tp, at in (latest or {}).items():
            partitions[tp] = max(0, at - end.get(tp, 0))
    if not is_kafka:
        return None
    return QueryLag(
        query_id,
        query_name,
        batch_id,
        partitions,
        offsets,
        counts,
        tuple(sorted(restarted)),
        tuple(sorted(gone)),
    )


def _offsets(text: str | None) -> dict[TopicPartition, int] | None:
    """Return offsets by partition, None if the text has another form."""
    try:
        offsets: Any = json.loads(text or "")
        return from_json_dict(offsets)
    except (ValueError, TypeError, AttributeError):
        return None
