"""CL-271: metrics of a Spark ingest, while its query runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kfast.spark
from kfast.errors import ConfigurationError
from kfast.local.local_kafka import LocalKafka
from tests.end_to_end.metrics_server import free_port, lag, scraped
from tests.end_to_end.stage import eventually
from tests.integration.kafka_writer import KafkaWriter
from tests.spark.conftest import TopicFactory
from tests.spark.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


def test_metrics_of_a_query(
    spark: SparkSession,
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    tmp_path: Path,
) -> None:
    """CL-271: also what a batch that is bounded has left; the port is free after the query."""
    topic = new_topic(partitions=2)
    for number in range(2):
        writer.write(topic, [b"x"] * 30, partition=number)
    table = Table(spark, kafka.bootstrap_servers, tmp_path)
    port = free_port()
    query = kfast.spark.ingest(
        spark,
        bootstrap_servers=kafka.bootstrap_servers,
        topics=topic,
        output=str(table.output),
        checkpoint=str(table.checkpoint),
        trigger="1h",
        options={"maxOffsetsPerTrigger": 20},
        metrics=f":{port}",
    )
    try:
        eventually(lambda: bool(query.recentProgress))
        found = scraped(port)
        assert found["rows_total"] == found["table_rows"] == 20
        assert found["batches_total"] == 1
        assert found["bytes_total"] > 0
        assert found[f'end_offset{{topic="{topic}",partition="1"}}'] == 10
        assert [found[f'lag_offsets{{topic="{topic}",partition="{n}"}}'] for n in (0, 1)] == [
            20,
            20,
        ]
        with pytest.raises(ConfigurationError, match="cannot be served there"):
            kfast.spark.ingest(
                spark,
                bootstrap_servers=kafka.bootstrap_servers,
                topics=topic,
                output=str(table.output),
                checkpoint=str(table.checkpoint),
                metrics=f":{port}",
            )
    finally:
        query.stop()
    eventually(lambda: scraped(port) == {})
    assert lag(port) == [-1, -1]
