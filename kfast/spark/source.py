"""KafkaDataSource: ``format("kfast")``.

Owns the entry Spark calls: it parses the options, chooses schema and reader, and nothing else.

Imports pyspark: it is loaded by ``kfast.spark.KafkaDataSource`` and by ``pyspark_kfast``.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSource

from kfast.spark.batch_reader import KafkaBatchReader, batch_reader, refuse_writing
from kfast.spark.options import parse_options, shared_options
from kfast.spark.schema import default_schema, project
from kfast.spark.stream_reader import KafkaStreamReader


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
        return default_schema(parse_options(shared_options(self.options), is_stream=False))

    def reader(self, schema: Any) -> KafkaBatchReader:
        """Return the reader of a batch query."""
        options = parse_options(self.options, is_stream=False)
        return batch_reader(options, project(schema.jsonValue(), options))

    def streamReader(self, schema: Any) -> KafkaStreamReader:
        """Return the reader of a stream."""
        options = parse_options(self.options, is_stream=True)
        return KafkaStreamReader(options, project(schema.jsonValue(), options))

    def writer(self, *_: object, **__: object) -> NoReturn:
        """Refuse to write."""
        raise refuse_writing()

    def streamWriter(self, *_: object, **__: object) -> NoReturn:
        """Refuse to write."""
        raise refuse_writing()
