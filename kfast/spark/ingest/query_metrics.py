"""QueryMetrics: the metrics of an ingest, as long as its query runs.

Owns the server, which ends by itself soon after the query, and the lag by partition, which is that
of Spark's last progress. Driver only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kfast.spark.source.query_lag import progress_offsets, query_lag
from kfast.table.ingest_metrics import serve_metrics
from kfast.table.table_log import TableLog
from kfast.types import TopicPartition


class QueryMetrics:
    """Serves the metrics of a query at an address, from before it starts."""

    def __init__(self, address: str, log: TableLog) -> None:
        self._query: Any = None
        self._server = serve_metrics(address, log, self._lag, self._is_over)

    def begin(self, query: Any) -> None:
        """Take the query, which has started."""
        self._query = query

    def close(self) -> None:
        """End the server; the query did not start."""
        self._server.close()

    def _is_over(self) -> bool:
        return self._query is not None and not self._query.isActive

    def _lag(self) -> Mapping[TopicPartition, int]:
        progresses = [] if self._query is None else self._query.recentProgress
        if not progresses:
            return {}
        last = progresses[-1]
        found = query_lag("", None, int(last.batchId), progress_offsets(last))
        return {} if found is None else found.partitions

    def __repr__(self) -> str:
        return f"<QueryMetrics at {self._server.url}>"
