"""Spark's worker processes that lack kfast: an error of their own, and a check before an ingest.

Owns the class that Spark registers in place of a source of kfast, and how readers are pickled: both
are bytes beside ``process_check.load``, which is pickled by value. A process that has no kfast, or
another one, says so with its host and its interpreter.

The check is a small job of one task per core, once per session, on the driver: its Python function
describes the process that runs it and needs nothing but Python. Without it a missing package comes
to light after the table and the checkpoint have been made, below a trace of Java. Executors that
join later are not checked: their tasks fail with the error of ``process_check``. Works in classic
sessions and with Spark Connect.
"""

from __future__ import annotations

import json
import pickle
import re
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import kfast
from kfast.errors import ConfigurationError, KafkaError, MissingDependencyError
from kfast.spark.source import process_check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_ROWS: Final = 256
"""Rows of the job where the number of cores is not known: some for each of that many tasks."""

_UNINSTALLED: Final = "0.0.0"
"""Version of a kfast that was copied and not installed: nothing to compare."""

_checked: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


# --- sources and readers --------------------------------------------------------------------------


def checked_reduce(reader: object, protocol: Any) -> tuple[Any, ...]:
    """Reduce a reader to `process_check.load` and bytes; for ``__reduce_ex__``."""
    state = cast("dict[str, Any]", reader.__getstate__())
    return (by_value().load, (pickle.dumps(_Reader(type(reader), state), protocol),))


class _Reader:
    """Pickles as a reader with this class and state."""

    def __init__(self, kind: type, state: dict[str, Any]) -> None:
        self._arguments = kind, state

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, self._arguments


def _restored(kind: type, state: dict[str, Any]) -> object:
    reader: object = object.__new__(kind)
    reader.__dict__.update(state)
    return reader


def checked_source(source: type, counts: object = None) -> type:
    """Return a class for ``dataSource.register`` that needs kfast only when it is used.

    ``counts`` is what the tasks of streams count into.
    """
    from pyspark.sql.datasource import DataSource  # noqa: PLC0415 - imported lazily

    load = by_value().load
    source_name: str = source.name()  # type: ignore[attr-defined]
    payload = pickle.dumps((source, counts))

    # Defined here, it is pickled with its methods, not by its name.
    class CheckedSource(DataSource):
        """Delegates to a source of kfast."""

        @classmethod
        def name(cls) -> str:
            """Return the name for ``format``."""
            return source_name

        def _source(self) -> Any:
            kind, accumulator = load(payload)
            instance = kind(self.options)
            instance.counts = accumulator
            return instance

        def schema(self) -> Any:
            """Return the columns of a query without a user's schema."""
            return self._source().schema()

        def reader(self, schema: Any) -> Any:
            """Return the reader of a batch query."""
            return self._source().reader(schema)

        def streamReader(self, schema: Any) -> Any:
            """Return the reader of a stream."""
            return self._source().streamReader(schema)

        def writer(self, schema: Any, overwrite: bool) -> Any:
            """Return the writer of a batch query."""
            return self._source().writer(schema, overwrite)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            """Return the writer of a stream."""
            return self._source().streamWriter(schema, overwrite)

    CheckedSource.__name__ = source.__name__
    return CheckedSource


def by_value() -> Any:
    """Return ``process_check``, which pyspark pickles by value from then on."""
    from pyspark import cloudpickle  # noqa: PLC0415 - imported lazily

    cloudpickle.register_pickle_by_value(process_check)
    return process_check


# --- the check before an ingest -------------------------------------------------------------------


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
