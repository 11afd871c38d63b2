"""Spark Connect: the source announced by a client that has no JVM of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
