"""KafkaDataSource: ``format("kfast")``.

Owns the entry Spark calls: it parses the options, chooses schema and reader, and nothing else.
Spark starts a process for the schema, others for the plan and to read, and each gets the source:
every method imports what it needs.

Imports pyspark: it is loaded by ``kfast.spark.KafkaDataSource`` and by ``pyspark_kfast``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource

from kfast.errors import ConfigurationError

if TYPE_CHECKING:
    from kfast.spark.source.batch_reader import KafkaBatchReader
    from kfast.spark.source.stream_reader import KafkaStreamReader


class KafkaDataSource(DataSource):
    """Kafka topics as a source of batch and streaming queries.

    Takes the options and has the schema of ``format("kafka")``; see ``kfast.spark``.

    Notes
    -----
    A stream that starts at the end of the logs has an empty first batch, by which its checkpoint
    knows that place. Before Spark has noted that batch the query has not begun: killed then, it
    starts at what is the end next time. Give ``startingOffsets`` in offsets where that will not do.
    """

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` is called with."""
        return "kfast"

    def schema(self) -> str:
        """Return the columns of a query that names none."""
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
        return KafkaStreamReader(options, project(schema.jsonValue(), options))

    def writer(self, *_: object, **__: object) -> NoReturn:
        """Refuse to write."""
        raise _refuse_writing()

    def streamWriter(self, *_: object, **__: object) -> NoReturn:
        """Refuse to write."""
        raise _refuse_writing()


def _refuse_writing() -> ConfigurationError:
    return ConfigurationError(
        'format("kfast") only reads', hint='write with format("kafka") or a producer'
    )
