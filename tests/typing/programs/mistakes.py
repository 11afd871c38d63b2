"""Mistakes that a type checker finds.

Every line with an ignored error must have that error: mypy, run strictly, complains of an ignore
that ignores nothing.
"""

# ruff: noqa: T201

from __future__ import annotations

from kfast import KafkaConsumer, TopicPartition, read_topic
from kfast.config import ConsumerConfig


def mistakes(consumer: KafkaConsumer, tp: TopicPartition) -> None:
    consumer.seek("orders", 5)  # type: ignore[arg-type]
    consumer.seek(tp, "5")  # type: ignore[arg-type]
    consumer.assign(["orders"])  # type: ignore[list-item]
    consumer.pause([tp])  # type: ignore[arg-type]
    consumer.poll(timeout_ms="100")  # type: ignore[arg-type]
    consumer.position(tp).upper()  # type: ignore[attr-defined]
    consumer.produce("orders", b"")  # type: ignore[attr-defined]
    read_topic("orders", end=None)  # type: ignore[arg-type]
    tp.partition = 5  # type: ignore[misc]


def read_only(config: ConsumerConfig) -> None:
    minimum: str = config.fetch_min_bytes  # type: ignore[assignment]
    absent: int = config.fetch_min_bites  # type: ignore[attr-defined]
    print(minimum, absent)
