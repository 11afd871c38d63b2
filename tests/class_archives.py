"""Makes what lets the Java programs of the tests start in half the time: ``python -m`` this.

Owns which programs have an archive of their classes (``kfast.local.node``): the broker,
those of Kafka's tools the tests start most often, and Spark. Each is run once, with what it does in
tests, if it has none yet; with a Java that cannot make archives everything starts as it always did.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kfast.errors import LocalKafkaError
from kfast.local.java import find_java
from kfast.local.local_kafka import LocalKafka, resolve_jars
from kfast.local.node import (
    BROKER_CLASS,
    FORMATTER_CLASS,
    TOOL_FLAGS,
    ClassArchive,
    Runtime,
    random_uuid,
)
from tests.integration.support import CONSOLE_CONSUMER, GROUP_COMMAND, QUICK_JAVA

SPARK: Final = "org.apache.spark.deploy.SparkSubmit"

QUICK_SPARK: Final = (*QUICK_JAVA, "-XX:+UseSerialGC")
_TOPIC: Final = "t"
_PROGRAM_SECONDS: Final = 200


def spark_java_options() -> str:
    """Return the options of Spark's launcher for a driver that runs for some minutes."""
    archive = _spark_archive()
    return " ".join((*QUICK_SPARK, *(() if archive is None else archive.flags())))


def _spark_archive() -> ClassArchive | None:
    spec = find_spec("pyspark")
    try:
        java = find_java()
    except LocalKafkaError:
        return None
    if spec is None or spec.origin is None:
        return None
    jars = sorted((Path(spec.origin).parent / "jars").glob("*.jar"))
    return ClassArchive(java, tuple(jars), SPARK)


def make_kafka_archives(folder: Path) -> None:
    """Run a broker, and tools against it.

    Parameters
    ----------
    folder : Path
        Of its own, to write to.
    """
    runtime = Runtime(find_java(), tuple(resolve_jars()), os.getpgrp())

    def run_broker(flags: Sequence[str]) -> None:
        with LocalKafka(java_options=flags, log_dir=folder) as kafka:  # kept: ends in good order
            kafka.create_topic(_TOPIC)
            for main_class, *words in (
                (GROUP_COMMAND, "--list"),
                (CONSOLE_CONSUMER, "--topic", _TOPIC, "--group", "g", "--timeout-ms", "1000"),
            ):
                arguments = ["--bootstrap-server", kafka.bootstrap_servers, *words]
                _make_by_program(runtime, main_class, arguments)

    if not runtime.archive(BROKER_CLASS).make(run_broker):
        return
    properties = str(folder / "node-1" / "server.properties")
    if Path(properties).exists():
        words = ["format", "--ignore-formatted", "--config", properties]
        _make_by_program(runtime, FORMATTER_CLASS, [*words, "--cluster-id", random_uuid()])


def _make_by_program(runtime: Runtime, main_class: str, arguments: Sequence[str]) -> None:
    def run(flags: Sequence[str]) -> None:
        command = runtime.command((*TOOL_FLAGS, *flags), main_class, *arguments)
        subprocess.run(command, capture_output=True, check=False, timeout=_PROGRAM_SECONDS)

    runtime.archive(main_class).make(run)


def make_spark_archive(folder: Path) -> None:
    """Run a stream and a batch query.

    Parameters
    ----------
    folder : Path
        Of its own, to write to.
    """
    archive = _spark_archive()
    if archive is not None:
        archive.make(lambda flags: _run_spark(folder, flags))


def _run_spark(folder: Path, flags: Sequence[str]) -> None:
    """Run the program; if it fails there may be no archive, and Spark only starts more slowly."""
    options = " ".join((*QUICK_SPARK, *flags))
    done = subprocess.run(
        [sys.executable, "-c", _SPARK_PROGRAM, str(folder)],
        env={**os.environ, "SPARK_SUBMIT_OPTS": options},
        capture_output=True,
        text=True,
        check=False,
        timeout=_PROGRAM_SECONDS,
    )
    if done.returncode:
        sys.stderr.write("\n".join([*done.stderr.splitlines()[-20:], ""]))


_SPARK_PROGRAM: Final = """
import sys
from pathlib import Path
import kfast.spark
from bench.spark.session import spark_session
from tests.end_to_end.virtual import make_cluster
from kfast.testing.server import BrokerServer

folder = Path(sys.argv[1])
table = str(folder / "table")
with BrokerServer(make_cluster(nodes=1)) as server, spark_session(folder) as spark:
    query = kfast.spark.ingest(
        spark,
        bootstrap_servers=server.bootstrap_servers,
        topics="t",
        output=table,
        checkpoint=str(folder / "checkpoint"),
    )
    query.awaitTermination(150)
    assert spark.read.parquet(table).count() == 20
"""


def main() -> None:
    """Make all archives that are missing."""
    with (
        tempfile.TemporaryDirectory(prefix="kfast-archives-") as folder,
        ThreadPoolExecutor() as pool,
    ):
        kafka = pool.submit(make_kafka_archives, Path(folder) / "kafka")
        spark = pool.submit(make_spark_archive, Path(folder) / "spark")
        kafka.result()
        spark.result()


if __name__ == "__main__":
    main()
