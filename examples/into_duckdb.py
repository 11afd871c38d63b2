"""A topic into a table of DuckDB: each record exactly once.

The rows of a poll and the offsets after them are written in one transaction. There is no consumer
group: one process may write to a database file, and DuckDB refuses a second one. So all partitions
are assigned by hand, at the offsets that the database has.

    pip install 'kfast[arrow]' duckdb
    python examples/into_duckdb.py localhost:9092 shop.duckdb

Start it again after a crash. Partitions that are added to the topic meanwhile are read from the
next start on.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import duckdb

import kfast

TOPIC = "orders"
TABLES = """
    CREATE TABLE IF NOT EXISTS orders (
        partition INTEGER, "offset" BIGINT, "timestamp" TIMESTAMPTZ, key TEXT, value TEXT);
    CREATE TABLE IF NOT EXISTS kafka_offsets (
        topic TEXT, partition INTEGER, next_offset BIGINT NOT NULL, PRIMARY KEY (topic, partition));
"""
INSERT = 'INSERT INTO orders SELECT partition, "offset", "timestamp", key, value FROM batch'


def starts(
    connection: duckdb.DuckDBPyConnection, consumer: kfast.KafkaConsumer
) -> dict[kfast.TopicPartition, int]:
    """Offsets at which the partitions go on: those of the database, or the beginning."""
    numbers = consumer.partitions_for_topic(TOPIC) or ()
    offsets = consumer.beginning_offsets([kfast.TopicPartition(TOPIC, n) for n in numbers])
    rows = connection.execute(
        "SELECT partition, next_offset FROM kafka_offsets WHERE topic = ?", [TOPIC]
    ).fetchall()
    return {**offsets, **{kfast.TopicPartition(TOPIC, n): offset for n, offset in rows}}


def write(connection: duckdb.DuckDBPyConnection, records: kfast.ConsumerRecords) -> None:
    """Write the records of a poll and the offsets after them, in one transaction."""
    ends = [[tp.topic, tp.partition, at.offset] for tp, at in records.next_offsets().items()]
    connection.begin()
    connection.register("batch", records.to_arrow())
    connection.execute(INSERT)
    connection.executemany("INSERT OR REPLACE INTO kafka_offsets VALUES (?, ?, ?)", ends)
    connection.commit()


def main(bootstrap_servers: str, path: str, **configs: Any) -> None:
    """Run until interrupted."""
    settings = {
        "bootstrap_servers": bootstrap_servers,
        "auto_offset_reset": "none",  # an error if retention was faster
        "key_deserializer": kfast.Utf8(),
        "value_deserializer": kfast.Utf8(),
        **configs,
    }
    with duckdb.connect(path) as connection, kfast.KafkaConsumer(**settings) as consumer:
        connection.execute(TABLES)
        positions = starts(connection, consumer)
        consumer.assign(positions)
        for tp, offset in positions.items():
            consumer.seek(tp, offset)
        while True:
            records = consumer.poll(timeout_ms=1_000)
            if records.next_offsets():
                write(connection, records)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
