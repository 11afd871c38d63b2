"""``kfast.spark.ingest``: starts the query that writes topics to a table.

Owns the options of an ingest (`QueryOptions`), and the steps before its query runs: open the table
for this checkpoint, finish and sweep what an earlier run left, start Spark's query. The query
itself is ``source`` and ``publish``.

Driver only. Imports pyspark when called, and works with Spark Connect as well: then the folders
must be reachable from the client too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kfast._base.optional import optional_package
from kfast.config import ConsumerConfig
from kfast.errors import ConfigurationError
from kfast.internals import KafkaConsumer, internals_of
from kfast.spark.ingest.checkpoint import open_table
from kfast.spark.ingest.plan import IngestPlan
from kfast.spark.source.count_channel import CHANNEL
from kfast.spark.source.option_table import duration_ms
from kfast.spark.source.options import parse_options, shared_options
from kfast.spark.source.query_lag import progress_offsets, query_lag
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
from kfast.table.ingest_metrics import serve_metrics
from kfast.table.leftovers import probe_store
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

    from kfast.table.entries import Entry
    from kfast.table.projection import Projection
    from kfast.table.store import TableStore
    from kfast.table.table_log import TableLog
    from kfast.types import TopicPartition

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
    text = topics if isinstance(topics, str) else ",".join(topics)
    names = split_partition_by(partition_by) if isinstance(partition_by, str) else partition_by
    query_options = QueryOptions(
        bootstrap_servers=bootstrap_servers,
        topics=text,
        output=output,
        checkpoint=checkpoint,
        trigger=trigger,
        format=format,
        value_format=value_format,
        schema=schema,
        partition_by=tuple(filter(None, names)),
        compression=compression,
        options=options or {},
        take_over=take_over,
        orphan_age_ms=orphan_age_ms,
        storage_options=dict(storage_options or {}),
        query_name=query_name,
        iceberg_table=iceberg_table,
        metrics=metrics,
        dead_letter=dead_letter,
    )
    return start_query(spark, query_options)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """What to write where; see `ingest`.

    It checks what can be checked without Spark, a broker or a filesystem, and raises
    ``ConfigurationError``.
    """

    bootstrap_servers: str
    topics: str
    """Their names, with commas between."""
    output: str
    checkpoint: str
    trigger: str = AVAILABLE_NOW
    format: str = "parquet"
    value_format: str = "binary"
    schema: str | None = None
    columns: tuple[str, ...] = ()
    """Names of the columns, in place of a schema."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Of keys and values whose schema the source does not have, in Spark's DDL."""
    partition_by: tuple[str, ...] = ()
    compression: str = "zstd"
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    take_over: bool = False
    orphan_age_ms: int = ORPHAN_AGE_MS
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    query_name: str | None = None
    iceberg_table: str = ""
    metrics: str | None = None
    dead_letter: str | None = None
    spelling: OptionSpelling = OptionSpelling.SPARK_INGEST
    """Of options in hints."""
    source: Mapping[str, str] = field(init=False, repr=False)
    """The options of the source."""
    trigger_arguments: Mapping[str, Any] = field(init=False, repr=False)
    """Those of ``DataStreamWriter.trigger``."""

    def __post_init__(self) -> None:
        """Check each option."""
        _check(self.format, "format", FORMATS)
        _check(self.compression, "compression", COMPRESSIONS)
        object.__setattr__(self, "source", self._source_options())
        object.__setattr__(self, "trigger_arguments", _trigger(self.trigger))
        check_partition_by(self.format, self.partition_by)
        check_iceberg(self.format, self.iceberg_table)
        if self.metrics is not None:
            from kfast.internals import metrics_address  # noqa: PLC0415 - if asked for

            metrics_address(self.metrics)

    def _source_options(self) -> dict[str, str]:
        texts = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.options.items()
        }
        names = {name.lower() for name in texts}
        chosen = {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "valueFormat": self.value_format,
        }
        if self.topics:
            chosen["subscribe"] = self.topics
        if not any(name.startswith("starting") for name in names):
            chosen["startingOffsets"] = "earliest"
        if "maxrecordsperpartition" not in names:
            chosen["maxRecordsPerPartition"] = str(FILE_RECORDS)
        doubled = sorted(name for name in chosen if name.lower() in names)
        if doubled:
            raise ConfigurationError(
                f"option {doubled[0]} is given twice", hint="leave it out of the options"
            )
        chosen.update(texts)
        parse_options(chosen, is_stream=True)
        return chosen

    @property
    def follows_schema(self) -> bool:
        """Whether versions of schemas are taken that are registered while the query runs.

        A query that ends at the present log ends has no values of later versions.
        """
        source = parse_options(self.source, is_stream=True)
        if not source.registry or self.schema is not None:
            return False
        from kfast.spark.source.value_schemas import followed_columns  # noqa: PLC0415 - decoders

        return "availableNow" not in self.trigger_arguments and bool(followed_columns(source))

    def open_folder(self, url: str) -> TableStore:
        """Open a folder with the options of the table's."""
        return open_store(url, self.storage_options)

    def open_log(self) -> TableLog:
        """Open the table's log."""
        shape = TableShape(self.format, catalog_table=self.iceberg_table)
        return open_log(self.open_folder(self.output), shape, self.open_folder)

    def check_folders(self) -> None:
        """Check that the folders can be opened, and that of the table be written."""
        self.open_folder(self.checkpoint)
        if self.dead_letter is not None and not letter_topic(self.dead_letter):
            self.open_folder(self.dead_letter)
        probe_store(self.open_folder(self.output))


def start_query(spark: SparkSession, options: QueryOptions) -> StreamingQuery:
    """Start the query of an ingest; see `ingest`."""
    optional_package("pyspark", "kfast.spark.ingest")
    optional_package("pyarrow", "kfast.spark.ingest")
    from kfast.spark.ingest.source import FORMAT, IngestSource  # noqa: PLC0415 - imports pyspark

    check_workers(spark)
    shape, projection = _shape(spark, options)
    log, folder = options.open_log(), options.open_folder(options.checkpoint)
    is_connect = type(spark).__module__.startswith("pyspark.sql.connect")
    letters = ""
    if options.dead_letter is not None:
        check_can_be_bad(projection, options.partition_by)
        letters = _letters(options.dead_letter, options, log.store.url, is_connect=is_connect)
    location = _spark_location(spark, folder.url)
    with storage_errors(f"cannot open {log.store.url} with the checkpoint {folder.url}"):
        last = log.last()
        shape, projection = _as_table(last, shape, projection, log.store.url)
        table = open_table(
            log,
            last,
            folder,
            shape,
            shape.in_files(projection),
            options.open_folder,
            take_over=options.take_over,
            orphan_age_ms=options.orphan_age_ms,
            dead_letters="" if letter_topic(letters) else letters,
        )
    plan = IngestPlan(
        log.store.url,
        folder.url,
        table.writer,
        shape,
        projection,
        options.compression,
        # Of its own first entry: the ends of the writers before it.
        table.last.ends if table.last.batch_id is None else {},
        options.storage_options,
        table.last.topic_ids,
        letters,
        table.field_ids,
        table.partition_fields,
        follows_schema=options.follows_schema,
    )
    spark.dataSource.register(CHANNEL.counted(spark, IngestSource))
    reader = spark.readStream.format(FORMAT).options(**options.source, **plan.options())
    stream = reader.load().writeStream.format(FORMAT).options(**plan.options())
    if options.query_name is not None:
        stream = stream.queryName(options.query_name)
    stream = stream.option("checkpointLocation", location).trigger(**options.trigger_arguments)
    if options.metrics is None:
        return stream.start()
    metrics = QueryMetrics(options.metrics, log)
    try:
        query = stream.start()
    except BaseException:
        metrics.close()
        raise
    metrics.begin(query)
    return query


def _letters(dead_letter: str, options: QueryOptions, table: str, *, is_connect: bool) -> str:
    """Return where dead letters go, checked: the URL of a folder, or a topic."""
    topic = letter_topic(dead_letter)
    if not topic:
        return check_dead_letters(dead_letter, table, options.storage_options)
    source = parse_options(options.source, is_stream=True)
    names = source.topics.names
    is_matched = bool(source.topics.choose(topic, [0], is_internal=False))
    check_letter_topic(topic, is_read=is_matched if names is None else topic in names)
    producer_settings(ConsumerConfig(source.kafka))
    if not is_connect:  # whose client may have no way to the brokers
        with KafkaConsumer(config=source.kafka) as consumer:
            internals_of(consumer).required_partitions(topic)
    return dead_letter


def _check(value: str, name: str, values: Sequence[str]) -> None:
    if value not in values:
        raise ConfigurationError(f"{name} = {value}: unknown", hint=f"one of {', '.join(values)}")


def _trigger(text: str) -> dict[str, Any]:
    if text.lower() == AVAILABLE_NOW:
        return {"availableNow": True}
    try:
        return {"processingTime": f"{duration_ms(text)} milliseconds"}
    except ValueError as error:
        raise ConfigurationError(
            f"trigger = {text}: not understood", hint=f"{AVAILABLE_NOW}, or {error}"
        ) from None


def _shape(spark: SparkSession, options: QueryOptions) -> tuple[TableShape, Projection]:
    """Return the shape of the table, and the projection of each record."""
    source = options.source
    ddl = options.schema
    if ddl is None:
        shared = parse_options(shared_options(source), is_stream=False)
        ddl = default_schema(shared, options.columns, options.types)
    try:
        parsed = spark.createDataFrame([], ddl).schema.jsonValue()
    except Exception as error:  # its class depends on the kind of session
        raise ConfigurationError(
            f"schema = {ddl}: not understood",
            cause=str(error).strip().split("\n", 1)[0],
            hint="columns and types as in SQL: offset long, value string",
        ) from error
    projection = project(parsed, parse_options(source, is_stream=True))
    projection = replace(projection, spelling=options.spelling)
    check_partitioning(options.format, options.partition_by, projection)
    shape = TableShape(options.format, projection.ddl, options.partition_by, options.iceberg_table)
    return shape, projection


def _as_table(
    last: Entry | None, shape: TableShape, projection: Projection, url: str
) -> tuple[TableShape, Projection]:
    """Return the columns with the types of the table, where that has wider ones."""
    if last is None or not last.shape.schema:
        return shape, projection
    change = schema_change(last.shape.schema, shape.schema, url, shape.format)
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


class QueryMetrics:
    """Serves the metrics of a query at an address, from before it starts.

    The server ends by itself soon after the query. The lag is that of Spark's last progress.
    """

    def __init__(self, address: str, log: TableLog) -> None:
        self._query: Any = None
        self._server = serve_metrics(address, log, self._lag, self._is_over)

    def begin(self, query: Any) -> None:
        """Take the query, which has started."""
        self._query = query

    def close(self) -> None:
        """End the server; the query did not start."""
        self._server.close()

    def _is_over(self) -> bool:
        return self._query is not None and not self._query.isActive

    def _lag(self) -> Mapping[TopicPartition, int]:
        progresses = [] if self._query is None else self._query.recentProgress
        if not progresses:
            return {}
        last = progresses[-1]
        lag = query_lag("", None, int(last.batchId), progress_offsets(last))
        return {} if lag is None else lag.partitions

    def __repr__(self) -> str:
        return f"<QueryMetrics at {self._server.url}>"
