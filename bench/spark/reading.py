"""The table of the Spark benchmark's cases and contestants.

A contestant is a function that prepares and returns the action that is timed: for the noop sink the
DataFrame is made before, as in a session that has been used; an ingest is timed from its call to
the end of its query, including start and publishing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.data import TopicSpec
from bench.spark.bare import FORMAT as BARE
from bench.spark.ceiling import BATCH_ROWS
from bench.spark.ceiling import FORMAT as CEILING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Action = Callable[[], object]

STRUCT: Final = (
    "value struct<sensor_id: int, status: smallint, battery_mv: smallint, time_us: bigint, "
    "temperature: float, humidity: float, pressure: double>"
)
TRADE: Final = "id bigint, ts bigint, user string, price double, qty int, side string"
FROM_JSON: Final = f"from_json(CAST(value AS STRING), '{TRADE}') AS value"
FULL: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
SMALL_ROWS: Final = 24_576
"""About the rows of a batch that a task of kfast yields of 100-byte values."""

TUNED: Final = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
}
BEST: Final = {
    **TUNED,
    "kafka.max.poll.records": "50000",
    "kafka.fetch.max.bytes": str(100 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
    "kafka.check.crcs": "false",
}
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {"default": {}, "tuned": TUNED, "best": BEST}


@dataclass(slots=True)
class Bench:
    """Session, cluster and folder of the contestants."""

    spark: SparkSession
    servers: str
    folder: Path
    runs: int = field(default=0)

    def options(self, spec: TopicSpec, more: Mapping[str, str]) -> dict[str, str]:
        """Return the options of a source that reads a topic."""
        return {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": spec.name,
            "startingOffsets": "earliest",
            **more,
        }

    def frame(
        self, source: str, spec: TopicSpec, more: Mapping[str, str], schema: str = ""
    ) -> DataFrame:
        """Return a batch DataFrame."""
        reader = self.spark.read.format(source)
        if schema:
            reader = reader.schema(schema)
        return reader.options(**self.options(spec, more)).load()

    def new_folder(self) -> Path:
        """Return a new folder's path."""
        self.runs += 1
        return self.folder / f"run-{self.runs}"


@dataclass(slots=True, frozen=True)
class Contestant:
    """One way to run a case."""

    title: str
    prepare: Callable[[Bench, TopicSpec], Action]
    """Returns the action to time."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The tuning, for tables."""
    count: Callable[[Bench, TopicSpec], int] | None = None
    """Returns the number of rows, which is checked after the measurement."""


@dataclass(slots=True, frozen=True)
class Case:
    """What is compared."""

    title: str
    kind: str
    """Of the topic: see `TopicSpec`."""
    contestants: Mapping[str, Contestant]
    writes_files: bool = False


def _noop(frame: DataFrame) -> Action:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def _connector(level: str, columns: str = "*") -> Contestant:
    settings = SETTINGS[level]

    def prepare(bench: Bench, spec: TopicSpec) -> Action:
        return _noop(bench.frame("kafka", spec, settings).select(columns))

    return Contestant(f'format("kafka"), {level}', prepare, settings)


def _from_json(level: str) -> Contestant:
    """The connector, and Spark's own reader of JSON."""
    settings = SETTINGS[level]

    def frame(bench: Bench, spec: TopicSpec) -> DataFrame:
        return bench.frame("kafka", spec, settings).selectExpr(FROM_JSON)

    return Contestant(
        f'format("kafka"), {level}, and from_json',
        lambda bench, spec: _noop(frame(bench, spec)),
        settings,
        lambda bench, spec: frame(bench, spec).where("value.id IS NOT NULL").count(),
    )


def _kfast(schema: str = "", **more: str) -> Contestant:
    def frame(bench: Bench, spec: TopicSpec) -> DataFrame:
        return bench.frame("kfast", spec, more, schema)

    return Contestant(
        'format("kfast")',
        lambda bench, spec: _noop(frame(bench, spec)),
        more,
        lambda bench, spec: frame(bench, spec).count(),
    )


def _ceiling(schema: str, batch_rows: int = BATCH_ROWS, *, receives: bool = False) -> Contestant:
    def frame(bench: Bench, spec: TopicSpec) -> DataFrame:
        source = {"receiveFrom": bench.servers, "subscribe": spec.name} if receives else {}
        about = {
            **source,
            "kind": spec.kind,
            "valueBytes": str(spec.value_bytes),
            "records": str(spec.records),
            "partitions": str(spec.partitions),
            "batchRows": str(batch_rows),
        }
        return bench.spark.read.format(CEILING).schema(schema).options(**about).load()

    return Contestant(
        "the ceiling, if each task receives the topic, unread, with it"
        if receives
        else f"ceiling: batches of {batch_rows:,} rows made before",
        lambda bench, spec: _noop(frame(bench, spec)),
        {},
        lambda bench, spec: frame(bench, spec).count(),
    )


def _bare(schema: str) -> Contestant:
    def frame(bench: Bench, spec: TopicSpec) -> DataFrame:
        return bench.frame(BARE, spec, {}, schema)

    return Contestant(
        "no consumer: one socket and kfast's decoder",
        lambda bench, spec: _noop(frame(bench, spec)),
        {},
        lambda bench, spec: frame(bench, spec).count(),
    )


def _writer(source: str, title: str, settings: Mapping[str, str], columns: str = "*") -> Contestant:
    """Spark's own Parquet writer, exactly once, fed by a source."""

    def prepare(bench: Bench, spec: TopicSpec) -> Action:
        folder = bench.new_folder()
        stream = bench.spark.readStream.format(source)
        frame = stream.options(**bench.options(spec, settings)).load().selectExpr(columns)
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(folder / "table"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .option("compression", "snappy")
            .trigger(availableNow=True)
        )
        return lambda: query.start().awaitTermination()

    return Contestant(title, prepare, {"compression": "snappy", **settings})


def _ingest(
    compression: str, value_format: str = "binary", schema: str | None = None
) -> Contestant:
    def prepare(bench: Bench, spec: TopicSpec) -> Action:
        folder = bench.new_folder()

        def run() -> object:
            from kfast.spark import ingest  # noqa: PLC0415 - imports pyspark

            query: Any = ingest(
                bench.spark,
                bootstrap_servers=bench.servers,
                topics=spec.name,
                output=str(folder / "table"),
                checkpoint=str(folder / "checkpoint"),
                compression=compression,
                value_format=value_format,
                schema=schema,
            )
            return query.awaitTermination()

        return run

    return Contestant(f"kfast.spark.ingest, {compression}", prepare, {"compression": compression})


def _bare_files(compression: str) -> Contestant:
    def prepare(bench: Bench, spec: TopicSpec) -> Callable[[], int]:
        from bench.spark.bare_files import file_writer  # noqa: PLC0415 - imports pyspark

        return file_writer(bench.servers, spec.name, bench.new_folder(), compression)

    return Contestant(
        f"neither Spark nor a consumer: two sockets, kfast's decoder, pyarrow, {compression}",
        prepare,
        {"compression": compression},
        lambda bench, spec: prepare(bench, spec)(),
    )


CASES: Final[Mapping[str, Case]] = {
    "full": Case(
        "noop, all 7 columns, 100 B",
        "text",
        {
            "kfast": _kfast(),
            "kafka": _connector("default"),
            "kafka-tuned": _connector("tuned"),
            "kafka-best": _connector("best"),
            "ceiling": _ceiling(FULL),
            "ceiling-small": _ceiling(FULL, SMALL_ROWS),
            "ceiling-receiving": _ceiling(FULL, receives=True),
            "bare": _bare(FULL),
        },
    ),
    "value": Case(
        "noop, value only, 100 B",
        "text",
        {
            "kfast": _kfast("value binary"),
            "kafka-tuned": _connector("tuned", "value"),
            "kafka-best": _connector("best", "value"),
            "ceiling": _ceiling("value binary"),
            "ceiling-small": _ceiling("value binary", SMALL_ROWS),
            "ceiling-receiving": _ceiling("value binary", receives=True),
            "bare": _bare("value binary"),
        },
    ),
    "struct": Case(
        'noop, value only, 32 B: decoded to 7 typed columns by kfast, bytes from format("kafka")',
        "sensor",
        {
            "kfast": _kfast(STRUCT, valueFormat="struct", valueByteOrder="little"),
            "kafka-tuned": _connector("tuned", "value"),
            "ceiling": _ceiling(STRUCT),
            "ceiling-receiving": _ceiling(STRUCT, receives=True),
            "bare": _bare(STRUCT),
        },
    ),
    "json": Case(
        "noop, value only, 97 B of JSON, to 6 typed columns",
        "trades",
        {
            "kfast": _kfast(f"value struct<{TRADE}>", valueFormat="json"),
            "from-json": _from_json("tuned"),
        },
    ),
    "parquet": Case(
        "to Parquet files, exactly once, all 7 columns, 100 B",
        "text",
        {
            "ingest": _ingest("snappy"),
            "ingest-zstd": _ingest("zstd"),
            "kfast-writer": _writer("kfast", 'format("kfast"), Spark\'s Parquet writer', {}),
            "kafka-tuned": _writer(
                "kafka", 'format("kafka") tuned, Spark\'s Parquet writer', TUNED
            ),
            "bare-files": _bare_files("snappy"),
        },
        writes_files=True,
    ),
    "json-parquet": Case(
        "to Parquet files, exactly once, value only, 97 B of JSON, to 6 typed columns",
        "trades",
        {
            "ingest": _ingest("snappy", "json", f"value struct<{TRADE}>"),
            "from-json": _writer(
                "kafka",
                'format("kafka") tuned, from_json, Spark\'s Parquet writer',
                TUNED,
                FROM_JSON,
            ),
        },
        writes_files=True,
    ),
}
CONTESTANTS: Final = tuple(
    dict.fromkeys(name for case in CASES.values() for name in case.contestants)
)
