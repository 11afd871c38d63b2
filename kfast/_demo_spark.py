"""``make demo-spark``: Kafka topics into Parquet with Spark, beside Spark's own way.

Owns the story: a Kafka and a Spark of its own, two topics, the ingest of both, SQL over the tables,
and a race on the same topics in the same Spark. It looks like the first demo (``_demo_show``).
Everything it starts or writes is gone at the end, however it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import kfast.spark
from kfast import _demo_data as data
from kfast._demo_show import Show
from kfast._local_spark import spark_session
from kfast._local_spark_jars import connector_jars
from kfast.errors import KafkaError, MissingDependencyError
from kfast.spark.ingest_progress import IngestProgress
from kfast.spark.table_log import TableLog
from kfast.spark.table_store import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS: Final = 6
ROUNDS: Final = 2
EVENT_SHARE: Final = 0.2
SENSOR_SCHEMA: Final = (
    "partition int, offset bigint, timestamp timestamp, value struct<sensor_id: int, "
    "status: smallint, battery_mv: smallint, time_us: bigint, temperature: float, "
    "humidity: float, pressure: double>"
)
RACE_COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp")

_RACE_SCHEMA: Final = "key binary, value binary, partition int, offset bigint, timestamp timestamp"
_TUNED: Final = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
}
_INTERRUPTED: Final = 130
_TERMINATED: Final = 143


@dataclass(slots=True, frozen=True)
class _Stage:
    """What all parts of the demo need."""

    show: Show
    spark: SparkSession
    servers: str
    folder: Path

    def new_folder(self, name: str) -> str:
        """Return a folder that is not there yet."""
        return tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(description="Kafka topics into Parquet with Spark and kfast")
    parser.add_argument("--records", type=int, default=3_000_000, help="how many to write")
    arguments = parser.parse_args(argv)
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        run_demo(max(1_000, arguments.records))
    except KafkaError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a program's last words
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, previous)
    return 0


def _terminate(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(_TERMINATED)


def run_demo(records: int) -> None:
    """Show it on standard output."""
    try:
        import pyspark  # noqa: F401, PLC0415 - optional
        from rich.console import Console  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError(
            f"the demo needs {error.name}", hint='pip install "kfast[demo,spark]"'
        ) from None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kfast-demo-")))
        console = Console(highlight=False)
        show = Show(console, folder)
        kafka = stack.enter_context(show.local_kafka())
        counts = _write_topics(show, kafka, records)
        conf = {"spark.log.level": "OFF"}
        jars = _connector(show)
        if jars:
            conf["spark.jars"] = ",".join(map(str, jars))
        began = time.perf_counter()
        with console.status("starting Spark"), _quiet():
            spark = stack.enter_context(spark_session(folder / "spark", conf))
        show.say(f"\nSpark {spark.version} runs on two cores, after {_since(began)}")
        stage = _Stage(show, spark, kafka.bootstrap_servers, folder)
        _ingest_sensors(stage)
        _ingest_events(stage)
        _race(stage, counts, has_connector=bool(jars))


def _write_topics(show: Show, kafka: kfast.LocalKafka, records: int) -> dict[str, int]:
    show.heading("Writing, with confluent-kafka")
    events = int(records * EVENT_SHARE)
    counts = {"sensors": records - events, "events": events}
    for name, codec, blocks in (
        ("sensors", "lz4", data.sensor_readings(counts["sensors"], PARTITIONS)),
        ("events", "zstd", data.shop_events(events, PARTITIONS)),
    ):
        kafka.create_topic(name, PARTITIONS)
        with show.progress(f"{name}, {PARTITIONS} partitions, {codec}", counts[name]) as report:
            data.produce(kafka.bootstrap_servers, name, blocks, codec=codec, report=report)
    return counts


def _connector(show: Show) -> list[Path]:
    """Return the jars of ``format("kafka")``; without them the demo goes on."""
    try:
        return connector_jars(progress=show.say)
    except KafkaError as error:
        show.say(f'format("kafka") is left out: {error.message}')
        return []


# --- the parts ------------------------------------------------------------------------------------


def _ingest_sensors(stage: _Stage) -> None:
    show = stage.show
    show.heading("sensors: 32-byte structs, decoded on the workers, into Parquet by date")
    show.code(
        'kfast.spark.ingest(spark, topics="sensors", output="sensors.parquet",',
        '    checkpoint="...", value_format="struct", partition_by="date", schema=',
        '    "..., value struct<sensor_id: int, temperature: float, ...>")',
    )
    table = _ingest(
        stage,
        "sensors",
        value_format="struct",
        schema=SENSOR_SCHEMA,
        partition_by="date",
        options={"valueByteOrder": "little"},
    )
    query = (
        "SELECT value.sensor_id, count(*) AS readings,\n"
        "       round(avg(value.temperature), 1) AS celsius, count_if(value.status > 0) AS warned\n"
        "FROM sensors GROUP BY 1 ORDER BY 3 DESC LIMIT 4"
    )
    _sql(stage, "sensors", table, query)


def _ingest_events(stage: _Stage) -> None:
    show = stage.show
    show.heading("events: JSON text, in several batches")
    show.code(
        "python -m kfast.spark.ingest --topics events --output events.parquet --checkpoint ...",
        "    --value-format utf8 --option maxOffsetsPerTrigger=...",
    )
    table = _ingest(
        stage,
        "events",
        value_format="utf8",
        schema="partition int, offset bigint, timestamp timestamp, key binary, value string",
        options={"maxOffsetsPerTrigger": "250000"},
    )
    query = (
        "SELECT get_json_object(value, '$.country') AS country, count(*) AS orders,\n"
        "       round(sum(get_json_object(value, '$.price')), 2) AS revenue\n"
        "FROM events WHERE get_json_object(value, '$.type') = 'order'\n"
        "GROUP BY 1 ORDER BY 3 DESC LIMIT 4"
    )
    _sql(stage, "events", table, query)


def _ingest(stage: _Stage, topic: str, **settings: Any) -> str:
    """Run an ingest, telling of every batch; return the table's folder."""
    output = stage.new_folder(topic)
    began = time.perf_counter()
    query = kfast.spark.ingest(
        stage.spark,
        bootstrap_servers=stage.servers,
        topics=topic,
        output=output,
        checkpoint=stage.new_folder("checkpoint"),
        **settings,
    )
    log = TableLog(LocalStore(Path(output)))
    last = log.last()
    assert last is not None  # the query has begun to write the table
    progress = IngestProgress(log, last.writer, 0)
    try:
        while not query.awaitTermination(0.2):
            _tell(stage.show, progress, query)
        _tell(stage.show, progress, query)
    finally:
        if query.isActive:
            query.stop()
    summary = progress.summary(int((time.perf_counter() - began) * 1000))
    stage.show.say(summary.split("\n", 1)[0])
    return output


def _tell(show: Show, progress: IngestProgress, query: Any) -> None:
    for line in progress.lines(query.recentProgress):
        show.say(line)


def _sql(stage: _Stage, name: str, folder: str, query: str) -> None:
    stage.spark.read.parquet(folder).createOrReplaceTempView(name)
    stage.show.say("")
    stage.show.code(*query.split("\n"))
    began = time.perf_counter()
    frame = stage.spark.sql(query)
    rows = [list(row) for row in frame.collect()]
    stage.show.table(f"Spark SQL over the table, {_since(began)}", frame.columns, rows)


# --- the race -------------------------------------------------------------------------------------


def _race(stage: _Stage, counts: Mapping[str, int], *, has_connector: bool) -> None:
    show = stage.show
    show.heading("Rows per second into Parquet, side by side")
    runners: dict[str, Callable[[str], Any]] = {
        "kfast.spark.ingest": lambda topic: _start_ingest(stage, topic),
        'format("kfast")': lambda topic: _start_stream(stage, "kfast", topic, {}),
    }
    if has_connector:
        runners['format("kafka"), defaults'] = lambda topic: _start_stream(
            stage, "kafka", topic, {}
        )
        runners['format("kafka"), tuned'] = lambda topic: _start_stream(
            stage, "kafka", topic, _TUNED
        )
    rates: dict[tuple[str, str], list[float]] = {}
    for topic in counts:
        for number in range(ROUNDS + 1):  # the first one warms the JVM and the workers up
            for name, start in runners.items():
                with show.progress(f"{topic} with {name}", counts[topic]) as report:
                    seconds = _seconds_of(start(topic))
                    report(counts[topic])
                if number:
                    rates.setdefault((topic, name), []).append(counts[topic] / seconds)
    rows = []
    for (topic, name), found in rates.items():
        rate = statistics.median(found)
        theirs = statistics.median(rates.get((topic, 'format("kafka"), tuned'), [0.0]))
        rows.append([topic, name, f"{rate:,.0f}", f"{rate / theirs:.1f}x" if theirs else ""])
    show.table(
        f"Median of {ROUNDS} runs in turns after one to warm up, local[2], broker included",
        ["topic", "from Kafka to Parquet with", "rows/s", ""],
        rows,
    )
    show.say(
        "All write the columns " + ", ".join(RACE_COLUMNS) + " with Trigger.AvailableNow and "
        "snappy; time is Spark's own of all batches. Tuned: max.poll.records 10000, "
        "max.partition.fetch.bytes 8 MiB."
    )


def _start_ingest(stage: _Stage, topic: str) -> Any:
    return kfast.spark.ingest(
        stage.spark,
        bootstrap_servers=stage.servers,
        topics=topic,
        output=stage.new_folder("race"),
        checkpoint=stage.new_folder("checkpoint"),
        schema=_RACE_SCHEMA,
        compression="snappy",
    )


def _start_stream(stage: _Stage, format: str, topic: str, more: Mapping[str, str]) -> Any:
    kfast.spark.register(stage.spark)
    reader = stage.spark.readStream.format(format)
    if format == "kfast":
        reader = reader.schema(_RACE_SCHEMA)
    given = {
        "kafka.bootstrap.servers": stage.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **more,
    }
    frame = reader.options(**given).load().select(*RACE_COLUMNS)
    return (
        frame.writeStream.format("parquet")
        .option("path", stage.new_folder("race"))
        .option("checkpointLocation", stage.new_folder("checkpoint"))
        .option("compression", "snappy")
        .trigger(availableNow=True)
        .start()
    )


def _seconds_of(query: Any) -> float:
    """Wait for the end of a query; return how long its batches took."""
    try:
        query.awaitTermination()
    finally:
        if query.isActive:
            query.stop()
    return max(sum(int(progress.batchDuration) for progress in query.recentProgress), 1) / 1000


def _since(began: float) -> str:
    return f"{time.perf_counter() - began:.1f} s"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep a starting JVM's warnings off the terminal: it gets another standard error."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


if __name__ == "__main__":
    sys.exit(main())
