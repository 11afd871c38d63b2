"""``kfast.ingest`` of a real Apache Kafka, compared with what another client reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import kfast
from kfast import TopicPartition
from kfast.errors import OffsetOutOfRangeError
from kfast.local.local_kafka import LocalKafka
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import CODECS, KafkaWriter, Message
from tests.integration.support import confluent_rows, delete_records

COLUMNS = ("offset", "timestamp", "timestampType", "key", "value", "headers")


def rows(folder: Path, partition: int) -> list[tuple[Any, ...]]:
    """Return what is in a table of one partition, as `confluent_rows` returns it."""
    table = ds.dataset(folder).to_table(filter=ds.field("partition") == partition)
    found = []
    for row in table.to_pylist():
        row["timestamp"] = round(row["timestamp"].timestamp() * 1000)
        row["headers"] = [(each["key"], each["value"]) for each in row["headers"] or []]
        found.append(tuple(row[name] for name in COLUMNS))
    return sorted(found)


def test_an_ingest_has_what_another_client_reads(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, tmp_path: Path
) -> None:
    """CL-120, CL-124: codecs, headers, nulls, transactions; then records are deleted."""
    topic = new_topic(partitions=3)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    for number, codec in enumerate(CODECS):
        messages = [
            Message(
                None if at % 7 == 3 else b"value %d" % at,
                None if at % 3 else b"key %d" % at,
                [("h", b"x"), ("h", None)] if at % 2 else None,
                partition=number % 3,
            )
            for at in range(50)
        ]
        writer.write(topic, messages, codec=codec)
    with writer.transaction("ingested") as transaction:
        transaction.write(topic, [Message(b"in a transaction", partition=0)])
    committed: bytes | None = None
    while committed != b"in a transaction":  # its marker may be written after the answer
        *_, committed, _ = confluent_rows(kafka.bootstrap_servers, partitions[0], "read_committed")[
            -1
        ]
    given: dict[str, Any] = {
        "to": str(tmp_path / "t"),
        "bootstrap_servers": kafka.bootstrap_servers,
        "columns": ("topic", "partition", *COLUMNS),
    }
    summary = kfast.ingest(topic, rows_per_file=40, isolation_level="read_committed", **given)
    for tp in partitions:
        truth = confluent_rows(kafka.bootstrap_servers, tp, "read_committed")
        assert rows(tmp_path / "t", tp.partition) == truth
    assert summary.rows == 50 * len(CODECS) + 1
    writer.write(topic, [Message(b"more", partition=1) for _ in range(20)])
    end = summary.ends[partitions[1]]
    delete_records(kafka.bootstrap_servers, partitions[1], end + 5)
    with pytest.raises(OffsetOutOfRangeError, match=f"offsets {end} to {end + 4} of"):
        kfast.ingest(topic, **given)
    summary = kfast.ingest(topic, lost="skip", **given)
    assert (summary.rows, summary.lost_offsets) == (15, 5)
