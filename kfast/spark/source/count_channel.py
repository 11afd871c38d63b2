"""CountChannel: brings the counts of tasks to the driver, for `LagListener`.

A Python source has no metrics of its own. But Spark sends updates of an accumulator back with each
task that succeeds, and the class of a registered source, which Spark pickles, can carry one. It is
there for classic sessions, for ingests and sources registered by ``kfast.spark.register``; for
others the counts are in the logs of the workers only. One channel per process; any thread.
"""

from __future__ import annotations

from typing import Any, Final

from kfast.spark.source.worker_check import checked_source
from kfast.table.read_counts import ReadCounts

BatchKey = tuple[str, int]
"""Spark's id of the query and number of the micro-batch."""

MOST_KEPT: Final = 256
"""Batches whose counts are kept for a listener."""


class SumByBatch:
    """Adds counts by batch; Spark's ``AccumulatorParam``."""

    def zero(self, _: object) -> dict[BatchKey, ReadCounts]:
        """Return no counts."""
        return {}

    def addInPlace(
        self, into: dict[BatchKey, ReadCounts], more: dict[BatchKey, ReadCounts]
    ) -> dict[BatchKey, ReadCounts]:
        """Add counts to those of the same batches."""
        for key, counts in more.items():
            into.setdefault(key, ReadCounts()).add(counts)
        while len(into) > MOST_KEPT:
            into.pop(next(iter(into)))
        return into


class CountChannel:
    """The driver's end."""

    def __init__(self) -> None:
        self._context: object = None
        self._accumulator: Any = None

    def counted(self, spark: Any, source: type) -> type:
        """Return the source to register, with what its tasks count into if the session has that."""
        try:
            context = spark.sparkContext
        except Exception:  # Spark Connect; its error has another class in each version
            return checked_source(source)
        if context is not self._context:
            self._context = context
            self._accumulator = context.accumulator({}, SumByBatch())
        return checked_source(source, self._accumulator)

    def take(self, key: BatchKey) -> ReadCounts | None:
        """Return the counts of a finished batch, once; None if they are not known."""
        if self._accumulator is None:
            return None
        counts: ReadCounts | None = self._accumulator.value.pop(key, None)
        return counts

    def __repr__(self) -> str:
        return f"<CountChannel {'open' if self._accumulator is not None else 'closed'}>"


CHANNEL: Final = CountChannel()
"""The channel of this process."""
