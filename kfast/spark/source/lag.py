"""LagListener: reports the lag of streaming queries after every micro-batch.

Owns a ``StreamingQueryListener``: a Python source cannot report metrics of its own, but the
progress events of Spark have the offsets of every micro-batch. Works for ``format("kafka")``
queries as well. Needs pyspark 4.2 or newer, where Python sources report the log ends.

Imports pyspark: it is loaded by ``kfast.spark.LagListener``. Runs on the driver, on Spark's
listener thread; it must not raise there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from kfast.spark.source.query_lag import QueryLag, query_lag

logger = logging.getLogger(__name__)

Callback = Callable[[QueryLag], object]


class LagListener(StreamingQueryListener):
    """Logs the lag of every micro-batch and passes it to a callback.

    Parameters
    ----------
    callback : callable, optional
        Called with a `QueryLag` after every micro-batch; an exception it raises is logged.

    Examples
    --------
    >>> spark.streams.addListener(kfast.spark.LagListener(lambda lag: print(lag.total)))
    """

    def __init__(self, callback: Callback | None = None) -> None:
        self._callback = callback

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:
        """Compute and report the lag."""
        try:
            progress = event.progress
            found = query_lag(
                str(progress.id),
                progress.name,
                int(progress.batchId),
                [
                    (source.startOffset, source.endOffset, source.latestOffset)
                    for source in progress.sources
                ],
            )
            if found is None:
                return
            logger.info("%s", found)
            if self._callback is not None:
                self._callback(found)
        except Exception:  # a listener that raises would hide the lag of all later batches
            logger.exception("cannot report the lag of a query")

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing."""
