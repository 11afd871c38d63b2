"""Sources and readers as Spark's processes get them: with an error of their own where kfast lacks.

Owns the class that Spark registers in place of a source of kfast, and how readers are pickled: both
are bytes beside ``process_check.load``, which is pickled by value. A process that has no kfast, or
another one, says so with its host and its interpreter.
"""

from __future__ import annotations

import pickle
from typing import Any, cast

from kfast.spark.source import process_check


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
