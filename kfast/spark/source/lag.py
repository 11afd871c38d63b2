"""LagListener: reports lag and counts of streaming queries after every micro-batch.

Owns a ``StreamingQueryListener``: a Python source cannot report metrics of its own, but the
progress events of Spark have the offsets of every micro-batch. Works for ``format("kafka")``
queries as well. Needs pyspark 4.2 or newer, where Python sources report the log ends. What tasks
have lost, skipped or found malformed comes through `CountChannel`, from sources that this process
has registered; the listener registers ``format("kfast")`` with the active session.

Imports pyspark: it is loaded by ``kfast.spark.LagListener``. Runs on the driver, on Spark's
listener thread; it must not raise there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from kfast._base.logs import get_logger
from kfast.spark.source.count_channel import CHANNEL
from kfast.spark.source.query_lag import QueryLag, progress_offsets, query_lag
from kfast.spark.source.source import KafkaDataSource

logger = get_logger(__name__)

Callback = Callable[[QueryLag], object]


class LagListener(StreamingQueryListener):
    """Logs lag and counts of every micro-batch and passes them to a callback.

    A micro-batch of which something was lost, skipped or malformed is logged as a warning. These
    counts are known of queries started after the listener was made, in a classic session.

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
        session = SparkSession.getActiveSession()
        if session is not None:
            session.dataSource.register(CHANNEL.counted(session, KafkaDataSource))

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:
        """Compute and report the lag."""
        try:
            progress = event.progress
            query_id, batch_id = str(progress.id), int(progress.batchId)
            lag = query_lag(
                query_id,
                progress.name,
                batch_id,
                progress_offsets(progress),
                CHANNEL.take((query_id, batch_id)),
            )
            if lag is None:
                return
            logger.log(logging.INFO if lag.is_complete else logging.WARNING, "%s", lag)
            if self._callback is not None:
                self._callback(lag)
        except Exception:  # a listener that raises would hide the lag of all later batches
            logger.exception("cannot report the lag of a query")

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing."""
