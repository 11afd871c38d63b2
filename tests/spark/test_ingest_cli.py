"""``python -m kfast.spark.ingest`` as a program: what it says, how it ends, what it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kfast.spark
from kfast.errors import ConfigurationError, KafkaError
from kfast.local.local_kafka import LocalKafka
from kfast.spark.ingest.checkpoint import writer_id
from kfast.spark.ingest.command import finish
from kfast.table.manifest_log import ManifestLog
from kfast.table.store import LocalStore
from tests.integration.kafka_writer import KafkaWriter, Message
from tests.integration.support import until
from tests.spark.conftest import TopicFactory
from tests.spark.crashing import Death, end, run_ingest, start_ingest
from tests.spark.processes import java_in_session, session_of
from tests.spark.tables import Table, places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

HOUR_MS = 3_600_000
NEW_YEAR_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""

NOWHERE = "127.0.0.1:1"
"""Nothing listens there."""

IMPATIENT = (
    *("--option", "fetchOffset.numRetries=1"),
    *("--option", "kafka.request.timeout.ms=5000"),
    *("--option", "kafka.default.api.timeout.ms=10000"),
)


@pytest.fixture
def table(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> Table:
    return Table(spark, kafka.bootstrap_servers, tmp_path)


@pytest.fixture
def bare(tmp_path: Path) -> Table:
    """A table that is never filled: without Spark and without a broker."""
    return Table(None, NOWHERE, tmp_path)


def check_nothing_is_left(leader: int, folder: Path) -> None:
    """Check that a program that has ended has no processes and no folder of its own."""
    until(lambda: not session_of(leader), "the end of all processes")
    assert list((folder / "scratch").glob("kfast-*")) == []


@contextmanager
def started(
    folder: Path, arguments: list[str], death: Death | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run an ingest meanwhile."""
    process = start_ingest(folder, arguments, death)
    try:
        yield process
    finally:
        end(process)


def lines_of(errors: str) -> list[str]:
    """Return what was said on standard error: an error's own lines and nothing else."""
    first, *more = errors.splitlines()
    assert all(line.startswith(("cause: ", "found: ", "try: ")) for line in more), errors
    return [first, *more]


BEFORE_SPARK = {
    "option": (["--option", "startingOffset=earliest"], "unknown option startingOffset"),
    "trigger": (["--trigger", "soon"], "trigger = soon: not understood"),
    "output": (["--output", "FILE/table"], "cannot write to "),
    "no folder of dead letters": (
        ["--dead-letter", "s3:/c"],
        "s3:/c is not a folder kfast can use",
    ),
    "no folder": (["--checkpoint", "dbfs:/c"], "dbfs:/c is not a folder kfast can use"),
}


@pytest.mark.parametrize(("more", "message"), BEFORE_SPARK.values(), ids=BEFORE_SPARK)
def test_what_is_wrong_is_said_before_spark_starts(
    bare: Table, tmp_path: Path, more: list[str], message: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    arguments = bare.arguments("t", *(text.replace("FILE", str(file)) for text in more))
    status, output, errors = run_ingest(tmp_path, arguments)
    assert (status, output) == (1, "")
    assert lines_of(errors)[0].startswith(message)


def test_a_checkpoint_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigurationError, match=r"cannot use .*/file/c as a checkpoint"):
        writer_id(LocalStore(file / "c"))


def test_a_query_that_fails_says_why_and_leaves_nothing(kafka: LocalKafka, tmp_path: Path) -> None:
    table = Table(None, kafka.bootstrap_servers, tmp_path)
    with started(tmp_path, table.arguments("no-such-topic", *IMPATIENT)) as process:
        output, errors = process.communicate(timeout=150)
        check_nothing_is_left(process.pid, tmp_path)
    assert process.returncode == 1
    assert 'no topic "no-such-topic"' in "\n".join(lines_of(errors))
    assert output == f"no new records for {table.output}\n"


def test_a_query_that_reaches_no_broker_says_why(table: Table) -> None:
    options = dict(text.split("=") for text in IMPATIENT[1::2])
    query = kfast.spark.ingest(
        table.spark,
        bootstrap_servers=NOWHERE,
        topics="t",
        output=str(table.output),
        checkpoint=str(table.checkpoint),
        options=options,
    )
    with pytest.raises(KafkaError, match=NOWHERE) as caught:
        finish(query, list)
    assert NOWHERE in "\n".join(lines_of(str(caught.value)))
    assert not query.isActive


def test_a_jvm_that_dies_is_named(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, tmp_path: Path
) -> None:
    """W-07: as when the system takes its memory; no stack trace, and nothing is left."""
    topic = new_topic()
    writer.write(topic, [b"x"] * 10)
    arguments = Table(None, kafka.bootstrap_servers, tmp_path).arguments(topic, "--trigger", "1s")
    with started(tmp_path, arguments) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("batch 0 | 10 rows | ")
        for java in java_in_session(process.pid):
            java.kill()
        output, errors = process.communicate(timeout=120)
        check_nothing_is_left(process.pid, tmp_path)
    assert process.returncode == 1
    assert output.startswith("10 rows in 1 batches")
    first, *_, last = lines_of(errors)
    assert first == "Spark's Java process was killed by signal 9"
    assert last.startswith("try: start the ingest again")


def test_a_program_whose_workers_are_killed_and_ctrl_c(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    for number, hours in enumerate((20, 1)):
        messages = [
            Message(b"x", timestamp_ms=NEW_YEAR_MS + n % hours * HOUR_MS) for n in range(20)
        ]
        writer.write(topic, messages, partition=number)
    # A worker that dies has written files, since no more than 16 are open, and begins the next.
    death = Death("uuid4", "kfast.table.range_files", 19, victim="caller")
    limit = ("--option", "maxOffsetsPerTrigger=40")
    arguments = table.arguments(topic, "--partition-by", "hour", "--trigger", "1s", *limit)
    with started(tmp_path, arguments, death) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("batch 0 | 40 rows | "), (first, process.communicate(timeout=60))
        assert f"| lag 0 | {topic} 0:20 1:20" in first
        writer.write(topic, [b"y"] * 3)
        assert process.stdout.readline().startswith("batch 1 | 3 rows | ")
        for number in range(2):
            writer.write(topic, [b"z"] * 300, partition=number)
        assert process.stdout.readline().startswith("batch 2 | ")
        # Between batches, as a terminal does it: Spark's processes get it, too.
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=120)
        check_nothing_is_left(process.pid, tmp_path)
    assert process.returncode == 130
    assert errors == ""
    before = table.rows()
    last = ManifestLog(LocalStore(table.output)).last()
    assert last is not None
    assert 43 < len(before) == len(set(before)) <= last.rows < 643
    assert f"{last.rows} rows in {last.sequence} batches" in output, "the summary"
    assert f"{table.output} has {last.rows} rows of 2 partitions" in output
    assert (tmp_path / "calls").stat().st_size > 21, "the task ran again"
    assert len(table.staged()) >= 1, "the dead worker's"
    table.ingest(topic, partition_by="hour", orphan_age_ms=0)
    assert table.rows() == places(323, 320)
    assert table.staged() == []


def test_ctrl_c_while_spark_starts(bare: Table, tmp_path: Path) -> None:
    with started(tmp_path, bare.arguments("t")) as process:
        until(
            lambda: java_in_session(process.pid),
            "a JVM",
            100,
        )
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=120)
        check_nothing_is_left(process.pid, tmp_path)
    assert (process.returncode, output, errors) == (130, "", "")
