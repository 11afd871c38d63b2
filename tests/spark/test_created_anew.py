"""Q-02: an ingest whose topic is deleted and created again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kfast.local.local_kafka import LocalKafka
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import until
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
    """Q-02, Q-04: an error, or with failOnDataLoss=false the new one from its beginning, once."""
    from kfast.spark import LagListener  # noqa: PLC0415 - needs pyspark
    from kfast.spark.source.query_lag import QueryLag  # noqa: PLC0415 - what a callback is given

    topic = new_topic()
    table = Table(spark, kafka.bootstrap_servers, tmp_path)
    writer.write(topic, [b"old"] * 10)
    table.ingest(topic)
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 1)
    writer.write(topic, [b"new"] * 10)
    with pytest.raises(Exception, match=f"the topic {topic} was deleted and created anew"):
        table.ingest(topic)
    reported: list[QueryLag] = []
    listener = LagListener(reported.append)
    spark.streams.addListener(listener)
    try:
        table.ingest(topic, options={"failOnDataLoss": False})
        until(lambda: sum(lag.counts.rows for lag in reported if lag.counts) == 10, "10 rows")
    finally:
        spark.streams.removeListener(listener)
    assert [str(tp) for lag in reported for tp in lag.restarted] == [f"{topic}-0"]
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
