"""``kfast ingest --spark`` as a program: what it says, how it ends, what it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kfast.spark
from kfast.cli import main
from kfast.errors import ConfigurationError, KafkaError
from kfast.local.local_kafka import LocalKafka
from kfast.spark.ingest.checkpoint import writer_id
from kfast.spark.ingest.query_end import finish
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

FOLLOW = ("--follow", "--every", "1s")
IMPATIENT = (
    *("--option", "fetchOffset.numRetries=1"),
    *("-X", "request.timeout.ms=5000"),
    *("-X", "default.api.timeout.ms=10000"),
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


def log_lines(table: Table, errors: str) -> tuple[list[str], str]:
    """Return the lines of the log, and what else is on standard error."""
    lines = errors.splitlines()
    log = [line for line in lines if line.startswith(f"{table.output}: ")]
    rest = [line for line in lines if line not in log]
    return [line.removeprefix(f"{table.output}: ") for line in log], "\n".join(rest)


def published(table: Table) -> int:
    """Return how many rows the table has."""
    last = ManifestLog(LocalStore(table.output)).last()
    return 0 if last is None else last.rows


def lines_of(errors: str) -> list[str]:
    """Return what was said on standard error: an error's own lines and nothing else."""
    first, *more = errors.removeprefix("kfast: ").splitlines()
    assert all(line.startswith(("cause: ", "found: ", "try: ")) for line in more), errors
    return [first, *more]


BEFORE_SPARK = {
    "option": (["--option", "startingOffset=earliest"], "unknown option startingOffset"),
    "kafka": (["--option", "kafka.x=y"], "--option kafka.x has another name here"),
    "name": (["--option", "mode=FAILFAST"], "--option mode has another name here"),
    "format": (["--format", "arrow"], "--format arrow is not for --spark"),
    "engine": (["--memory", "1G"], "--memory is not an option of --spark"),
    "schema": (["--value", "json"], "--value json needs a schema"),
    "columns": (["--schema", "offset long", "-c", "key"], "--schema and -c both say"),
    "every": (["--every", "5s"], "--every is for --follow"),
    "metrics": (["--metrics", "nowhere"], "metrics = nowhere: not an address"),
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
    status, output, errors = run_ingest(tmp_path, bare.arguments("t", *more))
    assert (status, output) == (2, "")
    assert lines_of(errors)[0].startswith(message)


def test_a_table_that_cannot_be_written_is_said_before_spark_starts(
    bare: Table, tmp_path: Path
) -> None:
    """CL-135: with the exit code of its kind."""
    file = tmp_path / "file"
    file.touch()
    bare.output = file / "table"
    status, output, errors = run_ingest(tmp_path, bare.arguments("t"))
    assert (status, output) == (7, "")
    assert lines_of(errors)[0].startswith("cannot write to ")


def test_an_option_of_spark_alone_is_refused_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ingest", "t", "--to", str(tmp_path), "--conf", "a=b"]) == 2
    assert "kfast: --conf is an option of --spark\n" in capsys.readouterr().err


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
    assert process.returncode == 5
    log, error = log_lines(table, errors)
    assert 'no topic "no-such-topic"' in "\n".join(lines_of(error))
    assert output == ""
    begin, *_, end = log
    assert begin == "ingest of no-such-topic begins; the table has 0 rows"
    assert end.startswith("0 rows, 0.0 MB, 0 files, 0 partitions, ")
    assert end.endswith("; then it failed, and the next run goes on there")


def test_a_query_that_reaches_no_broker_says_why(table: Table) -> None:
    options = {
        "fetchOffset.numRetries": 1,
        "kafka.request.timeout.ms": 5_000,
        "kafka.default.api.timeout.ms": 10_000,
    }
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
    table = Table(None, kafka.bootstrap_servers, tmp_path)
    with started(tmp_path, table.arguments(topic, *FOLLOW)) as process:
        until(lambda: published(table) == 10, "the first batch", 300)
        for java in java_in_session(process.pid):
            java.kill()
        output, errors = process.communicate(timeout=120)
        check_nothing_is_left(process.pid, tmp_path)
    assert (process.returncode, output) == (1, "")
    log, error = log_lines(table, errors)
    assert log[-1].startswith("10 rows, ")
    first, *_, last = lines_of(error)
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
    arguments = table.arguments(topic, "--partition-by", "hour", *FOLLOW, *limit)
    with started(tmp_path, arguments, death) as process:
        until(lambda: published(table) == 40, "the first batch", 300)
        writer.write(topic, [b"y"] * 3)
        until(lambda: published(table) == 43, "the second batch", 300)
        for number in range(2):
            writer.write(topic, [b"z"] * 300, partition=number)
        until(lambda: published(table) > 43, "the third batch", 300)
        # Between batches, as a terminal does it: Spark's processes get it, too.
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=120)
        check_nothing_is_left(process.pid, tmp_path)
    assert (process.returncode, output) == (0, ""), "Ctrl-C is the way to end it"
    begin, *minutes, end = errors.splitlines()
    assert begin == f"{table.output}: ingest of {topic} begins; the table has 0 rows"
    assert all(" rows since the start, " in line for line in minutes)
    before = table.rows()
    last = ManifestLog(LocalStore(table.output)).last()
    assert last is not None
    assert 43 < len(before) == len(set(before)) <= last.rows < 643
    assert end.startswith(f"{table.output}: {last.rows} rows, "), "the summary"
    assert ", 2 partitions, " in end
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


def test_what_a_service_sees(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table, tmp_path: Path
) -> None:
    """J-02, J-04: lines and warnings on standard error; with -q the warnings alone."""
    topic = new_topic()
    writer.write(topic, [b"no number", b"\x00\x00\x00\x07"])
    arguments = table.arguments(topic, "--value", "int32", "--on-error", "null")
    status, output, errors = run_ingest(tmp_path, arguments)
    assert (status, output) == (0, "")
    log, rest = log_lines(table, errors)
    assert log[0] == f"ingest of {topic} begins; the table has 0 rows"
    assert log[-1].startswith("2 rows, 0.0 MB, 1 files, 1 partitions, 1 malformed records, ")
    assert all(" rows since the start, " in line for line in log[1:-1]), "of a slow machine"
    (warning,) = rest.splitlines()
    assert " WARNING kfast.table.ingest_warnings: " in warning
    assert f"1 malformed keys and values: they are null, or their records left out ({topic}-0" in (
        warning
    )
    writer.write(topic, [b"no number"])
    status, output, errors = run_ingest(tmp_path, [*arguments, "-q"])
    assert (status, output) == (0, "")
    (warning,) = errors.splitlines()
    assert " WARNING " in warning, "-q has nothing else"


def test_a_line_per_batch_is_for_terminals_and_verbose(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table, tmp_path: Path
) -> None:
    """J-04, CL-136: with the summary in JSON on standard output."""
    topic = new_topic()
    writer.write(topic, [b"no number", b"12"])
    arguments = table.arguments(topic, "--value", "int32", "--on-error", "skip", "-v", "-f", "json")
    status, output, errors = run_ingest(tmp_path, [*arguments, "-c", "offset,partition"])
    assert status == 0, errors
    summary = json.loads(output)
    counts = {name: summary[name] for name in ("rows", "files", "batches", "bad_records")}
    assert counts == {"rows": 0, "files": 1, "batches": 1, "bad_records": 2}
    assert summary["ends"] == {topic: {"0": 2}}
    assert re.search(r"^published 0 rows in 1 file, .* rows/s, .* MB/s$", errors, re.MULTILINE)
    begin, *minutes = log_lines(table, errors)[0]
    assert begin == f"ingest of {topic} begins; the table has 0 rows"
    assert all(" rows since the start, " in line for line in minutes)
    columns = table.spark.read.parquet(str(table.output)).columns
    assert columns == ["offset", "partition"]
