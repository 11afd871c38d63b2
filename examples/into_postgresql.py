"""A topic into a table of PostgreSQL: each record exactly once.

The rows of a poll and the offsets after them are written in one transaction, and the offsets in the
database are where a partition begins: Kafka's committed offsets play no role. The processes of a
group divide the partitions. A row of kafka_offsets is locked while its partition is written, and a
poll is refused that does not begin at the offset there: so a process that has lost a partition
without knowing it cannot write a record a second time.

    pip install 'kfast[arrow]' adbc-driver-postgresql
    python examples/into_postgresql.py localhost:9092 postgresql://localhost/shop

Start it as often as there are partitions, and again after a crash.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from typing import Any

from adbc_driver_postgresql import dbapi

import kfast

TOPIC = "orders"
COLUMNS = ["partition", "offset", "timestamp", "key", "value"]
TABLES = (
    "SELECT pg_advisory_xact_lock(4711)",  # two processes that start at once
    'CREATE TABLE IF NOT EXISTS orders (partition int, "offset" bigint,'
    ' "timestamp" timestamptz, key text, value text)',
    "CREATE TABLE IF NOT EXISTS kafka_offsets (topic text, partition int,"
    " next_offset bigint NOT NULL, PRIMARY KEY (topic, partition))",
)
BEGIN = "INSERT INTO kafka_offsets VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
READ = (  # in one order in all processes, so that no two wait for each other
    "SELECT partition, next_offset FROM kafka_offsets WHERE topic = $1 AND partition = ANY($2)"
    " ORDER BY partition FOR UPDATE"
)
MOVE = "UPDATE kafka_offsets SET next_offset = $1 WHERE topic = $2 AND partition = $3"


class PostgresTable(kfast.ConsumerRebalanceListener):
    """The table, and where each assigned partition goes on."""

    def __init__(self, connection: dbapi.Connection, consumer: kfast.KafkaConsumer) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.consumer = consumer
        self.positions: dict[kfast.TopicPartition, int] = {}
        for statement in TABLES:
            self.cursor.execute(statement)
        self.connection.commit()

    def on_partitions_assigned(self, assigned: Iterable[kfast.TopicPartition]) -> None:
        """Seek to the offsets that the database has."""
        if not (assigned := list(assigned)):
            return
        for tp, start in self.consumer.beginning_offsets(assigned).items():
            self.cursor.execute(BEGIN, (tp.topic, tp.partition, start))
        self.seek(assigned)
        self.connection.commit()

    def seek(self, partitions: Iterable[kfast.TopicPartition]) -> None:
        """Continue where the table ends."""
        for tp, offset in self.stored(partitions).items():
            self.positions[tp] = offset
            self.consumer.seek(tp, offset)

    def stored(self, partitions: Iterable[kfast.TopicPartition]) -> dict[kfast.TopicPartition, int]:
        """Next offsets of the database, locked until the transaction ends."""
        self.cursor.execute(READ, (TOPIC, [tp.partition for tp in partitions]))
        return {kfast.TopicPartition(TOPIC, row[0]): row[1] for row in self.cursor.fetchall()}

    def write(self, records: kfast.ConsumerRecords) -> None:
        """Write the records of a poll and the offsets after them, in one transaction."""
        ends = records.next_offsets()
        stored = self.stored(ends)
        if any(stored[tp] != self.positions[tp] for tp in ends):
            if assigned := ends.keys() & self.consumer.assignment():
                self.seek(assigned)  # another process has gone on
            self.connection.rollback()
            return
        self.cursor.adbc_ingest("orders", records.to_arrow().select(COLUMNS), mode="append")
        for tp, end in ends.items():
            self.cursor.execute(MOVE, (end.offset, tp.topic, tp.partition))
        self.connection.commit()
        self.positions.update({tp: end.offset for tp, end in ends.items()})


def main(bootstrap_servers: str, uri: str, **configs: Any) -> None:
    """Run until interrupted."""
    settings = {
        "bootstrap_servers": bootstrap_servers,
        "group_id": "orders-into-postgresql",
        "enable_auto_commit": False,
        "auto_offset_reset": "none",  # an error if retention was faster
        "key_deserializer": kfast.Utf8(),
        "value_deserializer": kfast.Utf8(),
        **configs,
    }
    with kfast.KafkaConsumer(**settings) as consumer, dbapi.connect(uri) as connection:
        table = PostgresTable(connection, consumer)
        consumer.subscribe([TOPIC], listener=table)
        while True:
            records = consumer.poll(timeout_ms=1_000)
            if records.next_offsets():
                table.write(records)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
