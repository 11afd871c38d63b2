"""J-09: dead letters that workers of Spark produce to a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import kfast
from kfast.errors import ConfigurationError, UnknownTopicOrPartitionError
from kfast.local.local_kafka import LocalKafka
from kfast.table.manifest_log import ManifestLog
from kfast.table.store import LocalStore
from tests.integration.kafka_writer import KafkaWriter, Message
from tests.integration.support import confluent_rows
from tests.spark.conftest import TopicFactory
from tests.spark.tables import Table, places

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


@pytest.fixture
def table(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> Table:
    return Table(spark, kafka.bootstrap_servers, tmp_path)


def letters(table: Table, topic: str) -> list[tuple[Any, ...]]:
    """Return partition, offset and column of each letter, with its key and value."""
    found = []
    for row in confluent_rows(table.servers, kfast.TopicPartition(topic, 0)):
        headers = {name: (value or b"").decode() for name, value in row[5]}
        place = int(headers["kfast.partition"]), int(headers["kfast.offset"])
        found.append((*place, headers["kfast.column"], row[3], row[4], headers.get("h")))
    return sorted(found)


def test_workers_produce_the_letters_of_their_ranges(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table
) -> None:
    """J-09: bytes and headers as they came, of every partition; the manifest has their number."""
    topic, dead = new_topic(partitions=2), new_topic()
    for number in range(2):
        good = [Message(b"\x00\x00\x00\x07", b"key")] * 3
        bad = Message(b"no number %d" % number, b"key", [("h", b"x")])
        writer.write(topic, [*good, bad], partition=number)
    more = {"value_format": "int32", "dead_letter": f"topic:{dead}"}
    table.ingest(topic, **more)
    assert letters(table, dead) == [
        (number, 3, "value", b"key", b"no number %d" % number, "x") for number in range(2)
    ]
    last = ManifestLog(LocalStore(table.output)).last()
    assert last is not None
    assert (last.rows, last.counts.bad_records, last.counts.dead_letters) == (8, 2, 2)
    writer.write(topic, [b"no number"])
    table.ingest(topic, **more)
    assert table.rows() == places(5, 4)
    assert len(letters(table, dead)) == 3, "those of the first query did not come again"


def test_what_is_refused_before_the_query_starts(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table
) -> None:
    """J-07: of topics, patterns and partitions; nothing is written."""
    topic = new_topic(partitions=2)
    writer.write(topic, [b"no number"])
    for topics, options in (
        (topic, {}),
        ("", {"subscribePattern": topic[:-1] + ".*"}),
        ("", {"assign": f'{{"{topic}": [1]}}'}),
    ):
        with pytest.raises(ConfigurationError, match="this ingest reads the topic"):
            table.ingest(
                topics, value_format="int32", dead_letter=f"topic:{topic}", options=options
            )
    with pytest.raises(UnknownTopicOrPartitionError, match="no-such-letters"):
        table.ingest(topic, value_format="int32", dead_letter="topic:no-such-letters")
    assert not table.output.exists()
