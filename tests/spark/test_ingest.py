"""The ingest on real Spark and real Kafka: each record exactly once, whatever dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kfast import TopicPartition
from kfast.errors import ConfigurationError
from kfast.local.local_kafka import LocalKafka
from kfast.spark.ingest.progress import IngestProgress
from kfast.spark.ingest.query_end import failure_of
from kfast.table.fsspec_store import open_store
from kfast.table.manifest_log import ManifestLog
from kfast.table.store import LocalStore
from kfast.table.table_log import STAGING
from tests.integration.kafka_writer import CODECS, KafkaWriter, Message
from tests.integration.support import admin, confluent_rows, until
from tests.spark.conftest import TopicFactory
from tests.spark.crashing import Death, run_ingest
from tests.spark.tables import Table, places
from tests.unit.table.s3_server import s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

HOUR_MS = 3_600_000
NEW_YEAR_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


@pytest.fixture
def table(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> Table:
    return Table(spark, kafka.bootstrap_servers, tmp_path)


def test_records_arrive_as_another_client_reads_them(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table
) -> None:
    topic = new_topic(partitions=3)
    for number, codec in enumerate(CODECS):
        messages = [
            Message(
                None if n % 7 == 3 else b"value %d" % n,
                None if n % 3 else b"key %d" % n,
                headers=[("h", b"x")] if n % 2 else None,
            )
            for n in range(50)
        ]
        writer.write(topic, messages, partition=number % 3, codec=codec)
    counts = (100, 100, 50)
    table.ingest(topic, options={"includeHeaders": True})
    truth = sorted(
        (partition, offset, key, value, timestamp, kind, list(headers))
        for partition in range(3)
        for offset, timestamp, kind, key, value, headers in confluent_rows(
            table.servers, TopicPartition(topic, partition)
        )
    )
    frame = table.spark.read.parquet(str(table.output)).selectExpr(
        *("partition", "offset", "key", "value", "unix_millis(timestamp)", "timestampType"),
        *("headers", "topic"),
    )
    found = sorted(
        (
            *row[:2],
            *(None if cell is None else bytes(cell) for cell in row[2:4]),
            *row[4:6],
            [(header.key, bytes(header.value)) for header in row[6] or ()],
        )
        for row in frame.collect()
    )
    assert found == truth
    assert {row[7] for row in frame.collect()} == {topic}
    assert table.names() == [f"{topic}-{n}-0-{count}.parquet" for n, count in enumerate(counts)]
    # More of it, then nothing more.
    writer.write(topic, [b"more"] * 7, partition=1)
    for _ in range(2):
        table.ingest(topic, options={"includeHeaders": True})
        assert table.rows() == places(100, 107, 50)
    assert f"{topic}-1-100-107.parquet" in table.names()
    assert table.staged() == []


def test_a_table_without_records_has_columns(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table
) -> None:
    """TC-192: in one file without rows, as kfast ingest writes it, which stays the only one."""
    topic = new_topic(partitions=2)
    given = {
        "schema": "offset long, value struct<id: long>",
        "value_format": "json",
        "partition_by": "topic",
        "options": {"mode": "DROPMALFORMED"},
    }
    for _ in range(2):
        table.ingest(topic, **given)
        assert table.names() == [f"topic={topic}/{topic}-0-0-0.parquet"]
    frame = table.spark.read.parquet(str(table.output))
    assert frame.count() == 0
    assert dict(frame.dtypes)["value"] == "struct<id:bigint>"
    writer.write(topic, [b"no document", b'{"id": 7}'], partition=1)
    table.ingest(topic, **given)
    assert table.rows("offset", "value.id") == [(1, 7)]
    assert len(table.names()) == 2
    # Records that are all left out.
    other = Table(table.spark, table.servers, table.folder / "other")
    topic = new_topic()
    writer.write(topic, [b"no document"])
    other.ingest(topic, **given)
    assert other.names() == [f"topic={topic}/{topic}-0-1-1.parquet"]
    assert other.rows("offset") == []
    assert other.staged() == []


def test_several_batches_and_partitions_that_are_added(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table
) -> None:
    from confluent_kafka.admin import NewPartitions  # noqa: PLC0415 - only here

    topic = new_topic()
    writer.write(topic, [b"x"] * 100)
    options = {"maxOffsetsPerTrigger": 40, "maxRecordsPerPartition": 25}
    table.ingest(topic, options=options)
    assert table.rows() == places(100)
    assert len(table.names()) == 5, "two of each batch of 40, one of the last 20"
    client = admin(table.servers)  # its futures die with it
    client.create_partitions([NewPartitions(topic, 2)])[topic].result(30)

    def written() -> bool:
        try:
            writer.write(topic, [b"y"] * 6, partition=1)
        except Exception:  # the producer's broker may not know the partition yet
            return False
        return True

    until(written, "a second partition")
    table.ingest(topic, options=options)
    found = table.rows()
    assert found == places(100, len(found) - 100)
    assert len(found) >= 106


def test_typed_values_in_folders_by_time(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table
) -> None:
    topic = new_topic()
    messages = [
        Message(n.to_bytes(8, "big"), timestamp_ms=NEW_YEAR_MS - HOUR_MS + n * HOUR_MS // 2)
        for n in range(5)
    ]
    writer.write(topic, messages)
    table.ingest(
        topic,
        value_format="int64",
        schema="offset long, value long, topic string",
        partition_by="topic,date,hour",
        compression="snappy",
    )
    folder = f"topic={topic}"
    assert table.names() == [
        f"{folder}/date=2025-12-31/hour=23/{topic}-0-0-5.parquet",
        f"{folder}/date=2026-01-01/hour=0/{topic}-0-0-5.parquet",
        f"{folder}/date=2026-01-01/hour=1/{topic}-0-0-5.parquet",
    ]
    assert table.rows("offset", "value", "topic", "hour") == [
        (n, n, topic, (23 + n // 2) % 24) for n in range(5)
    ]
    last = ManifestLog(LocalStore(table.output)).last()
    assert last is not None
    assert [file.rows for file in last.files] == [2, 2, 1]
    assert min(file.min_timestamp_ms for file in last.files) == NEW_YEAR_MS - HOUR_MS
    with pytest.raises(ConfigurationError, match="has the partition_by topic,date,hour"):
        table.ingest(topic, value_format="int64", schema="offset long, value long, topic string")


def test_a_record_that_fails_its_task_leaves_nothing(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table
) -> None:
    topic = new_topic(partitions=2)
    writer.write(topic, [n.to_bytes(4, "big") for n in range(10)])
    writer.write(topic, [b"1234", b"bad!!", b"1234"], partition=1)
    settings: dict[str, Any] = {"value_format": "int32", "schema": "partition int, offset long"}
    with pytest.raises(Exception, match="offset 1: value") as caught:
        table.ingest(topic, **settings, options={"mode": "FAILFAST"})
    assert f"{topic}-1 offset 1" in str(failure_of(str(caught.value)))
    assert table.names() == []
    table.ingest(topic, **settings, options={"mode": "DROPMALFORMED"})
    assert table.rows() == [*places(10), (1, 0), (1, 2)]
    last = ManifestLog(LocalStore(table.output)).last()
    assert last is not None
    assert (last.counts.rows, last.counts.bad_records) == (12, 1), "W-05: the manifest counts it"


def test_a_checkpoint_of_other_topics_columns_or_tables_is_refused_and_stays_usable(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table
) -> None:
    topic, other = new_topic(), new_topic()
    for name in (topic, other):
        writer.write(name, [b"x"] * 3)
    schema = "partition int, offset long"
    table.ingest(topic, schema=schema)
    with pytest.raises(Exception, match="STREAM_FAILED") as caught:
        table.ingest(other, schema=schema)
    assert str(failure_of(str(caught.value))).startswith(
        f"the checkpoint has {topic}-0, and this query reads topics {other}\n"
    )
    with pytest.raises(ConfigurationError, match="has the column partition of type int"):
        table.ingest(topic, schema="offset long, value binary")
    with pytest.raises(ConfigurationError, match=r"has batches that .*/elsewhere does not have"):
        table.ingest(topic, schema=schema, output=str(table.folder / "elsewhere"))
    writer.write(topic, [b"y"] * 2)
    table.ingest(topic, schema=schema)
    assert table.rows() == places(5)


def test_orphans_go_before_a_query_starts(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table
) -> None:
    topic = new_topic()
    writer.write(topic, [b"x"] * 3)
    folder = table.output / STAGING / "another"
    folder.mkdir(parents=True)
    for name, age_seconds in (("old", 90_000), ("new", 60)):
        path = folder / name
        path.write_bytes(b"x")
        now = path.stat().st_mtime
        os.utime(path, (now - age_seconds, now - age_seconds))
    table.ingest(topic)
    assert [path.name for path in table.staged()] == ["new"]
    table.ingest(topic, orphan_age_ms=0)
    assert table.staged() == []
    assert table.rows() == places(3)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # aiobotocore leaves connections open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_table_on_s3(new_topic: TopicFactory, writer: KafkaWriter, table: Table) -> None:
    """W-01, W-04: driver, workers and sink are processes with caches of their own."""
    s3fs = pytest.importorskip("s3fs")
    parquet = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("moto.server")
    topic = new_topic()
    writer.write(topic, [b"x"] * 50)
    with s3_server() as storage_options:
        system = s3fs.S3FileSystem(**storage_options, skip_instance_cache=True)
        system.mkdir("bucket")
        settings: dict[str, Any] = {
            "output": "s3://bucket/table",
            "storage_options": storage_options,
            "options": {"maxOffsetsPerTrigger": 30},
        }
        log = ManifestLog(open_store("s3://bucket/table", storage_options))
        query = table.ingest(topic, **settings)
        published: list[tuple[int | None, int]] = []
        progress = IngestProgress(
            log, published=lambda entry: published.append((entry.batch_id, entry.counts.rows))
        )
        progress.update(query.recentProgress)
        assert published == [(0, 30), (1, 20)]
        files = system.glob("bucket/table/*.parquet")
        found = parquet.read_table(files, filesystem=system, columns=["offset"])
        assert sorted(found["offset"].to_pylist()) == list(range(50))
        system.rm(files)
        writer.write(topic, [b"y"])
        table.ingest(topic, **settings)
        assert system.glob("bucket/table/*.parquet") == [f"bucket/table/{topic}-0-50-51.parquet"]


def test_a_checkpoint_that_spark_cannot_use(table: Table) -> None:
    """W-08: without the jars of an object store nothing is begun."""
    for url, hint in (
        ("s3://bucket/c", "give s3a://bucket/c"),
        ("s3a://bucket/c", "spark.jars.packages=org.apache.hadoop:hadoop-aws:"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            table.ingest("t", checkpoint=url)
        assert caught.value.message == f"Spark cannot use the checkpoint {url}"
        assert caught.value.cause is not None
        assert "\n" not in caught.value.cause
        assert hint in str(caught.value.hint)
        assert not table.output.exists()


DEATHS = {
    "before the manifest": Death("link", "_kfast/log", 3),
    "after the manifest": Death("link", "_kfast/log", 3, "after"),
    "between two renames": Death("replace", ".parquet", 4),
    "after the renames": Death("replace", ".parquet", 4, "after"),
}
"""Of the second batch: the first link is the writer's beginning, and each batch has two files."""


@pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS)
def test_a_driver_that_is_killed(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table, tmp_path: Path, death: Death
) -> None:
    topic = new_topic(partitions=2)
    for number in range(2):
        writer.write(topic, [b"x"] * 40, partition=number)
    arguments = table.arguments(topic, "--option", "maxOffsetsPerTrigger=40")
    status, output, errors = run_ingest(tmp_path, arguments, death)
    assert status == -signal.SIGKILL, (output, errors)
    before = table.rows()
    assert len(before) == len(set(before)) >= 40
    last = ManifestLog(LocalStore(table.output)).last()
    assert last is not None
    is_published = death != DEATHS["before the manifest"]
    assert last.batch_id == (1 if is_published else 0)
    # Between, the logs have grown; Spark repeats the batch as it was all the same.
    writer.write(topic, [b"y"] * 5)
    query = table.ingest(topic, options={"maxOffsetsPerTrigger": 40}, orphan_age_ms=0)
    assert table.rows() == places(45, 40)
    # W-06: Spark reports the repeated batch's own end as the latest offset.
    progress = IngestProgress(ManifestLog(LocalStore(table.output)))
    lags = []
    for report in query.recentProgress:
        progress.update([report])
        lags.append(progress.lag)
    assert (lags[0], lags[-1]) == (None, 0), lags
    assert progress.totals.batches == 2
    assert table.staged() == []
