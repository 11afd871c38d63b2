"""W-02: a batch that Spark repeats: the same is accepted, another one is an error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kfast import TopicPartition
from kfast.errors import KafkaError
from kfast.local.local_kafka import LocalKafka
from kfast.spark.ingest.plan import IngestPlan
from kfast.spark.ingest.query_end import failure_of
from kfast.spark.ingest.source import IngestSource
from kfast.table.batches import (
    BatchPart,
    PartitionGone,
    PartitionRestart,
    ReadRange,
    batch_part_dict,
)
from kfast.table.manifest_log import ManifestLog
from kfast.table.projection import Projection
from kfast.table.store import LocalStore
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import admin, until
from tests.spark.conftest import TopicFactory
from tests.spark.tables import Place, Table, places
from tests.unit.table.tables import FIRST, SHAPE, Tasks, rows, seen, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


class Sink:
    """The sink of a query on a table, without Spark."""

    def __init__(self, folder: Path) -> None:
        self.store = LocalStore(folder / "table")
        self.tasks = Tasks(self.store)
        self._checkpoint = str(folder / "c")

    def commit(self, *parts: BatchPart) -> None:
        """Publish batch 0, as each process does that Spark starts for it."""
        writer = table(self.store).writer
        plan = IngestPlan(self.store.url, self._checkpoint, writer, SHAPE, Projection(()))
        sink = IngestSource(plan.options()).streamWriter(None, False)
        lines = [(json.dumps(batch_part_dict(part)),) for part in parts]
        sink.commit([sink.write(iter(lines))], 0)


@pytest.mark.parametrize(
    ("published", "repeated", "message", "partition"),
    [
        (
            [(0, 0, 5), (1, 0, 3)],
            [(0, 0, 5), (1, 0, 3), (2, 0, 4)],
            "with no offsets of t-2, and is repeated with offsets up to 3",
            2,
        ),
        (
            [(0, 0, 5), (1, 0, 3)],
            [(0, 0, 5)],
            "with offsets up to 2 of t-1, and is repeated with no offsets",
            1,
        ),
        (
            [(0, 0, 5), (1, 0, 3)],
            [(0, 0, 5), (1, 0, 2)],
            "with offsets up to 2 of t-1, and is repeated with offsets up to 1",
            1,
        ),
    ],
    ids=["more", "fewer", "another end"],
)
def test_a_repeated_batch_with_other_partitions_is_an_error(
    tmp_path: Path,
    published: list[tuple[int, int, int]],
    repeated: list[tuple[int, int, int]],
    message: str,
    partition: int,
) -> None:
    """W-02: the error names the partition, and the table is as before."""
    sink = Sink(tmp_path)
    sink.commit(*sink.tasks.run(*published))
    log = ManifestLog(sink.store)
    before = log.last()
    with pytest.raises(KafkaError) as caught:
        sink.commit(*sink.tasks.run(*repeated))
    assert caught.value.message == f"batch 0 was published {message}"
    assert "restored to an older state" in str(caught.value.cause)
    assert "--take-over" in str(caught.value.hint)
    assert (caught.value.topic, caught.value.partition) == ("t", partition)
    assert log.last() == before
    assert seen(sink.store) == rows(*published)


def test_a_partition_that_is_gone_in_one_of_two_is_an_error(tmp_path: Path) -> None:
    """W-02: Spark has the same partitions in both."""
    sink = Sink(tmp_path)
    sink.commit(*sink.tasks.run(*FIRST), PartitionGone("t", 2, 9))
    with pytest.raises(KafkaError, match="with the end of t-2, and is repeated with no offsets"):
        sink.commit(*sink.tasks.run(*FIRST))
    sink.commit(*sink.tasks.run((0, 0, 2), (0, 2, 5), (1, 0, 3)), PartitionGone("t", 2, 9))
    assert seen(sink.store) == rows(*FIRST)


def test_ranges_without_offsets_may_be_missing(tmp_path: Path) -> None:
    """W-02: what is added for the columns, or for a restart that is published, is no difference."""
    sink = Sink(tmp_path)
    first = sink.tasks.run((0, 0, 5))
    sink.commit(*first, ReadRange("t", 1, 4, 4), PartitionRestart("t", 2, 7, 3))
    sink.commit(*sink.tasks.run((0, 0, 5)), ReadRange("t", 2, 3, 3))
    last = ManifestLog(sink.store).last()
    assert last is not None
    assert last.ends == {
        TopicPartition("t", 0): 5,
        TopicPartition("t", 1): 4,
        TopicPartition("t", 2): 3,
    }
    with pytest.raises(KafkaError, match="with offsets up to 3 of t-1, and is repeated with"):
        sink.commit(*sink.tasks.run((0, 0, 5)), ReadRange("t", 1, 6, 6))
    assert seen(sink.store) == rows((0, 0, 5))


# --- with Spark -----------------------------------------------------------------------------------


@pytest.fixture
def spark_table(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> Table:
    return Table(spark, kafka.bootstrap_servers, tmp_path)


def read_by_all(folder: Path) -> list[Place]:
    """Return every partition and offset, in which Parquet readers must agree, sorted."""
    import duckdb  # noqa: PLC0415 - as its neighbours
    import polars  # noqa: PLC0415
    import pyarrow.dataset as ds  # noqa: PLC0415

    columns = ["partition", "offset"]
    found = ds.dataset(folder, format="parquet").to_table(columns=columns).to_pylist()
    read = sorted((row["partition"], row["offset"]) for row in found)
    with duckdb.connect() as connection:
        query = f"SELECT partition, \"offset\" FROM '{folder}/*.parquet'"
        assert sorted(connection.execute(query).fetchall()) == read
    assert sorted(polars.read_parquet(folder / "*.parquet", columns=columns).rows()) == read
    return read


def test_a_checkpoint_restored_to_an_older_copy(
    new_topic: TopicFactory, writer: KafkaWriter, spark_table: Table
) -> None:
    """W-02: the topic has a partition more by then: an error, and nothing is read twice."""
    from confluent_kafka.admin import NewPartitions  # noqa: PLC0415 - only here

    topic = new_topic(partitions=2)
    copy = spark_table.folder / "copy"
    for number in range(2):
        writer.write(topic, [b"x"] * 10, partition=number)
    spark_table.ingest(topic)
    shutil.copytree(spark_table.checkpoint, copy)
    for number in range(2):
        writer.write(topic, [b"y"] * 5, partition=number)
    spark_table.ingest(topic)
    client = admin(spark_table.servers)  # its futures die with it
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(30)

    def written() -> bool:
        try:
            writer.write(topic, [b"z"], partition=2)
        except Exception:  # the producer's broker may not know the partition yet
            return False
        return True

    until(written, "a third partition")
    shutil.rmtree(spark_table.checkpoint)
    shutil.copytree(copy, spark_table.checkpoint)
    log = ManifestLog(LocalStore(spark_table.output))
    before, names = log.last(), spark_table.names()
    assert before is not None
    with pytest.raises(Exception, match="was published") as caught:
        spark_table.ingest(topic)
    failure = failure_of(str(caught.value))
    assert isinstance(failure, KafkaError)
    expected = f"batch 1 was published with no offsets of {topic}-2, and is repeated with offsets"
    assert failure.message.startswith(expected)
    assert "--take-over" in str(failure)
    assert log.last() == before
    assert spark_table.names() == names
    assert spark_table.staged() == []
    assert read_by_all(spark_table.output) == places(15, 15)
    # As the error says: another checkpoint goes on where the table ends.
    new = str(spark_table.folder / "new")
    spark_table.ingest(topic, checkpoint=new, take_over=True)
    read = read_by_all(spark_table.output)
    assert read == places(15, 15, len(read) - 30)
    assert len(read) >= 31


def test_a_first_batch_without_records_is_repeated(
    new_topic: TopicFactory, writer: KafkaWriter, spark_table: Table
) -> None:
    """W-02, TC-192: the driver was gone before Spark wrote that the batch is finished."""
    topic = new_topic(partitions=2)
    spark_table.ingest(topic)
    names = spark_table.names()
    assert names == [f"{topic}-0-0-0.parquet"]
    for path in (spark_table.checkpoint / "commits").iterdir():
        path.unlink()
    writer.write(topic, [b"x"] * 4, partition=1)
    spark_table.ingest(topic)
    assert read_by_all(spark_table.output) == places(0, 4)
    assert spark_table.names() == [*names, f"{topic}-1-0-4.parquet"]
