"""QueryLag: the lag of a streaming query, computed from the offsets in its progress. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kfast.table.offsets_json import from_json_dict
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
        Lag by partition: offsets between the micro-batch's end and the end of the log.
    offsets : int
        Offsets in the micro-batch.
    """

    query_id: str
    query_name: str | None
    batch_id: int
    partitions: Mapping[TopicPartition, int]
    offsets: int

    @property
    def total(self) -> int:
        """Sum of the lags of all partitions."""
        return sum(self.partitions.values())

    def __str__(self) -> str:
        name = self.query_name or self.query_id
        worst = max(self.partitions, key=lambda tp: self.partitions[tp], default=None)
        most = f", most {self.partitions[worst]} on {worst}" if worst and self.total else ""
        return (
            f"query {name} batch {self.batch_id}: {self.offsets} offsets, lag {self.total} over "
            f"{len(self.partitions)} partitions{most}"
        )


def query_lag(
    query_id: str, query_name: str | None, batch_id: int, sources: Iterable[SourceOffsets]
) -> QueryLag | None:
    """Return the lag over all of a query's Kafka sources, None if it has none.

    A source whose offsets are not by topic and partition is not Kafka's.
    """
    partitions: dict[TopicPartition, int] = {}
    offsets = 0
    is_kafka = False
    for texts in sources:
        start, end, latest = map(_offsets, texts)
        if end is None:
            continue
        is_kafka = True
        offsets += sum(max(0, at - (start or {}).get(tp, at)) for tp, at in end.items())
        for tp, at in (latest or {}).items():
            partitions[tp] = max(0, at - end.get(tp, 0))
    return QueryLag(query_id, query_name, batch_id, partitions, offsets) if is_kafka else None


def _offsets(text: str | None) -> dict[TopicPartition, int] | None:
    """Return offsets by partition, None if the text has another form."""
    try:
        found: Any = json.loads(text or "")
        return from_json_dict(found)
    except (ValueError, TypeError, AttributeError):
        return None
