"""A topic into a table of ClickHouse: each record exactly once, without transactions.

ClickHouse has no transaction over two tables, so the rows of a poll are inserted first, and the
offsets after them then. A crash between the two has the next start insert rows again. They have the
same key, (partition, offset), of which ReplacingMergeTree keeps one row: when it merges parts, and
before that for queries that say FINAL. An offset is written once the rows before it are stored, and
the highest one counts: a process that has lost a partition without knowing it does no harm.

    pip install 'kfast[arrow]' clickhouse-connect
    python examples/into_clickhouse.py localhost:9092 http://default@localhost:8123/default

Start it as often as there are partitions, and again after a crash.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from typing import Any

import clickhouse_connect
from clickhouse_connect.driver.client import Client

import kfast

TOPIC = "orders"
COLUMNS = ["partition", "offset", "timestamp", "key", "value"]
TABLES = (
    "CREATE TABLE IF NOT EXISTS orders (partition Int32, offset Int64,"
    " timestamp Nullable(DateTime64(3, 'UTC')), key Nullable(String), value Nullable(String))"
    " ENGINE = ReplacingMergeTree ORDER BY (partition, offset)",
    "CREATE TABLE IF NOT EXISTS kafka_offsets (topic String, partition Int32, next_offset Int64)"
    " ENGINE = ReplacingMergeTree(next_offset) ORDER BY (topic, partition)",
)
READ = (
    "SELECT partition, max(next_offset) FROM kafka_offsets WHERE topic = {topic:String}"
    " GROUP BY partition"
)


class ClickHouseTable(kfast.ConsumerRebalanceListener):
    """The table, and the offsets up to which it has the partitions."""

    def __init__(self, client: Client, consumer: kfast.KafkaConsumer) -> None:
        self.client = client
        self.consumer = consumer
        for statement in TABLES:
            client.command(statement)

    def on_partitions_assigned(self, assigned: Iterable[kfast.TopicPartition]) -> None:
        """Seek to the offsets that the database has, or to the beginning."""
        rows = self.client.query(READ, parameters={"topic": TOPIC}).result_rows
        stored = {kfast.TopicPartition(TOPIC, row[0]): row[1] for row in rows}
        for tp, start in self.consumer.beginning_offsets(assigned).items():
            self.consumer.seek(tp, stored.get(tp, start))

    def write(self, records: kfast.ConsumerRecords) -> None:
        """Write the records of a poll, then the offsets after them."""
        ends = [[tp.topic, tp.partition, at.offset] for tp, at in records.next_offsets().items()]
        self.client.insert_arrow("orders", records.to_arrow().select(COLUMNS))
        self.client.insert("kafka_offsets", ends)


def main(bootstrap_servers: str, dsn: str, **configs: Any) -> None:
    """Run until interrupted."""
    settings = {
        "bootstrap_servers": bootstrap_servers,
        "group_id": "orders-into-clickhouse",
        "enable_auto_commit": False,
        "auto_offset_reset": "none",  # an error if retention was faster
        "max_poll_records": 500_000,  # ClickHouse wants few large inserts
        "fetch_min_bytes": 1_000_000,
        "key_deserializer": kfast.Utf8(),
        "value_deserializer": kfast.Utf8(),
        **configs,
    }
    client = clickhouse_connect.get_client(dsn=dsn, settings={"async_insert": 0})
    with client, kfast.KafkaConsumer(**settings) as consumer:
        table = ClickHouseTable(client, consumer)
        consumer.subscribe([TOPIC], listener=table)
        while True:
            records = consumer.poll(timeout_ms=1_000)
            if records.next_offsets():
                table.write(records)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
