"""LagListener: how far streaming queries are behind the ends of their logs.

Owns a ``StreamingQueryListener``: a Python source cannot report metrics of its own, but Spark tells
listeners the offsets of every micro-batch. Works for ``format("kafka")`` queries as well. Needs
pyspark 4.2, from which on Python sources report where the logs end.

Imports pyspark: it is loaded by ``kfast.spark.LagListener``. Runs on the driver, on the thread
Spark calls listeners on; it must not raise there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from kfast.spark.source.query_lag import QueryLag, query_lag

_log: Final = logging.getLogger(__name__)

Callback = Callable[[QueryLag], object]


class LagListener(StreamingQueryListener):
    """Logs the lag of every micro-batch and tells it to a callback.

    Parameters
    ----------
    callback : callable, optional
        Given a `QueryLag` after every micro-batch; what it raises is logged.

    Examples
    --------
    >>> spark.streams.addListener(kfast.spark.LagListener(lambda lag: print(lag.total)))
    """

    def __init__(self, callback: Callback | None = None) -> None:
        self._callback = callback

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:
        """Compute the lag and tell it."""
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
            _log.info("%s", found)
            if self._callback is not None:
                self._callback(found)
        except Exception:  # a listener that raises would hide the lag of all later batches
            _log.exception("the lag of a query could not be told")

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing."""
