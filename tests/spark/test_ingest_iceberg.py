"""W-25: a Spark ingest into a table of Iceberg."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kfast.local.local_kafka import LocalKafka
from tests.integration.kafka_writer import KafkaWriter
from tests.spark.conftest import TopicFactory
from tests.spark.tables import Table, places
from tests.unit.table.compacted_tables import places_in
from tests.unit.table.iceberg_tables import NAME, catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")


def test_an_iceberg_table_has_each_record_once(
    spark: SparkSession,
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """W-25: the process that commits a batch finds the catalog as this one does."""
    from kfast.table.iceberg_catalog import load_iceberg  # noqa: PLC0415 - needs the package

    catalog(tmp_path, monkeypatch)
    # Spark's processes have the variables of its start, and read pyiceberg's file.
    (Path(os.environ["PYICEBERG_HOME"]) / ".pyiceberg.yaml").write_text(
        f"catalog:\n  test:\n    type: sql\n    uri: sqlite:///{tmp_path}/catalog.db\n"
        f"    warehouse: file://{tmp_path}/warehouse\n"
    )
    topic = new_topic(partitions=2)
    for number in range(2):
        writer.write(topic, [b"x"] * 30, partition=number)
    table = Table(spark, kafka.bootstrap_servers, tmp_path)
    for count in (0, 5):
        writer.write(topic, [b"y"] * count)
        table.ingest(
            topic, format="iceberg", iceberg_table=NAME, options={"maxOffsetsPerTrigger": 40}
        )
        found = Counter(places_in(load_iceberg(NAME).scan().to_arrow()))
        assert found == Counter(places(30 + count, 30))
    assert table.rows() == places(35, 30)
