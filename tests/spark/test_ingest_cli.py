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

from kfast.errors import ConfigurationError
from kfast.local.local_kafka import LocalKafka
from kfast.spark.ingest.checkpoint import writer_id
from kfast.table.store import LocalStore
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import until
from tests.spark.conftest import TopicFactory
from tests.spark.crashing import end, run_ingest, start_ingest
from tests.spark.processes import java_in_session, session_of
from tests.spark.tables import Table, places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

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
def started(folder: Path, arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run an ingest meanwhile."""
    process = start_ingest(folder, arguments)
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


FAILURES = {
    "unreachable broker": (["--bootstrap-servers", NOWHERE, *IMPATIENT], "127.0.0.1:1"),
    "unknown topic": (["--topics", "no-such-topic", *IMPATIENT], 'no topic "no-such-topic"'),
}


@pytest.mark.parametrize(("more", "message"), FAILURES.values(), ids=FAILURES)
def test_a_query_that_fails_says_why_and_leaves_nothing(
    kafka: LocalKafka, tmp_path: Path, more: list[str], message: str
) -> None:
    table = Table(None, kafka.bootstrap_servers, tmp_path)
    with started(tmp_path, table.arguments("t", *more)) as process:
        output, errors = process.communicate(timeout=150)
        check_nothing_is_left(process.pid, tmp_path)
    assert process.returncode == 1
    assert message in "\n".join(lines_of(errors))
    assert output == f"no new records for {table.output}\n"


def test_ctrl_c_between_batches_and_again(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    for number in range(2):
        writer.write(topic, [b"x"] * 300, partition=number)
    arguments = table.arguments(topic, "--option", "maxOffsetsPerTrigger=20")
    with started(tmp_path, arguments) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("batch 0 | 20 rows | ")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: Spark's processes get it, too
        output, errors = process.communicate(timeout=120)
        check_nothing_is_left(process.pid, tmp_path)
    assert process.returncode == 130
    assert errors == ""
    assert f"{table.output} has " in output, "the summary"
    before = table.rows()
    assert 20 <= len(before) == len(set(before)) < 600
    table.ingest(topic, orphan_age_ms=0)
    assert table.rows() == places(300, 300)
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
