"""Consume, process, produce: exactly once, also when a process or a broker fails.

Converts readings from degrees Celsius to Fahrenheit. The results of a batch and the offsets after
it are committed in one transaction: a consumer with isolation_level="read_committed" sees the
results only once they are committed, and the next owner of a partition resumes after the last
committed batch.

    pip install kfast confluent-kafka
    python examples/exactly_once.py localhost:9092 converter-1
    python examples/exactly_once.py localhost:9092 converter-2

Run up to one per partition, each with a transactional id of its own. Start one that crashed again
with its old id: that aborts the transaction it left open. Until then, or until the transaction
times out, the new owner of its partitions waits.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import confluent_kafka
import numpy as np

import kfast
from kfast import transactions

SOURCE = "celsius"
TARGET = "fahrenheit"
READING = np.dtype([("sensor", ">i4"), ("degrees", ">f8")])


def convert(batch: kfast.PartitionRecords) -> list[tuple[bytes, bytes]]:
    """Return one (key, value) per reading: the sensor, and the reading in Fahrenheit."""
    readings = batch.values.copy()
    readings["degrees"] = readings["degrees"] * 1.8 + 32
    return [(b"%d" % reading["sensor"], reading.tobytes()) for reading in readings]


def main(bootstrap_servers: str, name: str, **configs: Any) -> None:
    """Run until interrupted."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": name}
    )
    producer.init_transactions()  # aborts a transaction that an earlier process left open
    settings = {
        "bootstrap_servers": bootstrap_servers,
        "client_id": name,
        "group_id": "converters",
        "enable_auto_commit": False,  # the producer commits
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
        "value_deserializer": kfast.Struct(READING),
        "max_poll_records": 10_000,  # bounds a transaction
    }
    with kfast.KafkaConsumer(SOURCE, **{**settings, **configs}) as consumer:
        while True:
            records = consumer.poll(timeout_ms=1_000)
            if records:
                process(records, consumer, producer)


def process(
    records: kfast.ConsumerRecords,
    consumer: kfast.KafkaConsumer,
    producer: confluent_kafka.Producer,
) -> None:
    """Write the results of one poll in a transaction; if it is aborted, seek back."""
    producer.begin_transaction()
    try:
        for batch in records.values():
            for key, value in convert(batch):
                producer.produce(TARGET, value, key)
        transactions.send_offsets(producer, records.next_offsets(), consumer.group_metadata())
        producer.commit_transaction()
    except confluent_kafka.KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise  # fenced by another process with this transactional id, or fatal
        producer.abort_transaction()
        rewind(consumer, set(records))


def rewind(consumer: kfast.KafkaConsumer, partitions: set[kfast.TopicPartition]) -> None:
    """Seek to the committed offsets, to read the batch of an aborted transaction again."""
    mine = partitions & consumer.assignment()
    for tp, at in consumer.committed(mine).items():
        if at is None:
            consumer.seek_to_beginning(tp)
        else:
            consumer.seek(tp, at)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
