"""Registers ``format("kfast")`` with Spark.

Spark imports every top-level module whose name begins with ``pyspark_`` and registers its
``DefaultSource``. One that raises, or is slow, affects all Python sources: so this one imports only
modules that Spark has loaded already, and kfast when the format is used.
"""

from __future__ import annotations

from typing import Any

__all__: list[str] = []

try:
    from pyspark.sql.datasource import DataSource
except Exception:  # no pyspark, or one before 4.0
    pass
else:

    class DefaultSource(DataSource):
        """Delegates to ``kfast.spark.KafkaDataSource``."""

        @classmethod
        def name(cls) -> str:
            """Return the name for ``format``."""
            return "kfast"

        def _source(self) -> Any:
            from kfast.spark.source.source import KafkaDataSource  # noqa: PLC0415 - see above

            return KafkaDataSource(self.options)

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
            """Refuse to write."""
            return self._source().writer(schema, overwrite)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            """Refuse to write."""
            return self._source().streamWriter(schema, overwrite)

    __all__ = ["DefaultSource"]
