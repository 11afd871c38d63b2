"""``python -m bench.spark``: kfast and the JVM's Kafka connector in Spark, on this machine.

Everything runs in one session on two cores against one broker: to the noop sink with all columns,
values only, and decoded values; into Parquet files; and as micro-batches of a slow stream. Each is
compared with a ceiling where there is one: a Python source that only returns prepared batches.
Results are written as JSON and markdown.

Spark has more heap than its default of 1 GiB. The connector caches consumers for five minutes, with
their prefetched records: after some queries those fill such a heap, and the connector gets slower
with each. ``--driver-memory 1g`` shows it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench import report
from bench.data import parse_list
from bench.spark.harness import CaseOptions, Progress, ratios, run_cases
from bench.spark.micro_batch import TrickleOptions, run_micro_batches
from bench.spark.reading import CASES, CONTESTANTS, Bench
from bench.spark.session import spark_session
from kfast.errors import KafkaError
from kfast.local.local_kafka import LocalKafka
from kfast.local.spark import CONNECTOR

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MICRO: Final = "micro"
PARTS: Final = (*CASES, MICRO)
STREAMS: Final = ("kfast", "kafka")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    made.add_argument(
        "parts", nargs="*", default=list(PARTS), metavar="PART", help=f"{', '.join(PARTS)}; all"
    )
    made.add_argument("--records", type=int, default=2_000_000, help="records per topic")
    made.add_argument(
        "--file-records",
        type=int,
        help="records per topic written to files; default: twice as many",
    )
    made.add_argument("--partitions", type=int, default=6)
    made.add_argument("--repetitions", type=int, default=3)
    made.add_argument("--warm-ups", type=int, default=2, help="runs of each that are not counted")
    made.add_argument(
        "--contestants", default="all", help=f'"all" or some of {", ".join(CONTESTANTS)}'
    )
    made.add_argument("--triggers", type=int, default=5, help="counted triggers per query")
    made.add_argument("--interval-ms", type=int, default=2000, help="interval of the trigger")
    made.add_argument("--per-second", type=int, default=1000, help="records of micro-batches")
    made.add_argument("--heap", default="512m", help="Java heap of the broker")
    made.add_argument("--driver-memory", default="4g", help="heap of Spark, which is one process")
    made.add_argument("--output", type=Path, help="JSON file; .md is written beside it")
    return made


def measure(
    spark: SparkSession, kafka: LocalKafka, options: argparse.Namespace, progress: Progress
) -> dict[str, Any]:
    """Run the parts chosen; return the result, without the machine."""
    from bench.spark.bare import BareSource  # noqa: PLC0415 - imports pyspark
    from bench.spark.ceiling import CeilingSource  # noqa: PLC0415
    from kfast.spark import register  # noqa: PLC0415

    parts, contestants = chosen(options)
    register(spark)
    spark.dataSource.register(CeilingSource)
    spark.dataSource.register(BareSource)
    result: dict[str, Any] = {
        "session": {
            "master": spark.sparkContext.master,
            "driver_memory": spark.conf.get("spark.driver.memory", "1g"),
            "pyspark": spark.version,
            "connector": [f"{name} {version}" for _, name, version in CONNECTOR.coordinates],
        },
        "cases": {},
    }
    with tempfile.TemporaryDirectory(prefix="kfast-bench-") as folder:
        bench = Bench(spark, kafka.bootstrap_servers, Path(folder) / "runs")
        cases = tuple(name for name in parts if name != MICRO)
        result["cases"] = run_cases(
            kafka,
            bench,
            CaseOptions(
                cases,
                contestants,
                options.records,
                options.partitions,
                options.repetitions,
                options.warm_ups,
                2 * options.records if options.file_records is None else options.file_records,
            ),
            progress,
        )
        streams = tuple(name for name in STREAMS if name in contestants)
        if MICRO in parts and streams:
            topic = f"bench-trickle-{time.time_ns()}"
            kafka.create_topic(topic, options.partitions)
            progress(f"micro-batches: {', '.join(streams)}")
            trickled = TrickleOptions(
                streams,
                options.per_second,
                options.interval_ms,
                options.triggers,
                options.repetitions,
                options.partitions,
            )
            result["micro_batches"] = run_micro_batches(bench, topic, trickled)
    result["ratios"] = ratios(result["cases"], result.get("micro_batches"))
    return result


def chosen(options: argparse.Namespace) -> tuple[list[str], tuple[str, ...]]:
    """Return parts and contestants; raise ValueError for an unknown name."""
    names = ",".join(CONTESTANTS) if options.contestants == "all" else options.contestants
    return parse_list(",".join(options.parts), PARTS), tuple(parse_list(names, CONTESTANTS))


def main(argv: list[str] | None = None) -> int:
    """Run and report; the exit status."""
    line = parser()
    options = line.parse_args(argv)
    try:
        chosen(options)
    except ValueError as error:
        line.error(str(error))
    result: dict[str, Any] = {"arguments": vars(options) | {"output": str(options.output)}}
    result["machine"] = report.machine()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave nothing behind
    # As in an installation: Spark's Python processes find kfast's bytecode.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="kfast-spark-") as folder,
            LocalKafka(heap=options.heap, progress=report.progress) as kafka,
            spark_session(Path(folder), {"spark.driver.memory": options.driver_memory}) as spark,
        ):
            result["spark"] = measure(spark, kafka, options, report.progress)
    except KafkaError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    report.save(result, "spark-", options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
