"""One table, written by Spark's ingest and by ``kfast.ingest`` in turn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kfast
from kfast.errors import ConfigurationError
from kfast.local.local_kafka import LocalKafka
from tests.integration.kafka_writer import KafkaWriter
from tests.spark.conftest import TopicFactory
from tests.spark.tables import Table, places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


def test_spark_and_one_process_write_one_table(
    spark: SparkSession,
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    tmp_path: Path,
) -> None:
    """CL-123: each begins where the other ended; a reader sees one schema."""
    table = Table(spark, kafka.bootstrap_servers, tmp_path)
    topic = new_topic()
    given: dict[str, Any] = {
        "to": str(table.output),
        "bootstrap_servers": kafka.bootstrap_servers,
    }
    writer.write(topic, [b"%d" % number for number in range(30)])
    table.ingest(topic)
    writer.write(topic, [b"%d" % number for number in range(30, 50)])
    with pytest.raises(ConfigurationError, match=f"written by Spark with .*{table.checkpoint}"):
        kfast.ingest(topic, **given)
    assert kfast.ingest(topic, take_over=True, **given).rows == 20
    writer.write(topic, [b"%d" % number for number in range(50, 60)])
    assert kfast.ingest(topic, **given).rows == 10
    writer.write(topic, [b"%d" % number for number in range(60, 65)])
    with pytest.raises(ConfigurationError, match="written by kfast ingest"):
        table.ingest(topic, checkpoint=str(tmp_path / "new"))
    table.ingest(topic, checkpoint=str(tmp_path / "new"), take_over=True)
    assert table.rows() == places(65)
    assert table.rows("offset", "value") == [(at, bytearray(b"%d" % at)) for at in range(65)]
    names = [name.removeprefix(topic) for name in table.names()]
    assert names == ["-0-0-30.parquet", "-0-30-50.parquet", "-0-50-60.parquet", "-0-60-65.parquet"]
    assert table.staged() == []
