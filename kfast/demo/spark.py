"""``make demo-spark``: Kafka topics to Parquet with Spark, by kfast and by Spark's connector.

Owns the order of its parts: a local Kafka and a local Spark, two topics, the ingest of both, SQL
over the tables, and a comparison on the same topics in the same Spark. Prints through
``demo.show``. Everything it starts or writes is removed at the end, also after an error.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import kfast.spark
from kfast._base.program import run_program
from kfast.demo.main import write_topics
from kfast.demo.show import Show
from kfast.errors import KafkaError, MissingDependencyError
from kfast.local.spark import connector_jars, deferred_signals, errors_into, spark_session
from kfast.spark.ingest.progress import IngestProgress
from kfast.spark.ingest.query_end import finish
from kfast.table.manifest_log import ManifestLog
from kfast.table.store import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kfast.table.entries import Entry

RECORDS: Final = 1_000_000
PARTITIONS: Final = 4
EVENT_SHARE: Final = 0.2
ROUNDS: Final = 3
RACE_SECONDS: Final = 20
"""No further round begins after that."""

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


@dataclass(slots=True, frozen=True)
class Stage:
    """Shared by the parts of the demo; ``folder`` is for tables and checkpoints."""

    show: Show
    spark: SparkSession
    servers: str
    folder: Path

    def new_folder(self, name: str) -> str:
        """Return a new folder."""
        return tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(description="Write Kafka topics to Parquet with Spark")
    parser.add_argument(
        "--records", type=int, default=RECORDS, help=f"number of records (default {RECORDS})"
    )
    arguments = parser.parse_args(argv)
    return run_program(lambda: run_demo(max(1_000, arguments.records)))


def run_demo(records: int) -> None:
    """Run the demo on standard output."""
    try:
        import pyspark  # noqa: F401, PLC0415 - optional
        from rich.console import Console  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError(
            f"the demo needs {error.name}", hint='pip install "kfast[demo,spark]"'
        ) from None
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="kfast-demo-", ignore_cleanup_errors=True)
            )
        )
        console = Console(highlight=False)
        show = Show(console, folder)
        kafka = stack.enter_context(show.local_kafka())
        counts = topic_counts(records)
        write_topics(show, kafka, **counts, partitions=PARTITIONS)
        conf = {"spark.log.level": "OFF"}
        jars = _connector(show)
        if jars:
            conf["spark.jars"] = ",".join(map(str, jars))
        began = time.perf_counter()
        with console.status("starting Spark"), errors_into(folder / "stderr"):
            spark = stack.enter_context(spark_session(folder / "spark", conf))
        show.text(f"\nSpark {spark.version} runs on two cores, after {_since(began)}")
        show_all(Stage(show, spark, kafka.bootstrap_servers, folder), counts, bool(jars))


def show_all(stage: Stage, counts: Mapping[str, int], has_connector: bool) -> None:
    """Show the parts after the topics are written; ``counts`` has the records of each topic."""
    _ingest_sensors(stage)
    # Shares of partitions are rounded down: a little more, or a fourth batch has the remainder.
    _ingest_events(stage, batch=counts["events"] // 3 + PARTITIONS)
    _race(stage, counts, has_connector=has_connector)


def topic_counts(records: int) -> dict[str, int]:
    """Return the number of records of the topics ``sensors`` and ``events``."""
    events = int(records * EVENT_SHARE)
    return {"sensors": records - events, "events": events}


def _connector(show: Show) -> list[Path]:
    """Return the jars of ``format("kafka")``; without them the demo leaves it out."""
    try:
        return connector_jars(progress=show.text)
    except KafkaError as error:
        show.text(f'format("kafka") is left out: {error.message}')
        return []


# --- the parts ------------------------------------------------------------------------------------


def _ingest_sensors(stage: Stage) -> None:
    show = stage.show
    show.heading("sensors: 32-byte structs, decoded on the workers, into Parquet by date")
    show.code(
        'kfast.spark.ingest(spark, topics="sensors", output="sensors.parquet",',
        '    checkpoint="...", value_format="struct", partition_by="date",',
        '    schema="..., value struct<sensor_id: int, temperature: float, ...>")',
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
        "       round(avg(value.temperature), 1) AS celsius,\n"
        "       count_if(value.status > 0) AS warned\n"
        "FROM sensors GROUP BY 1 ORDER BY 3 DESC LIMIT 4"
    )
    _sql(stage, "sensors", table, query)


def _ingest_events(stage: Stage, batch: int) -> None:
    show = stage.show
    show.heading("events: JSON text, in several batches")
    show.code(
        "kfast ingest events --to events.parquet --value text --spark --checkpoint ...",
        "    --option maxOffsetsPerTrigger=...",
    )
    table = _ingest(
        stage,
        "events",
        value_format="utf8",
        schema="partition int, offset bigint, timestamp timestamp, key binary, value string",
        options={"maxOffsetsPerTrigger": batch},
    )
    query = (
        "SELECT get_json_object(value, '$.country') AS country, count(*) AS orders,\n"
        "       round(sum(get_json_object(value, '$.price')), 2) AS revenue\n"
        "FROM events WHERE get_json_object(value, '$.type') = 'order'\n"
        "GROUP BY 1 ORDER BY 3 DESC LIMIT 4"
    )
    _sql(stage, "events", table, query)


def _ingest(stage: Stage, topic: str, **settings: Any) -> str:
    """Run an ingest, with a line per batch; return the table's folder."""
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
    progress = IngestProgress(
        ManifestLog(LocalStore(Path(output))),
        published=lambda entry: stage.show.text(_batch_line(entry)),
    )
    _finish(query, lambda: progress.update(query.recentProgress))
    progress.close(is_complete=True)
    totals, seconds = progress.totals, time.perf_counter() - began
    stage.show.text(
        f"{totals.rows:,} rows in {totals.batches} batches, {totals.files} files, "
        f"{totals.bytes / 1e6:,.1f} MB of Parquet; {seconds:.1f} s, "
        f"{totals.rows / seconds:,.0f} rows/s"
    )
    return output


def _batch_line(entry: Entry) -> str:
    counts = entry.counts
    return (
        f"batch {entry.batch_id} | {counts.rows:,} rows | {counts.files} files | "
        f"{counts.bytes / 1e6:,.1f} MB"
    )


def _finish(query: Any, report: Callable[[], object]) -> None:
    """Wait for the end of a query; Ctrl-C and SIGTERM stop it first."""
    with deferred_signals() as signals:
        finish(query, report, signals)


def _sql(stage: Stage, name: str, folder: str, query: str) -> None:
    stage.spark.read.parquet(folder).createOrReplaceTempView(name)
    stage.show.text("")
    stage.show.code(*query.split("\n"))
    began = time.perf_counter()
    frame = stage.spark.sql(query)
    rows = [list(row) for row in frame.collect()]
    stage.show.table(f"Spark SQL over the table, {_since(began)}", frame.columns, rows)


# --- the race -------------------------------------------------------------------------------------


def _race(stage: Stage, counts: Mapping[str, int], *, has_connector: bool) -> None:
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
    if ROUNDS > 1:
        with show.waiting("warming up"):
            for start in runners.values():
                _seconds_of(start("events"))
    rates: dict[tuple[str, str], list[float]] = {}
    began = time.perf_counter()
    rounds = 0
    while not rounds or (rounds < ROUNDS and time.perf_counter() - began < RACE_SECONDS):
        rounds += 1
        for topic, count in counts.items():
            for name, start in runners.items():
                with show.waiting(f"round {rounds}: {topic} with {name}"):
                    seconds = _seconds_of(start(topic))
                rates.setdefault((topic, name), []).append(count / seconds)
                show.text(f"{topic:<8} {name:<26} {count / seconds:>12,.0f} rows/s")
    rows = []
    for (topic, name), measured in rates.items():
        rate = statistics.median(measured)
        theirs = statistics.median(rates.get((topic, 'format("kafka"), tuned'), [0.0]))
        rows.append([topic, name, f"{rate:,.0f}", f"{rate / theirs:.1f}x" if theirs else ""])
    show.table(
        (f"Median of {rounds} rounds" if rounds > 1 else "One round")
        + " on the same two cores, broker included",
        ["topic", "from Kafka to Parquet with", "rows/s", ""],
        rows,
    )
    show.text(
        "All write the columns " + ", ".join(RACE_COLUMNS) + " with Trigger.AvailableNow and "
        "snappy; the time is the sum of Spark's batch durations. Tuned: max.poll.records 10000, "
        "max.partition.fetch.bytes 8 MiB."
    )


def _start_ingest(stage: Stage, topic: str) -> Any:
    return kfast.spark.ingest(
        stage.spark,
        bootstrap_servers=stage.servers,
        topics=topic,
        output=stage.new_folder("race"),
        checkpoint=stage.new_folder("checkpoint"),
        schema=_RACE_SCHEMA,
        compression="snappy",
    )


def _start_stream(stage: Stage, format: str, topic: str, more: Mapping[str, str]) -> Any:
    kfast.spark.register(stage.spark)
    reader = stage.spark.readStream.format(format)
    if format == "kfast":
        reader = reader.schema(_RACE_SCHEMA)
    options = {
        "kafka.bootstrap.servers": stage.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **more,
    }
    frame = reader.options(**options).load().select(*RACE_COLUMNS)
    return (
        frame.writeStream.format("parquet")
        .option("path", stage.new_folder("race"))
        .option("checkpointLocation", stage.new_folder("checkpoint"))
        .option("compression", "snappy")
        .trigger(availableNow=True)
        .start()
    )


def _seconds_of(query: Any) -> float:
    """Wait for the end of a query; return the time of its batches."""
    _finish(query, lambda: None)
    return max(sum(int(progress.batchDuration) for progress in query.recentProgress), 1) / 1000


def _since(began: float) -> str:
    return f"{time.perf_counter() - began:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
