"""A program as written for kafka-python, with the import changed."""

# ruff: noqa: T201

from __future__ import annotations

import json
from collections.abc import Iterator

from kfast import ConsumerRecord, KafkaConsumer, TopicPartition
from kfast.errors import KafkaError, KafkaTimeoutError


def values(topic: str) -> Iterator[object]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=["localhost:9092"],
        auto_offset_reset="earliest",
        value_deserializer=json.loads,
        consumer_timeout_ms=1000,
    )
    for record in consumer:
        where: tuple[str, int, int] = (record.topic, record.partition, record.offset)
        yield where, record.value
    consumer.close()


def describe(record: ConsumerRecord) -> str:
    return f"{record.topic}-{record.partition}@{record.offset} {record.timestamp} {record.key!r}"


def poll_loop(consumer: KafkaConsumer) -> int:
    seen = 0
    try:
        for tp, records in consumer.poll(timeout_ms=500, max_records=100).items():
            partition: TopicPartition = tp
            for record in records:
                print(partition.topic, describe(record))
            seen += len(records)
    except KafkaTimeoutError as error:
        print(error.hint, error.retriable)
    except KafkaError as error:
        if not error.retriable:
            raise
    return seen
