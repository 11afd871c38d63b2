"""Kafka in Spark without a jar: ``format("kfast")`` takes the place of ``format("kafka")``.

>>> spark.read.format("kfast").options(**{"kafka.bootstrap.servers": "localhost:9092",
...     "subscribe": "events"}).load()
>>> spark.readStream.format("kfast").schema("offset long, value string").option(
...     "valueFormat", "utf8").options(...).load()

Spark finds the source by itself where kfast is installed (Spark looks for modules called
``pyspark_*`` in the folders of ``sys.path``); where it does not, as in an editable installation,
``kfast.spark.register(spark)`` announces it. Options are those of ``format("kafka")``;
``kfast.spark.options.OPTIONS`` lists them with kfast's own. A schema given by the user is the
projection: only the columns it names are decoded and shipped, which is where most of the time goes.

Records are fetched and decoded on Spark's Python workers and enter the JVM as Arrow. The driver
only asks for offsets. ``kfast.spark.ingest`` brings topics into a table of Parquet files without
their records entering the JVM at all. Needs ``kfast[spark]``: pyspark 4.0 or newer and pyarrow,
which are imported when first used; importing this package imports neither.

==================  ================================================================
module              what
==================  ================================================================
``options``, ...    the options: parsing, rules, refusals; ``offset_limits``,
                    ``topic_selection``, ``option_kinds``, ``offsets_json``
``schema``          columns, projection; ``arrow_types``
``driver``          look-ups of partitions and offsets
``batch_plan``,     which offsets are read; arithmetic in ``offset_ranges``, filters
``stream_offsets``  in ``offset_filters``, where a stream starts in ``first_batch``
``read_task``,      a task on a worker, all that only workers import;
``range_reader``    ``consumer_cache``, ``worker_process``
``arrow_batches``   records as Arrow batches
``batch_reader``,   what Spark calls: the only modules, with ``lag``, that import
``stream_reader``,  pyspark
``source``
``ingest_query``,   the pipeline to Parquet and Delta: ``ingest()`` and its command line;
``ingest_cli``, ... ``ingest_source`` is what Spark calls and imports pyspark
``publish``,        exactly once: ``table_log``, ``manifest``, ``table_store``; ``parquet_files``
...                 writes on the workers, in ``ingest_task``
==================  ================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kfast.spark.ingest_query import ingest
    from kfast.spark.lag import LagListener
    from kfast.spark.source import KafkaDataSource

__all__ = ["KafkaDataSource", "LagListener", "ingest", "register"]


def register(spark: Any) -> None:
    """Announce ``format("kfast")`` to a Spark session.

    Parameters
    ----------
    spark : SparkSession
        The session, classic or Spark Connect.

    Raises
    ------
    MissingDependencyError
        pyspark is not installed.
    """
    spark.dataSource.register(_load("KafkaDataSource"))


def _load(name: str) -> Any:
    from kfast._arrow import optional_package  # noqa: PLC0415 - this package imports nothing early

    optional_package("pyspark", f"kfast.spark.{name}")
    if name == "KafkaDataSource":
        from kfast.spark.source import KafkaDataSource  # noqa: PLC0415 - imports pyspark

        return KafkaDataSource
    if name == "ingest":
        from kfast.spark.ingest_query import ingest  # noqa: PLC0415 - a function of this name

        return ingest
    from kfast.spark.lag import LagListener  # noqa: PLC0415 - imports pyspark

    return LagListener


def __getattr__(name: str) -> Any:
    if name in ("KafkaDataSource", "LagListener", "ingest"):
        return _load(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
