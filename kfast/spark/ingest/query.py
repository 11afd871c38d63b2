"""``kfast.spark.ingest``: starts the query that writes topics to a table.

Owns the steps before a query runs: check the options, open the table for this checkpoint, finish
and sweep what an earlier run left, start Spark's query. The query itself is ``source`` and
``publish``.

Driver only. Imports pyspark when called, and works with Spark Connect as well: then the folders
must be reachable from the client too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kfast._base.optional import optional_package
from kfast.config import ConsumerConfig
from kfast.errors import ConfigurationError
from kfast.kafka_consumer import KafkaConsumer
from kfast.spark.ingest.opening import open_table
from kfast.spark.ingest.plan import IngestPlan
from kfast.spark.ingest.query_metrics import QueryMetrics
from kfast.spark.source.count_channel import CHANNEL
from kfast.spark.source.option_kinds import duration_ms
from kfast.spark.source.options import parse_options, shared_options
from kfast.spark.source.schema import default_schema, project
from kfast.spark.source.worker_check import check_workers
from kfast.table.dead_letter_sink import letter_topic
from kfast.table.dead_letter_topic import check_letter_topic
from kfast.table.dead_letters import check_can_be_bad, check_dead_letters
from kfast.table.entries import TableShape
from kfast.table.file_formats import COMPRESSIONS
from kfast.table.fsspec_store import open_store
from kfast.table.iceberg_catalog import check_iceberg
from kfast.table.iceberg_partitions import split_partition_by
from kfast.table.location import is_local, scheme_of
from kfast.table.log_formats import open_log
from kfast.table.option_spelling import OptionSpelling
from kfast.table.partitioning import check_partition_by, check_partitioning
from kfast.table.producer_settings import producer_settings
from kfast.table.schema_changes import as_table, schema_change
from kfast.table.store import storage_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kfast.table.projection import Projection
    from kfast.table.store import TableStore
    from kfast.table.table_log import TableLog

FORMATS: Final = ("parquet", "delta", "iceberg")
AVAILABLE_NOW: Final = "available-now"
ORPHAN_AGE_MS: Final = 86_400_000
_HADOOP_PACKAGES: Final = {
    "s3a": "org.apache.hadoop:hadoop-aws:VERSION (that of Spark's hadoop-client jars)",
    "abfs": "org.apache.hadoop:hadoop-azure:VERSION (that of Spark's hadoop-client jars)",
    "abfss": "org.apache.hadoop:hadoop-azure:VERSION (that of Spark's hadoop-client jars)",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:hadoop3-VERSION",
}
FILE_RECORDS: Final = 5_000_000
"""Most offsets of a file, unless ``maxRecordsPerPartition`` says otherwise."""


def ingest(
    spark: SparkSession,
    *,
    bootstrap_servers: str,
    topics: str | Sequence[str] = (),
    output: str,
    checkpoint: str,
    trigger: str = AVAILABLE_NOW,
    format: str = "parquet",
    value_format: str = "binary",
    schema: str | None = None,
    partition_by: str | Sequence[str] = (),
    compression: str = "zstd",
    options: Mapping[str, object] | None = None,
    take_over: bool = False,
    orphan_age_ms: int = ORPHAN_AGE_MS,
    storage_options: Mapping[str, str] | None = None,
    query_name: str | None = None,
    iceberg_table: str = "",
    metrics: str | None = None,
    dead_letter: str | None = None,
) -> StreamingQuery:
    """Write Kafka topics to a table of Parquet files, each record exactly once.

    Spark's workers fetch, decode and write the files themselves; only one row per file passes
    through Spark. Crashes at any point, of tasks or of the driver, leave each (topic, partition,
    offset) in the table exactly once when the query has been started again.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect; its workers need kfast and pyarrow.
    bootstrap_servers : str
        Addresses of brokers: ``"host:9092,host:9092"``.
    topics : str or sequence of str
        Topics; leave them out to give ``subscribePattern`` or ``assign`` in `options`.
    output : str
        Folder of the table: a path all machines share, or a URL of an object store whose
        filesystem creates files atomically (``s3://``, ``gs://``, ``abfs://``; see
        ``kfast.table.fsspec_store``). A new table needs an empty one.
    checkpoint : str
        Folder for Spark's checkpoint and kfast's id of the query, by which the table identifies it.
    trigger : str
        ``available-now`` reads up to the present log ends and stops; an interval such as ``5s``
        runs until stopped.
    format : str
        ``parquet``; ``delta``, which needs ``kfast[delta]``; or ``iceberg``, which needs
        ``kfast[iceberg]``.
    value_format : str
        How values are decoded: ``binary``, ``utf8``, ``int32``, ``int64``, ``float32``,
        ``float64``, ``uuid``, ``struct``, ``json``, ``avro`` or ``protobuf``. What the last three
        need besides (``valueSchema``, ``schemaRegistry.url``, ...) is in `options`.
    schema : str, optional
        The columns to write, in Spark's DDL, such as
        ``offset long, value struct<id: int, price: double>``. Default: all.
    partition_by : str or sequence of str
        Folders of the table: ``topic``, ``partition``, ``date``, ``hour`` of a record, and of typed
        keys and values ``value.NAME``, ``date(value.NAME)``, ``hour(value.NAME)``.
    compression : str
        Of the files: zstd, snappy, lz4, gzip, none.
    options : Mapping, optional
        Further options of ``format("kfast")``: ``startingOffsets`` (here earliest by default),
        ``maxOffsetsPerTrigger``, ``includeHeaders``, ``failOnDataLoss``, ``kafka.*``, ...
    take_over : bool
        Continue a table that was written from another checkpoint, for one that is lost. The new
        checkpoint must be empty. A query with the old one fails from then on.
    orphan_age_ms : int
        Files of failed tasks older than this are removed before the query starts.
    storage_options : Mapping, optional
        For the filesystems of `output` and `checkpoint`, such as credentials.
    query_name : str, optional
        Name of the query in Spark's web pages.
    iceberg_table : str
        ``"CATALOG.NAMESPACE.TABLE"``, with the format ``iceberg``. pyiceberg's own settings say
        what the catalog is; they have to be there on the driver.
    metrics : str, optional
        Serve metrics to Prometheus from the driver while the query runs: ``":9400"`` to this
        machine, ``"HOST:9400"``.
    dead_letter : str, optional
        Folder or URL that gets malformed keys and values as Parquet files, each exactly once, with
        topic, partition, offset, code, path and bytes; or ``topic:NAME``, a topic that workers
        produce them to, at least once (``kfast[confluent]``). Their records are null in the table,
        or left out with the option ``mode=DROPMALFORMED``.

    Returns
    -------
    StreamingQuery
        Spark's query; ``awaitTermination()`` waits for its end.

    Raises
    ------
    ConfigurationError
        An option is malformed, or the table belongs to another checkpoint or is of another shape.
    MissingDependencyError
        pyspark, pyarrow, or the package of a filesystem or of Delta is missing; or kfast or pyarrow
        are missing on Spark's workers.
    """
    optional_package("pyspark", "kfast.spark.ingest")
    optional_package("pyarrow", "kfast.spark.ingest")
    from kfast.spark.ingest.source import FORMAT, IngestSource  # noqa: PLC0415 - imports pyspark

    wanted = check_settings(
        bootstrap_servers=bootstrap_servers,
        topics=topics,
        trigger=trigger,
        format=format,
        value_format=value_format,
        partition_by=partition_by,
        compression=compression,
        options=options or {},
    )
    source = wanted.source
    check_iceberg(format, iceberg_table)
    check_workers(spark)
    shape, projection = _shape(spark, source, schema, format, wanted.partition_by)
    shape = replace(shape, catalog_table=iceberg_table)
    options_of_stores = dict(storage_options or {})

    def open_folder(url: str) -> TableStore:
        return open_store(url, options_of_stores)

    log = open_log(open_folder(output), shape, open_folder)
    folder = open_folder(checkpoint)
    letters = ""
    if dead_letter is not None:
        check_can_be_bad(projection, wanted.partition_by)
        letters = _letters(
            dead_letter,
            source,
            log.store.url,
            options_of_stores,
            is_connect=type(spark).__module__.startswith("pyspark.sql.connect"),
        )
    location = _spark_location(spark, folder.url)
    with storage_errors(f"cannot open {log.store.url} with the checkpoint {folder.url}"):
        shape, projection = _as_table(log, shape, projection)
        table = open_table(
            log,
            folder,
            shape,
            shape.in_files(projection),
            open_folder,
            take_over=take_over,
            orphan_age_ms=orphan_age_ms,
            dead_letters="" if letter_topic(letters) else letters,
        )
    plan = IngestPlan(
        log.store.url,
        folder.url,
        table.writer,
        shape,
        projection,
        compression,
        # Of its own first entry: the ends of the writers before it.
        table.last.ends if table.last.batch_id is None else {},
        options_of_stores,
        table.last.topic_ids,
        letters,
        table.field_ids,
        table.partition_fields,
    )
    spark.dataSource.register(CHANNEL.counted(spark, IngestSource))
    reader = spark.readStream.format(FORMAT).options(**source, **plan.options())
    stream = reader.load().writeStream.format(FORMAT).options(**plan.options())
    if query_name is not None:
        stream = stream.queryName(query_name)
    stream = stream.option("checkpointLocation", location).trigger(**wanted.trigger)
    if metrics is None:
        return stream.start()
    served = QueryMetrics(metrics, log)
    try:
        query = stream.start()
    except BaseException:
        served.close()
        raise
    served.begin(query)
    return query


def _letters(
    dead_letter: str,
    source: Mapping[str, str],
    table: str,
    storage_options: Mapping[str, str],
    *,
    is_connect: bool,
) -> str:
    """Return where dead letters go, checked: the URL of a folder, or a topic."""
    topic = letter_topic(dead_letter)
    if not topic:
        return check_dead_letters(dead_letter, table, storage_options)
    options = parse_options(source, is_stream=True)
    names = options.topics.names
    is_matched = bool(options.topics.choose(topic, [0], is_internal=False))
    check_letter_topic(topic, is_read=is_matched if names is None else topic in names)
    producer_settings(ConsumerConfig(options.kafka))
    if not is_connect:  # whose client may have no way to the brokers
        with KafkaConsumer(config=options.kafka) as consumer:
            consumer.internals.required_partitions(topic)
    return dead_letter


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked arguments of an ingest."""

    source: dict[str, str]
    """Options of the source."""
    trigger: dict[str, Any]
    """Arguments of ``DataStreamWriter.trigger``."""
    partition_by: tuple[str, ...]


def check_settings(
    *,
    bootstrap_servers: str,
    topics: str | Sequence[str],
    trigger: str,
    format: str,
    value_format: str,
    partition_by: str | Sequence[str],
    compression: str,
    options: Mapping[str, object],
) -> Settings:
    """Check what can be checked without Spark, a broker or a filesystem; see `ingest`."""
    _check(format, "format", FORMATS)
    _check(compression, "compression", COMPRESSIONS)
    if isinstance(partition_by, str):
        partition_by = split_partition_by(partition_by)
    return Settings(
        _source_options(bootstrap_servers, topics, value_format, options),
        _trigger(trigger),
        _partition_by(format, [name for name in partition_by if name]),
    )


def _partition_by(format: str, names: Sequence[str]) -> tuple[str, ...]:
    check_partition_by(format, names)
    return tuple(names)


def _check(value: str, name: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigurationError(f"{name} = {value}: unknown", hint=f"one of {', '.join(known)}")


def _trigger(text: str) -> dict[str, Any]:
    if text.lower() == AVAILABLE_NOW:
        return {"availableNow": True}
    try:
        return {"processingTime": f"{duration_ms(text)} milliseconds"}
    except ValueError as error:
        raise ConfigurationError(
            f"trigger = {text}: not understood", hint=f"{AVAILABLE_NOW}, or {error}"
        ) from None


def _source_options(
    bootstrap_servers: str,
    topics: str | Sequence[str],
    value_format: str,
    options: Mapping[str, object],
) -> dict[str, str]:
    """Return the options of the source, checked."""
    text = topics if isinstance(topics, str) else ",".join(topics)
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
    lower = {name.lower() for name in given}
    chosen = {"kafka.bootstrap.servers": bootstrap_servers, "valueFormat": value_format}
    if text:
        chosen["subscribe"] = text
    if not any(name.startswith("starting") for name in lower):
        chosen["startingOffsets"] = "earliest"
    if "maxrecordsperpartition" not in lower:
        chosen["maxRecordsPerPartition"] = str(FILE_RECORDS)
    doubled = sorted(name for name in chosen if name.lower() in lower)
    if doubled:
        raise ConfigurationError(
            f"option {doubled[0]} is given twice", hint="leave it out of the options"
        )
    chosen.update(given)
    parse_options(chosen, is_stream=True)
    return chosen


def _shape(
    spark: SparkSession,
    source: Mapping[str, str],
    schema: str | None,
    format: str,
    partition_by: tuple[str, ...],
) -> tuple[TableShape, Projection]:
    """Return the shape of the table, and the projection of each record."""
    ddl = schema or default_schema(parse_options(shared_options(source), is_stream=False))
    try:
        parsed = spark.createDataFrame([], ddl).schema.jsonValue()
    except Exception as error:  # its class depends on the kind of session
        raise ConfigurationError(
            f"schema = {ddl}: not understood",
            cause=str(error).strip().split("\n", 1)[0],
            hint="columns and types as in SQL: offset long, value string",
        ) from error
    projection = project(parsed, parse_options(source, is_stream=True))
    projection = replace(projection, spelling=OptionSpelling.SPARK_INGEST)
    check_partitioning(format, partition_by, projection)
    return TableShape(format, projection.ddl, partition_by), projection


def _as_table(
    log: TableLog, shape: TableShape, projection: Projection
) -> tuple[TableShape, Projection]:
    """Return the columns with the types of the table, where that has wider ones."""
    last = log.last()
    if last is None or not last.shape.schema:
        return shape, projection
    change = schema_change(last.shape.schema, shape.schema, log.store.url, shape.format)
    projection = as_table(projection, change)
    return replace(shape, schema=projection.ddl), projection


def _spark_location(spark: SparkSession, url: str) -> str:
    """Return the location of a checkpoint as Spark takes it, and check that Spark can read it.

    Spark writes checkpoints through Hadoop's filesystems, not through fsspec's. The check comes
    before the table and the checkpoint are begun, which they would be for nothing.
    """
    if is_local(url):  # without a scheme Spark takes the cluster's default filesystem
        return f"file://{url}"
    try:
        _ = spark.read.text(url).schema  # evaluated here also with Spark Connect
    except Exception as error:  # its class depends on the kind of session
        text = str(error).strip()
        if "PATH_NOT_FOUND" not in text:
            raise ConfigurationError(
                f"Spark cannot use the checkpoint {url}",
                cause=text.split("\n", 1)[0],
                hint=_checkpoint_hint(url, text),
            ) from error
    return url


def _checkpoint_hint(url: str, text: str) -> str:
    scheme = scheme_of(url)
    if scheme == "s3" and "No FileSystem" in text:
        return f"Hadoop's name for it is s3a: give s3a{url.removeprefix(scheme)}, or a local folder"
    if "No FileSystem" in text or "ClassNotFound" in text:
        package = _HADOOP_PACKAGES.get(scheme, f"Hadoop's package for {scheme}")
        return f"set spark.jars.packages={package}, or use a folder that all machines share"
    return f"check Spark's settings of {scheme} (spark.hadoop.fs.{scheme}.*)"
