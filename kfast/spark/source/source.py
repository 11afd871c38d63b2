"""KafkaDataSource: ``format("kfast")``.

Parses the options and returns the schema and the readers. Spark starts a process for the schema,
one for the plan and others to read, and each loads the source: every method imports what it needs.

Imports pyspark: it is loaded by ``kfast.spark.KafkaDataSource`` and by ``pyspark_kfast``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from pyspark.sql.datasource import DataSource

from kfast.errors import ConfigurationError

if TYPE_CHECKING:
    from kfast.spark.source.batch_reader import KafkaBatchReader
    from kfast.spark.source.stream_reader import KafkaStreamReader


class KafkaDataSource(DataSource):
    """Kafka topics as a source of batch and streaming queries.

    It has the options and the schema of ``format("kafka")``; see ``kfast.spark``.

    Notes
    -----
    A stream that starts at the end of the logs has an empty first batch, which records that offset
    in its checkpoint. Killed before Spark has written that batch to the checkpoint, the query has
    not begun, and starts at the log end of the next run. Give ``startingOffsets`` in offsets where
    that is not acceptable.
    """

    counts: ClassVar[object] = None
    """What the tasks of streams count into, where there is a `CountChannel`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "kfast"

    def schema(self) -> str:
        """Return the columns of a query without a user's schema."""
        from kfast.spark.source.options import parse_options, shared_options  # noqa: PLC0415
        from kfast.spark.source.schema import default_schema  # noqa: PLC0415

        return default_schema(parse_options(shared_options(self.options), is_stream=False))

    def reader(self, schema: Any) -> KafkaBatchReader:
        """Return the reader of a batch query."""
        from kfast.spark.source.batch_reader import batch_reader  # noqa: PLC0415
        from kfast.spark.source.options import parse_options  # noqa: PLC0415
        from kfast.spark.source.schema import project  # noqa: PLC0415

        options = parse_options(self.options, is_stream=False)
        return batch_reader(options, project(schema.jsonValue(), options))

    def streamReader(self, schema: Any) -> KafkaStreamReader:
        """Return the reader of a stream."""
        from kfast.spark.source.options import parse_options  # noqa: PLC0415
        from kfast.spark.source.schema import project  # noqa: PLC0415
        from kfast.spark.source.stream_reader import KafkaStreamReader  # noqa: PLC0415

        options = parse_options(self.options, is_stream=True)
        return KafkaStreamReader(options, project(schema.jsonValue(), options), self.counts)

    def writer(self, *_: object, **__: object) -> NoReturn:
        """Raise: the source is read-only."""
        raise _read_only()

    def streamWriter(self, *_: object, **__: object) -> NoReturn:
        """Raise: the source is read-only."""
        raise _read_only()


def _read_only() -> ConfigurationError:
    return ConfigurationError(
        'format("kfast") only reads', hint='write with format("kafka") or a producer'
    )
