"""Ingests into Delta tables, read back with another Delta client."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kfast.local.local_kafka import LocalKafka
from kfast.table.delta_log import DeltaLog
from kfast.table.store import LocalStore
from tests.integration.kafka_writer import KafkaWriter, Message
from tests.spark.conftest import TopicFactory
from tests.spark.crashing import Death, run_ingest
from tests.spark.tables import Place, Table, places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
deltalake = pytest.importorskip("deltalake")

NEW_YEAR_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


@pytest.fixture
def table(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> Table:
    return Table(spark, kafka.bootstrap_servers, tmp_path)


def delta_of(table: Table) -> Any:
    """Return a table as deltalake opens it."""
    return deltalake.DeltaTable(str(table.output))


def delta_places(table: Table) -> list[Place]:
    """Return every partition and offset of a Delta table, sorted."""
    found = delta_of(table).to_pyarrow_table(columns=["partition", "offset"])
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_a_delta_table_has_each_record_once(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table
) -> None:
    topic = new_topic(partitions=2)
    day_ms = 86_400_000
    for number in range(2):
        messages = [Message(b"%d" % n, timestamp_ms=NEW_YEAR_MS + n * day_ms) for n in range(3)]
        writer.write(topic, messages, partition=number)
    settings: dict[str, Any] = {
        "format": "delta",
        "value_format": "utf8",
        "schema": "partition int, offset long, timestamp timestamp, value string",
        "partition_by": "date",
        "options": {"maxOffsetsPerTrigger": 4},
    }
    table.ingest(topic, **settings)
    delta = delta_of(table)
    assert delta.version() == 2, "made, and two batches"
    assert delta.metadata().partition_columns == ["date"]
    found = delta.to_pyarrow_table().to_pylist()
    assert sorted(
        (row["partition"], row["offset"], row["value"], str(row["date"])) for row in found
    ) == [(number, n, str(n), f"2026-01-0{n + 1}") for number in range(2) for n in range(3)]
    assert {row["timestamp"].isoformat() for row in found if row["offset"] == 0} == {
        "2026-01-01T00:00:00+00:00"
    }
    # Readers that only know Parquet see the same.
    assert table.rows() == places(3, 3)
    table.ingest(topic, **settings)
    assert delta_of(table).version() == 2, "nothing new, no version"


def test_a_batch_that_was_not_committed_is_committed_by_the_next_run(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table, tmp_path: Path
) -> None:
    """W-20: and what the user removes after that does not come back."""
    topic = new_topic(partitions=2)
    for number in range(2):
        writer.write(topic, [b"x"] * 40, partition=number)
    limit = ("--option", "maxOffsetsPerTrigger=40")
    death = Death("replace", ".parquet", 4, "after")  # of the second batch, the last rename
    arguments = table.arguments(topic, "--format", "delta", *limit)
    status, output, errors = run_ingest(tmp_path, arguments, death)
    assert status == -signal.SIGKILL, (output, errors)
    assert table.rows() == places(40, 40)
    assert delta_places(table) == places(20, 20), "the files have names, and no commit"
    last = DeltaLog(LocalStore(table.output)).last()
    assert last is not None
    assert last.batch_id == 0
    writer.write(topic, [b"y"] * 5)
    settings: dict[str, Any] = {"format": "delta", "options": {"maxOffsetsPerTrigger": 40}}
    table.ingest(topic, **settings, orphan_age_ms=0)
    assert delta_places(table) == table.rows() == places(45, 40)
    assert table.staged() == []
    # The newest batch, too: first removed by the table's own means, then from the disk.
    delta_of(table).delete()
    vacuum = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}
    assert delta_of(table).vacuum(**vacuum)
    assert table.names() == []
    writer.write(topic, [b"z"] * 2)
    table.ingest(topic, **settings)
    assert delta_places(table) == [(0, 45), (0, 46)]
    assert table.rows() == [(0, 45), (0, 46)]
