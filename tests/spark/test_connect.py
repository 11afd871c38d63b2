"""Q-13: Spark Connect: queries of a client that has no JVM of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bench.spark.session import spark_environment
from kfast.local.local_kafka import LocalKafka
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import run_program
from tests.spark.conftest import TopicFactory

for _package in ("pyspark", "grpc", "grpc_status", "google.rpc"):
    pytest.importorskip(_package)

CLIENT = """
    import sys, warnings
    warnings.simplefilter("ignore")
    from pyspark.sql import SparkSession
    import kfast.spark

    servers, topic = sys.argv[1:]
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    kfast.spark.register(spark)
    frame = (
        spark.read.format("kfast")
        .schema("offset long, value string")
        .option("valueFormat", "utf8")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .load()
    )
    print([tuple(row) for row in frame.orderBy("offset").collect()])
    spark.stop()
"""


def test_a_batch_query(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, tmp_path: Path
) -> None:
    topic = new_topic()
    writer.write(topic, [b"a", None, b"c"])
    environment: dict[str, Any] = {**spark_environment(tmp_path)}
    output, _ = run_program(
        CLIENT,
        kafka.bootstrap_servers,
        topic,
        timeout_seconds=200,
        **environment,
    )
    assert output.splitlines()[-1] == "[(0, 'a'), (1, None), (2, 'c')]"


INGEST = """
    import sys, warnings
    warnings.simplefilter("ignore")
    from pyspark.sql import SparkSession
    import kfast.spark
    from tests.integration.kafka_writer import KafkaWriter

    servers, topic, folder = sys.argv[1:]
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    writer = KafkaWriter(servers)
    for word in (b"first", b"second"):
        for number in range(3):
            writer.write(topic, [word] * 20, partition=number)
        query = kfast.spark.ingest(
            spark,
            bootstrap_servers=servers,
            topics=topic,
            output=folder + "/table",
            checkpoint=folder + "/checkpoint",
        )
        assert query.awaitTermination(100), query.status
    print(spark.read.parquet(folder + "/table").count())
    spark.stop()
"""


def test_an_ingest(kafka: LocalKafka, new_topic: TopicFactory, tmp_path: Path) -> None:
    """Q-13: exact, and it goes on where the first run of it ended."""
    topic = new_topic(partitions=3)
    environment: dict[str, Any] = {**spark_environment(tmp_path)}
    output, _ = run_program(
        INGEST, kafka.bootstrap_servers, topic, tmp_path, timeout_seconds=300, **environment
    )
    assert output.splitlines()[-1] == "120"
    table = pq.read_table(tmp_path / "table", columns=["partition", "offset", "value"])
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == [
        (number, offset, b"first" if offset < 20 else b"second")
        for number in range(3)
        for offset in range(40)
    ]
    names = sorted(path.name for path in (tmp_path / "table").glob("*.parquet"))
    assert names == [
        f"{topic}-{number}-{ends}.parquet" for number in range(3) for ends in ("0-20", "20-40")
    ]
