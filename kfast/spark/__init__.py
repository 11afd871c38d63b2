"""Kafka in Spark without a jar: ``format("kfast")`` replaces ``format("kafka")``.

>>> spark.read.format("kfast").options(**{"kafka.bootstrap.servers": "localhost:9092",
...     "subscribe": "events"}).load()
>>> spark.readStream.format("kfast").schema("offset long, value string").option(
...     "valueFormat", "utf8").options(...).load()

Spark finds the source by itself where kfast is installed (Spark looks for modules called
``pyspark_*`` in the folders of ``sys.path``); where it does not, as in an editable installation,
``kfast.spark.register(spark)`` registers it. Options are those of ``format("kafka")``;
``kfast.spark.source.option_table.OPTIONS`` lists them with kfast's own. A schema given by the user
is the projection: only the columns it names are decoded and sent to Spark, which is where most of
the time goes.

Records are fetched and decoded on Spark's Python workers and enter the JVM as Arrow. The driver
only looks up offsets. ``kfast.spark.ingest`` writes topics to a table of Parquet files without
their records entering the JVM at all. Needs ``kfast[spark]``: pyspark 4.0 or newer and pyarrow,
which are imported when first used; importing this package imports neither.

==================  ================================================================
folder              what it owns
==================  ================================================================
``source``          ``format("kfast")``. Options: ``option_table``, ``options``,
                    ``offset_limits``, ``java_pattern``; columns: ``schema``;
                    look-ups of the driver: ``driver``; plan of a batch
                    query: ``batch_reader``, ``offset_filters``; offsets of a stream:
                    ``stream_offsets``; a task on a worker: ``read_task``,
                    ``range_reader``; what was not read: ``data_loss``,
                    ``count_channel``, ``query_lag``; processes of Spark's that lack
                    kfast: ``process_check``, ``worker_check``.
                    ``batch_reader``, ``stream_reader``, ``source`` and ``lag`` subclass
                    pyspark's classes
``ingest``          the pipeline to Parquet and Delta: ``query`` is ``ingest()``,
                    ``source`` the classes Spark calls; a task on a worker: ``task``;
                    ``kfast ingest --spark`` is its command line, ``submit`` what
                    ``spark-submit`` runs of it
``kfast.table``     exactly once: ``table_log``, ``publish``, ``store``; records
                    in Arrow: ``projection``, ``arrow_types``, ``arrow_batches``; files:
                    ``range_files``, ``file_formats``; ``topic_ids``, ``read_counts``
==================  ================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kfast.spark.ingest.query import ingest
    from kfast.spark.source.lag import LagListener
    from kfast.spark.source.source import KafkaDataSource

__all__ = ["KafkaDataSource", "LagListener", "ingest", "register"]


def register(spark: Any) -> None:
    """Register ``format("kfast")`` with a Spark session.

    Parameters
    ----------
    spark : SparkSession
        The session, classic or Spark Connect.

    Raises
    ------
    MissingDependencyError
        pyspark is not installed.
    """
    source = _load("KafkaDataSource")
    from kfast.spark.source.count_channel import CHANNEL  # noqa: PLC0415 - this package imports lazily

    spark.dataSource.register(CHANNEL.counted(spark, source))


def _load(name: str) -> Any:
    from kfast._base.optional import optional_package  # noqa: PLC0415 - this package imports lazily

    optional_package("pyspark", f"kfast.spark.{name}")
    if name == "KafkaDataSource":
        from kfast.spark.source.source import KafkaDataSource  # noqa: PLC0415 - imports pyspark

        return KafkaDataSource
    if name == "ingest":
        import kfast.spark.ingest as ingest  # noqa: PLC0415, PLR0402 - the package is callable

        return ingest
    from kfast.spark.source.lag import LagListener  # noqa: PLC0415 - imports pyspark

    return LagListener


def __getattr__(name: str) -> Any:
    if name in ("KafkaDataSource", "LagListener", "ingest"):
        return _load(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
