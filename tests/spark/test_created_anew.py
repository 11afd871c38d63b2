"""Q-02: an ingest whose topic is deleted and created again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kfast.local.local_kafka import LocalKafka
from tests.integration.kafka_writer import KafkaWriter
from tests.spark.conftest import TopicFactory
from tests.spark.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


def test_the_table_has_the_records_of_both_topics(
    spark: SparkSession,
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    tmp_path: Path,
) -> None:
    """Q-02: an error, or with failOnDataLoss=false the new one from its beginning, once."""
    topic = new_topic()
    table = Table(spark, kafka.bootstrap_servers, tmp_path)
    writer.write(topic, [b"old"] * 10)
    table.ingest(topic)
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 1)
    writer.write(topic, [b"new"] * 10)
    with pytest.raises(Exception, match=f"the topic {topic} was deleted and created anew"):
        table.ingest(topic)
    table.ingest(topic, options={"failOnDataLoss": False})
    writer.write(topic, [b"more"] * 3)
    table.ingest(topic)
    rows = [(offset, bytes(value)) for offset, value in table.rows("offset", "value")]
    both = [(n, value) for n in range(10) for value in (b"new", b"old")]
    assert rows == sorted([*both, *((n, b"more") for n in range(10, 13))])
    assert table.names() == [
        f"{topic}-0-0-10-r1.parquet",
        f"{topic}-0-0-10.parquet",
        f"{topic}-0-10-13-r1.parquet",
    ]
