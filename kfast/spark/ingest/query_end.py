"""The end of a query: waits for it, and makes errors of kfast from what Spark reports.

An error of kfast that was raised in one of Spark's processes comes as text below Spark's own: it is
raised again as what it was, without the stack traces. Driver only, main thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import kfast.errors
from kfast._base.logs import get_logger
from kfast.errors import KafkaError, StorageError
from kfast.local.spark import jvm_exit_status

logger = get_logger(__name__)

_PROGRESS_SECONDS: Final = 0.2
_OUR_ERROR: Final = re.compile(r"kfast\.errors\.(\w+): (.+)((?:\n(?:cause|found|try): .+)*)")
_OUR_LINE: Final = re.compile(r"^(cause|found|try): (.+)$", re.MULTILINE)
_PYTHON_ERROR: Final = re.compile(r"^([A-Za-z_][\w.]*: .+)$", re.MULTILINE)
_SPARK_ERROR: Final = re.compile(r"terminated with exception: (.+?)(?: SQLSTATE|$)", re.MULTILINE)
CAUSE_LENGTH: Final = 2_000
"""Most characters of a text of Spark's in an error."""
_NO_SPACE_HINT: Final = (
    "free space on the disks of the table, the checkpoint and Spark's own files (spark.local.dir), "
    "then start again"
)


def finish(query: Any, report: Callable[[], object], signals: Sequence[object] = ()) -> None:
    """Wait for the end of a query; stop it when there is an entry in ``signals``.

    ``report`` is called every `_PROGRESS_SECONDS` and at the end. Raises ``KafkaError`` if the
    query failed, or Spark ended; not after a signal, which a terminal sends to Spark's processes
    too, and fails their batch.
    """
    try:
        with spark_errors():
            try:
                while not signals and not query.awaitTermination(_PROGRESS_SECONDS):
                    report()
            finally:
                if query.isActive:
                    query.stop()
                report()
    except KafkaError:
        if not signals:
            raise
        logger.debug("the query that a signal has ended", exc_info=True)


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise ``KafkaError`` for an error of Spark, or if its JVM has ended."""
    try:
        yield
    except Exception as error:
        if isinstance(error, KafkaError):
            raise
        if type(error).__module__.startswith("pyspark."):
            raise failure_of(str(error)) from error
        status = jvm_exit_status()
        if status is None:
            raise
        ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise KafkaError(
            f"Spark's Java process {ended}",
            cause="it may have had too little memory" if status else None,
            hint="start the ingest again: it resumes; --conf spark.driver.memory=4g gives Spark "
            "more memory, -v shows its log",
        ) from error


def failure_of(text: str) -> KafkaError:
    """Return the error of a failed query, without stack traces if kfast raised it."""
    match = _OUR_ERROR.search(text)
    if match is not None:
        lines = dict(_OUR_LINE.findall(match[3]))
        error_class = getattr(kfast.errors, match[1], KafkaError)
        error: KafkaError = error_class(
            match[2].strip(),
            cause=lines.get("cause"),
            found=lines.get("found"),
            hint=lines.get("try"),
        )
        return error
    trace = text.rpartition("Traceback (most recent call last)")[2] if "Traceback" in text else ""
    raised = _PYTHON_ERROR.search(trace) or _SPARK_ERROR.search(text)
    is_full = "No space left" in text
    return (StorageError if is_full else KafkaError)(
        "the query failed",
        cause=(raised[1] if raised else text.strip())[:CAUSE_LENGTH],
        hint=_NO_SPACE_HINT if is_full else "-v --conf spark.log.level=ERROR shows the whole log",
    )
