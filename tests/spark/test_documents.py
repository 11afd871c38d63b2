"""The examples of the documents on real Spark and real Kafka."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kfast.spark
from kfast.local.local_kafka import LocalKafka
from tests.document_examples import examples
from tests.fake_registry.server import FakeRegistry
from tests.integration.kafka_writer import KafkaWriter, Message
from tests.spark.conftest import TopicFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

READINGS = [(7, 21.5), (8, -3.25)]


@pytest.fixture
def readings(new_topic: TopicFactory, writer: KafkaWriter) -> str:
    """A topic of sensor readings, packed as big-endian structs."""
    topic = new_topic()
    writer.write(topic, [Message(struct.pack(">id", *reading)) for reading in READINGS])
    return topic


def test_the_source_reads_typed_columns(
    spark: SparkSession, kafka: LocalKafka, readings: str
) -> None:
    for (code,) in (examples("README.md", "Spark"), examples("docs/spark.md", "The source")):
        code = code.replace("localhost:9092", kafka.bootstrap_servers)
        code = code.replace('"readings"', f'"{readings}"')
        scope: dict[str, Any] = {"spark": spark}
        exec(code, scope)
        assert scope["events"].isStreaming
        exec(code.replace("spark.readStream", "spark.read"), scope)
        events = scope["events"]
        assert events.columns == ["offset", "timestamp", "value"]
        rows = events.orderBy("offset").select("value.sensor", "value.celsius").collect()
        assert [tuple(row) for row in rows] == READINGS


def test_typed_columns(
    spark: SparkSession, kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter
) -> None:
    """TC-159: JSON by the query's schema, Avro by that of a registry."""
    (code,) = examples("docs/spark.md", "Typed columns")
    names = {"trades": new_topic(), "orders": new_topic()}
    with FakeRegistry() as registry:
        number = registry.register(f"{names['orders']}-value", '"string"')
        writer.write(names["trades"], [Message(b'{"id": 7, "price": 0.5}'), Message(b"{")])
        writer.write(names["orders"], [Message(b"\0" + number.to_bytes(4, "big") + b"\4hi")])
        code = code.replace("localhost:9092", kafka.bootstrap_servers)
        code = code.replace("http://localhost:8081", registry.url)
        for name, topic in names.items():
            code = code.replace(f'"{name}"', f'"{topic}"')
        scope: dict[str, Any] = {"spark": spark}
        exec(code.replace("spark.readStream", "spark.read"), scope)
        trades = (
            scope["trades"].orderBy("offset").select("value.id", "value.price", "_corrupt_reason")
        )
        assert [tuple(row) for row in trades.collect()] == [
            (7, 0.5, None),
            (None, None, "truncated"),
        ]
        assert [row.value for row in scope["orders"].collect()] == ["hi"]


def test_the_ingest_writes_a_table(
    spark: SparkSession, kafka: LocalKafka, readings: str, tmp_path: Path
) -> None:
    (code,) = examples("docs/spark.md", "The ingest")
    code = code.replace("localhost:9092", kafka.bootstrap_servers)
    code = code.replace('"readings"', f'"{readings}"').replace("/data", str(tmp_path))
    exec(code, {"spark": spark, "kfast": kfast})
    table = spark.read.parquet(str(tmp_path / "readings"))
    assert sorted(row.offset for row in table.select("offset", "date").collect()) == [0, 1]
