"""Python workers of real Spark: left early, failed, killed; and what long queries leave behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from kfast.local.local_kafka import LocalKafka
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import program, until
from tests.soaking import soaking
from tests.spark.conftest import TopicFactory
from tests.spark.reading import Reads

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

pytest.importorskip("pyspark")

MICRO_BATCHES = soaking(60, 1_000)
LONG_SECONDS = soaking(200, 2_000)


def python_workers() -> list[psutil.Process]:
    """Return the Python processes Spark has started below this one."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if any("pyspark.daemon" in word or "pyspark/daemon" in word for word in command):
            found.append(process)
    return found


def test_a_limit_ends_a_task_early_and_no_other(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    topic = new_topic(partitions=2)
    for number in range(2):
        writer.write(topic, [bytes(2_000)] * 3_000, partition=number)
    small: dict[str, Any] = {"kafka__max__partition__fetch__bytes": 20_000}
    for _ in range(3):
        assert len(reads.frame(topic, **small).limit(3).collect()) == 3
    assert reads.frame(topic).count() == 6_000


def test_a_task_that_fails_affects_no_other(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    topic = new_topic()
    writer.write(topic, [b"\0\0\0\1"] * 10 + [b"bad"])
    strict = reads.frame(topic, valueFormat="int32", mode="FAILFAST")
    for _ in range(2):
        with pytest.raises(Exception, match=f"{topic}-0 offset 10: value is not an Int32"):
            strict.collect()
    assert reads.frame(topic, valueFormat="int32").where("value = 1").count() == 10


def test_workers_that_were_killed_are_replaced(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    """Spark ends idle workers after a minute; it may as well be now, and without a word."""
    topic = new_topic(partitions=2)
    writer.write(topic, [b"x"] * 10)
    assert reads.frame(topic).count() == 10
    workers = [each for each in python_workers() if not each.children()]
    assert workers
    for worker in workers:
        worker.kill()
    psutil.wait_procs(workers, timeout=30)
    assert reads.frame(topic).count() == 10


def test_the_broker_restarts_between_micro_batches(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    topic = new_topic()
    counts: dict[int, int] = {}
    query = (
        reads.stream(topic, startingOffsets="earliest")
        .writeStream.foreachBatch(lambda frame, batch: counts.update({batch: frame.count()}))
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    try:
        for expected in (5, 10):
            writer.write(topic, [b"x"] * 5)
            _wait_for_rows(counts, expected)
            kafka.restart_node(1)
        writer.write(topic, [b"x"] * 5)
        _wait_for_rows(counts, 15)
        assert query.exception() is None
    finally:
        query.stop()


def _wait_for_rows(counts: Mapping[int, int], expected: int) -> None:
    until(lambda: sum(counts.values()) == expected, f"{expected} rows", 100)


@pytest.mark.soak
def test_long_queries_leave_nothing_behind(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    topic = new_topic()
    writer.write(topic, [b"x"] * MICRO_BATCHES)
    query = (
        reads.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=1)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    early = _when(query, 20, _usage)
    late = _when(query, MICRO_BATCHES - 20, _usage)
    query.awaitTermination(LONG_SECONDS)
    assert _batches(query) >= MICRO_BATCHES - 1
    assert late[0] <= early[0] + 4, (
        f"file descriptors: {early[0]} after 20 batches, {late[0]} later"
    )
    assert late[1] <= early[1] + 2, f"threads: {early[1]} after 20 batches, {late[1]} later"


def _usage() -> tuple[int, int]:
    """Return file descriptors and threads of the busiest Python process."""
    fds = threads = 0
    for process in python_workers():
        try:
            fds, threads = max(fds, process.num_fds()), max(threads, process.num_threads())
        except psutil.Error:
            continue
    return fds, threads


def _batches(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress.batchId)


def _when(
    query: StreamingQuery, batch: int, look: Callable[[], tuple[int, int]]
) -> tuple[int, int]:
    until(lambda: _batches(query) >= batch or not query.isActive, f"batch {batch}", LONG_SECONDS)
    return look()


DRIVER = """
    import sys
    from pathlib import Path
    from bench.spark.session import spark_session

    folder, servers, topic = sys.argv[1:]
    with spark_session(Path(folder) / "spark") as spark:
        query = (
            spark.readStream.format("kfast")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "400")
            .load()
            .writeStream.format("parquet")
            .option("path", folder + "/table")
            .option("checkpointLocation", folder + "/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
"""


def test_a_driver_that_is_killed_mid_batch(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    for number in range(2):
        writer.write(topic, [b"%d" % n for n in range(10_000)], partition=number)
    offsets = tmp_path / "checkpoint" / "offsets"
    with program(DRIVER, tmp_path, kafka.bootstrap_servers, topic) as process:
        try:
            until(lambda: (offsets / "3").exists() or process.poll() is not None, "batch 3", 200)
            assert process.poll() is None, process.communicate()[1]
        finally:
            family = [*psutil.Process(process.pid).children(recursive=True)]
            os.kill(process.pid, signal.SIGKILL)
            for child in family:
                if child.is_running():
                    child.kill()
            psutil.wait_procs(family, timeout=30)
    assert not (offsets / "30").exists(), "it was killed before its end"
    query = (
        reads.stream(topic, startingOffsets="earliest")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "table"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    table = reads.spark.read.parquet(str(tmp_path / "table"))
    assert table.count() == 20_000
    assert table.select("partition", "offset").distinct().count() == 20_000
    assert table.where("CAST(value AS STRING) != CAST(offset AS STRING)").count() == 0
