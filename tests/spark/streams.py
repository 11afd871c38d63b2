"""Streaming queries whose rows a test collects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.support import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

pytest.importorskip("pyspark")


Place = tuple[int, int]
"""Partition and offset."""


class Sink:
    """Collects the rows of each micro-batch of a query.

    Attributes
    ----------
    batches : dict of int to list
        Partition and offset of each row, by batch.
    """

    def __init__(self) -> None:
        self.batches: dict[int, list[Place]] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("partition", "offset").collect()
        self.batches[batch_id] = sorted((row[0], row[1]) for row in rows)

    def wait_for(self, count: int) -> None:
        """Wait until there are so many rows."""
        until(lambda: len(self.places) == count, f"{count} rows", 100)

    @property
    def places(self) -> list[Place]:
        """Everything, in order; a record that came twice is here twice."""
        return sorted(place for batch in self.batches.values() for place in batch)


def run(frame: DataFrame, checkpoint: Path, sink: Sink | None = None) -> Sink:
    """Run a query with Trigger.AvailableNow to its end."""
    sink = sink or Sink()
    query = start(frame, checkpoint, sink, availableNow=True)
    query.awaitTermination(200)
    assert not query.isActive, query.status
    return sink


def start(
    frame: DataFrame, checkpoint: Path, sink: Callable[..., None], **trigger: Any
) -> StreamingQuery:
    """Start a query."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()


@contextmanager
def running(frame: DataFrame, checkpoint: Path, sink: Sink) -> Iterator[StreamingQuery]:
    """Run a query until the end of the ``with`` statement."""
    query = start(frame, checkpoint, sink)
    try:
        yield query
        error = query.exception()
        assert error is None, error
    finally:
        query.stop()
