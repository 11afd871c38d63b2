"""Checks, before an ingest begins, that Spark's workers have kfast and pyarrow.

Owns a small job of one task per core, once per session: its Python function describes the process
that runs it and needs nothing but Python. Without it a missing package comes to light after the
table and the checkpoint have been made, below a trace of Java. Executors that join later are not
checked: their tasks fail with the error of ``process_check``. Driver only; classic sessions
and Spark Connect.
"""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import kfast
from kfast.errors import ConfigurationError, KafkaError, MissingDependencyError
from kfast.spark.source.checked_pickle import by_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_ROWS: Final = 256
"""Rows of the job where the number of cores is not known: some for each of that many tasks."""

_UNINSTALLED: Final = "0.0.0"
"""Version of a kfast that was copied and not installed: nothing to compare."""

_checked: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def check_workers(spark: SparkSession) -> None:
    """Check the Python of Spark's workers; once per session.

    Raises ``MissingDependencyError`` if one lacks kfast or pyarrow, and ``ConfigurationError`` if
    it has another version of kfast or of Python than the driver, or cannot be started. Both name
    host and interpreter. What else fails the job is raised as it is.
    """
    if spark in _checked:
        return
    try:
        rows = _describe_workers(spark)
    except Exception as error:  # its class depends on the kind of session
        explained = explain_failure(str(error))
        if explained is None:
            raise
        raise explained from None
    problem = explain_processes(rows, str(kfast.__version__))
    if problem is not None:
        raise problem
    _checked.add(spark)


def _describe_workers(spark: SparkSession) -> list[dict[str, str]]:
    from pyspark.sql.functions import udf  # noqa: PLC0415 - imported lazily

    try:
        tasks = spark.sparkContext.defaultParallelism
        numbers = spark.range(0, tasks, 1, tasks)
    except Exception:  # Spark Connect; its error has another class in each version
        numbers = spark.range(CONNECT_ROWS)
    # Arrow is one of the packages that may be missing.
    describe = udf(by_value().described_process, "string", useArrow=False)
    rows = {row[0] for row in numbers.select(describe("id")).collect()}
    return [json.loads(row) for row in sorted(rows)]


def explain_processes(rows: list[dict[str, str]], version: str) -> KafkaError | None:
    """Return the error for workers that are not like the driver, None if all are."""
    lacking = [row for row in rows if not row["kfast"] or not row["pyarrow"]]
    if lacking:
        packages = [name for name in ("kfast", "pyarrow") if any(not row[name] for row in lacking)]
        return MissingDependencyError(
            f"Spark's workers cannot import {' and '.join(packages)}",
            cause=next((row["error"] for row in lacking if row["error"]), None),
            found=_located(lacking),
            hint=by_value().HINT,
        )
    others = [row for row in rows if row["kfast"] not in (version, _UNINSTALLED)]
    if others and version != _UNINSTALLED:
        return ConfigurationError(
            f"Spark's workers have another version of kfast than the driver, which has {version}",
            found=_located(others),
            hint=by_value().HINT,
        )
    return None


def _located(rows: list[dict[str, str]]) -> str:
    lines = sorted({str(by_value().located(row)) for row in rows})
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    return "; ".join(lines[:3]) + more


_FAILURES: Final[Mapping[str, str]] = {
    r"Cannot run program \"([^\"]+)\".*?(?=\n|$)": "Spark's workers cannot start their Python",
    r"\[?PYTHON_VERSION_MISMATCH\]?[^\n]*": (
        "Spark's workers have another version of Python than the driver"
    ),
}
"""Text of Java and of pyspark, and what it means."""


def explain_failure(text: str) -> ConfigurationError | None:
    """Return the error for a job that failed before its function ran, None for other failures."""
    for pattern, message in _FAILURES.items():
        if (match := re.search(pattern, text)) is not None:
            return ConfigurationError(message, cause=match[0].strip(), hint=by_value().HINT)
    return None
