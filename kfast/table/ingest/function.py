"""``kfast.ingest``: the public function."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Unpack

from kfast.bulk import Bound, resolve_bounds
from kfast.config import sealed
from kfast.deserializers.typed import TypedDeserializer
from kfast.errors import ConfigurationError
from kfast.internals import KafkaConsumer, internals_of
from kfast.settings.types import ConsumerSettings
from kfast.table.iceberg_partitions import split_partition_by
from kfast.table.ingest.ingesting import Ingest
from kfast.table.ingest.options import (
    BYTES_PER_FILE,
    DEFAULT_COLUMNS,
    EVERY_MS,
    MEMORY_BYTES,
    ROWS_PER_FILE,
    IngestOptions,
    check_columns,
)
from kfast.table.ingest.planning import Bounds
from kfast.table.ingest.summary import IngestSummary
from kfast.types import TopicPartition


def ingest(
    topics: str | Collection[str],
    *,
    to: str,
    format: str = "parquet",
    follow: bool = False,
    start: Bound | None = None,
    end: Bound | None = None,
    columns: Collection[str] = DEFAULT_COLUMNS,
    key: str | TypedDeserializer = "bytes",
    value: str | TypedDeserializer = "bytes",
    on_error: str = "fail",
    partition_by: str | Collection[str] = (),
    compression: str = "zstd",
    rows_per_file: int = ROWS_PER_FILE,
    bytes_per_file: int = BYTES_PER_FILE,
    every_ms: int = EVERY_MS,
    lost: str = "fail",
    dead_letter: str | None = None,
    take_over: bool = False,
    memory_bytes: int = MEMORY_BYTES,
    iceberg_table: str = "",
    upsert: str | Collection[str] = (),
    metrics: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    config: Mapping[str, object] | None = None,
    **configs: Unpack[ConsumerSettings],
) -> IngestSummary:
    """Write topics to a table of files, each record exactly once, on this machine.

    Run it again and it goes on where the table ends, also after a crash at any instant. The table
    is that of ``kfast.spark.ingest``: a folder of files that any reader of Parquet sees, and a log
    in its folder ``_kfast``.

    Parameters
    ----------
    topics : str or collection of str
        Names of topics, or globs such as ``"orders-*"``.
    to : str
        Folder of the table, or a URL of an object store (``s3://``, ``gs://``, ``abfs://``). A new
        table needs an empty one.
    format : {"parquet", "delta", "iceberg", "arrow"}
        Of the files; ``delta`` is a Delta table of Parquet files and needs ``kfast[delta]``,
        ``iceberg`` an Iceberg table of them and needs ``kfast[iceberg]``.
    follow : bool
        Go on with what is written from now on, until ``KeyboardInterrupt``; else read up to the
        ends as of now.
    start : {"earliest", "latest"}, int, datetime or Mapping, optional
        Where partitions begin that the table does not have, as in `scan_topic`; default
        ``"earliest"``. Refused for partitions that it has.
    end : {"earliest", "latest"}, int, datetime or Mapping, optional
        Where this run ends, as in `scan_topic`; default: the ends as of now. Not with ``follow``.
    columns : collection of str
        Of ``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp``,
        ``timestampType``, ``headers`` and ``_rescued_data``, which has the fields of values in JSON
        that no column is read from; default: all but the last two.
    key, value : str or deserializer
        What keys and values are: ``"bytes"``, ``"text"``, ``"int32"``, ``"int64"``, ``"float32"``,
        ``"float64"``, ``"uuid"``; or ``kfast.Json(...)`` or another deserializer with a schema,
        whose columns the table then has, in Spark's types. With a registry its schema has to be
        named.
    on_error : {"fail", "null", "skip"}
        What happens to a record whose key or value is not of its kind, or whose timestamp no column
        can hold.
    partition_by : str or collection of str
        Folders of the table: ``topic``, ``partition``, ``date``, ``hour`` of a record, and of typed
        keys and values ``value.NAME``, ``date(value.NAME)``, ``hour(value.NAME)``.
    compression : str
        zstd, snappy, lz4, gzip or none; in Arrow files zstd, lz4 or none.
    rows_per_file, bytes_per_file : int
        Where a file ends; the bytes are those of a compressed file, give or take a row group.
    every_ms : int
        With ``follow`` a file ends at the latest after this time, and is published.
    lost : {"fail", "skip"}
        What happens if retention has removed offsets before they were read.
    dead_letter : str, optional
        Folder or URL that gets malformed keys, values and timestamps as Parquet files, each exactly
        once, with topic, partition, offset, code, path and bytes; or ``topic:NAME``, a topic
        that they are produced to as they came, at least once, which needs ``kfast[confluent]``.
        They are then decoded on one thread.
    take_over : bool
        Continue a table that a query of Spark has written, and writes no more.
    memory_bytes : int
        Records that are in no file yet take up to half of it.
    iceberg_table : str
        ``"CATALOG.NAMESPACE.TABLE"``, with the format iceberg. pyiceberg's own settings say what
        the catalog is.
    upsert : str or collection of str
        Columns of the rows by which they are inserted, updated and deleted in a Delta table, so
        that it equals the source of the events: values are ``kfast.Debezium(...)``, or rows. A row
        is deleted by an event of Debezium's, or a record without a value. Keys of records have
        these columns; of events of JSON, and with a registry, their schema need not be given.
        ``columns`` are those that the table has besides.
    metrics : str, optional
        Serve metrics to Prometheus meanwhile: ``":9400"`` to this machine, ``"HOST:9400"``.
    storage_options : Mapping, optional
        For the filesystem of an object store, such as credentials.
    config : Mapping, optional
        Settings of `KafkaConsumer` by Kafka's dotted names.
    **configs
        The same by keyword. With a ``group_id`` the ends of what was published are
        committed, for tools that show lag.

    Returns
    -------
    IngestSummary
        What was added.

    Raises
    ------
    ConfigurationError
        An option is malformed, or the table is of another shape or written by a query of Spark.
    UnknownTopicOrPartitionError
        A topic does not exist.
    OffsetOutOfRangeError
        Offsets are gone, or the topic was created anew.
    StorageError
        The table cannot be written; it is as it was before the batch.
    KafkaError
        Another ingest writes the table.

    Examples
    --------
    >>> kfast.ingest("orders", to="/data/orders", bootstrap_servers="localhost:9092")
    IngestSummary(rows=3, ...)
    """
    settings = sealed({**configs, "config": config or {}})
    del configs, config
    options = IngestOptions(
        topics=(topics,) if isinstance(topics, str) else tuple(topics),
        to=to,
        format=format,
        follow=follow,
        columns=check_columns(columns),
        key=key,
        value=value,
        on_error=on_error,
        partition_by=tuple(_names(partition_by)),
        compression=compression,
        rows_per_file=rows_per_file,
        bytes_per_file=bytes_per_file,
        every_ms=every_ms,
        lost=lost,
        dead_letter=dead_letter,
        take_over=take_over,
        memory_bytes=memory_bytes,
        iceberg_table=iceberg_table,
        upsert=tuple(_names(upsert)),
        metrics=metrics,
        storage_options=dict(storage_options or {}),
    )

    if end is not None and follow:
        raise ConfigurationError("end with follow=True", hint="leave one of them out")

    def bounds(consumer: KafkaConsumer, names: Collection[str]) -> Mapping[TopicPartition, Bounds]:
        partitions = [
            TopicPartition(name, number)
            for name in sorted(names)
            for number in sorted(internals_of(consumer).required_partitions(name))
        ]
        ranges, lost_offsets = resolve_bounds(
            consumer,
            partitions,
            "earliest" if start is None else start,
            "latest" if end is None else end,
            skips_lost=True,  # here: what is gone is an error, or counted, when it is planned
        )
        return {
            tp: (
                None if start is None else first - lost_offsets.get(tp, 0),
                None if end is None else last,
            )
            for tp, (first, last) in ranges.items()
        }

    is_bounded = start is not None or end is not None
    return Ingest(options, settings, bounds=bounds if is_bounded else None).run()


def _names(names: str | Collection[str]) -> list[str]:
    return [*split_partition_by(names)] if isinstance(names, str) else [*names]
