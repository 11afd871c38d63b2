"""Ingests of Spark whose columns grow, with folders by values and dead letters; topics that go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kfast.table.entries import Entry
from kfast.table.fsspec_store import open_store
from kfast.table.manifest_log import ManifestLog
from tests.integration.kafka_writer import KafkaWriter
from tests.spark.conftest import TopicFactory
from tests.spark.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kfast import LocalKafka

pytest.importorskip("pyspark")

OLD = "offset long, value struct<country: string, id: long>"
NEW = "offset long, value struct<country: string, id: long, user: string>, key binary"


def last(table: Table) -> Entry:
    found = ManifestLog(open_store(str(table.output))).last()
    assert found is not None
    return found


@pytest.fixture
def table(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> Table:
    return Table(spark, kafka.bootstrap_servers, tmp_path)


def test_columns_grow_beside_folders_and_dead_letters(
    new_topic: TopicFactory, writer: KafkaWriter, table: Table
) -> None:
    """W-09, W-10, W-12: the same checkpoint goes on; Spark reads all files with mergeSchema."""
    topic = new_topic()
    letters = table.folder / "letters"
    more = {
        "value_format": "json",
        "partition_by": "value.country",
        "dead_letter": str(letters),
    }
    documents = [{"country": "DE", "id": 1}, {"country": "a/b", "id": 2}, {"id": 3}]
    writer.write(topic, [*(json.dumps(each).encode() for each in documents), b"oops"])
    table.ingest(topic, schema=OLD, **more)
    assert (last(table).counts.bad_records, last(table).counts.dead_letters) == (1, 1)
    writer.write(topic, [b'{"country": "DE", "id": 4, "user": "u"}', b'{"id": "x"}'])
    table.ingest(topic, schema=NEW, **more)
    assert last(table).shape.schema.endswith("id:bigint,user:string>, key binary")
    assert last(table).batch_id == 1
    frame = table.spark.read.option("mergeSchema", "true").parquet(str(table.output))
    rows = frame.selectExpr("offset", "country", "value.id", "value.user").orderBy("offset")
    assert [tuple(row) for row in rows.collect()] == [
        (0, "DE", 1, None),
        (1, "a/b", 2, None),
        (2, None, 3, None),
        (3, None, None, None),
        (4, "DE", 4, "u"),
        (5, None, None, None),
    ]
    found = table.spark.read.parquet(str(letters)).orderBy("offset").collect()
    assert [(row.topic, row.partition, row.offset, row.code, row.path) for row in found] == [
        (topic, 0, 3, "syntax", ""),
        (topic, 0, 5, "type", "id"),
    ]
    assert [bytes(row.raw) for row in found] == [b"oops", b'{"id": "x"}']


def test_topics_that_go_and_come_back(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, table: Table
) -> None:
    """Q-02, W-05: the same topic goes on where the table ends, another one begins."""
    stays, goes = new_topic(), new_topic()
    both = f"{stays},{goes}"
    more = {"schema": "topic string, offset long", "options": {"failOnDataLoss": "false"}}
    writer.write(stays, [b"s"] * 3)
    writer.write(goes, [b"g"] * 5)
    table.ingest(both, **more)
    ids = last(table).topic_ids
    assert ids.keys() == {stays, goes}

    writer.write(stays, [b"s"])  # not selected for a while
    table.ingest(stays, **more)
    assert [tp.topic for tp in last(table).gone] == [goes]
    writer.write(goes, [b"g"] * 2)
    table.ingest(both, **more)
    assert table.rows("topic", "offset") == sorted(
        [(stays, at) for at in range(4)] + [(goes, at) for at in range(7)]
    )

    kafka.delete_topic(goes)
    writer.write(stays, [b"s"])
    table.ingest(both, **more)
    assert [tp.topic for tp in last(table).gone] == [goes]
    kafka.create_topic(goes, 1)
    writer.write(goes, [b"new"] * 4)
    table.ingest(both, **more)
    assert [tp.topic for tp in last(table).restarted] == [goes]
    assert last(table).topic_ids[goes] != ids[goes]
    assert table.rows("topic", "offset") == sorted(
        [(stays, at) for at in range(5)]
        + [(goes, at) for at in range(7)]
        + [(goes, at) for at in range(4)]
    )

    kafka.delete_topic(goes)  # the id is in the manifest: a new checkpoint knows it
    kafka.create_topic(goes, 1)
    writer.write(goes, [b"longer"] * 9)
    table.checkpoint = table.folder / "another"
    with pytest.raises(Exception, match=f"the topic {goes} was deleted and created anew"):
        table.ingest(both, take_over=True, schema=more["schema"])
