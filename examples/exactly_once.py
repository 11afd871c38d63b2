"""Consume, process, produce: every record counts once, whatever dies when.

Sums up readings per sensor and writes one result per batch. The results and the offsets after the
batch are in one transaction: a reader with isolation_level="read_committed" sees both or neither,
and whoever takes the partitions over goes on exactly behind the last committed batch.

    pip install kfast confluent-kafka
    python examples/exactly_once.py localhost:9092
"""

from __future__ import annotations

import sys

import confluent_kafka
import numpy as np

import kfast
from kfast import transactions

READING = np.dtype([("sensor", ">i4"), ("celsius", ">f8")])


def results(batch: kfast.PartitionRecords) -> list[tuple[bytes, bytes]]:
    """Return one (key, value) per sensor: its mean in this batch."""
    readings = batch.values
    sensors, rows = np.unique(readings["sensor"], return_inverse=True)
    means = np.bincount(rows, weights=readings["celsius"]) / np.bincount(rows)
    return [(b"%d" % sensor, b"%.3f" % mean) for sensor, mean in zip(sensors, means, strict=True)]


def main(bootstrap_servers: str) -> None:
    """Run until interrupted."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": "means-1"}
    )
    producer.init_transactions()
    with kfast.KafkaConsumer(
        "readings",
        bootstrap_servers=bootstrap_servers,
        group_id="means",
        enable_auto_commit=False,  # the producer commits
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        value_deserializer=kfast.Struct(READING),
    ) as consumer:
        while True:
            records = consumer.poll(timeout_ms=1_000)
            offsets = records.next_offsets()
            if not offsets:
                continue
            producer.begin_transaction()
            try:
                for batch in records.values():
                    for key, value in results(batch):
                        producer.produce("means", value, key)
                transactions.send_offsets(producer, offsets, consumer.group_metadata())
                producer.commit_transaction()
            except confluent_kafka.KafkaException as error:
                if error.args[0].fatal():
                    raise  # another producer has taken over this transactional.id
                producer.abort_transaction()
                rewind(consumer, set(offsets))


def rewind(consumer: kfast.KafkaConsumer, partitions: set[kfast.TopicPartition]) -> None:
    """Go back to what is committed, to read the batch of an aborted transaction again."""
    mine = partitions & consumer.assignment()
    for tp, at in consumer.committed(mine).items():
        if at is None:
            consumer.seek_to_beginning(tp)
        else:
            consumer.seek(tp, at)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
