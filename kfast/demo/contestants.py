# ruff: noqa: PLC0415 - optional packages, and each contestant without the modules of the others
"""Clients that read the same records, for the demo's race and ``kfast bench``.

A contestant connects, finds out about its topics and yields once: from then on the clock runs, and
not before may it be assigned partitions. It reads from the given offsets on and yields, without
end, the number of records of each batch. Settings are the best that were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final

import kfast
from kfast.types import TopicPartition

Ends = Mapping[TopicPartition, tuple[int, int]]
"""First offset and end offset of every partition to read."""
Contestant = Callable[[Mapping[str, object], Ends], Iterator[int]]
"""``config`` has kfast's settings, or those of the client's own kind."""

CONFLUENT_TUNING: Final[Mapping[str, object]] = {"fetch.queue.backoff.ms": 5}
_BATCH: Final = 2_000
_POLLED: Final = 50_000
_PARTITION_BYTES: Final = 4 << 20
_METADATA_SECONDS: Final = 30


def poll_kfast(config: Mapping[str, object], ends: Ends) -> Iterator[int]:
    """Read with kfast: every record as columns, checksums verified."""
    with kfast.KafkaConsumer(config=config) as consumer:
        for topic in {tp.topic for tp in ends}:
            consumer.partitions_for_topic(topic)
        yield 0
        consumer.assign(ends)
        for tp, (start, _) in ends.items():
            consumer.seek(tp, start)
        while True:
            yield consumer.poll(timeout_ms=200).count()


def consume_confluent(config: Mapping[str, object], ends: Ends) -> Iterator[int]:
    """Read with confluent-kafka; ``config`` has librdkafka's names."""
    batches = consume_messages(config, ends)
    try:
        for messages in batches:
            yield len(messages)
    finally:
        batches.close()


def consume_messages(config: Mapping[str, object], ends: Ends) -> Generator[list[Any], None, None]:
    """Do the same, and yield the messages; none first."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Assigned

    settings: dict[str, Any] = {
        "group.id": "kfast-demo",
        "enable.auto.commit": False,
        "log_level": 0,
        **config,
        **CONFLUENT_TUNING,
    }
    consumer = Consumer(settings)
    try:
        for topic in {tp.topic for tp in ends}:
            consumer.list_topics(topic, _METADATA_SECONDS)
        yield []
        consumer.assign(
            [Assigned(tp.topic, tp.partition, start) for tp, (start, _) in ends.items()]
        )
        while True:
            yield consumer.consume(_BATCH, 0.2)
    finally:
        consumer.close()


def poll_kafka_python(config: Mapping[str, object], ends: Ends) -> Iterator[int]:
    """Read with kafka-python; ``config`` has its keywords."""
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Assigned

    consumer = KafkaConsumer(**_tuned(config))
    for topic in {tp.topic for tp in ends}:
        consumer.partitions_for_topic(topic)
    yield 0
    starts = {Assigned(*tp): start for tp, (start, _) in ends.items()}
    consumer.assign([*starts])
    for tp, start in starts.items():
        consumer.seek(tp, start)
    while True:
        yield sum(map(len, consumer.poll(timeout_ms=200, max_records=_POLLED).values()))


def getmany_aiokafka(config: Mapping[str, object], ends: Ends) -> Iterator[int]:
    """Read with aiokafka; ``config`` has its keywords."""
    import asyncio

    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Assigned

    loop = asyncio.new_event_loop()

    async def started() -> Any:
        made = AIOKafkaConsumer(**_tuned(config))
        await made.start()
        await made.topics()
        return made

    async def assign() -> None:  # futures are made in it, which needs the running loop
        starts = {Assigned(*tp): start for tp, (start, _) in ends.items()}
        consumer.assign([*starts])
        for tp, start in starts.items():
            consumer.seek(tp, start)

    consumer = loop.run_until_complete(started())
    yield 0
    loop.run_until_complete(assign())
    while True:
        polled = loop.run_until_complete(consumer.getmany(timeout_ms=200, max_records=_POLLED))
        yield sum(map(len, polled.values()))


def _tuned(config: Mapping[str, object]) -> dict[str, Any]:
    return {
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "max_partition_fetch_bytes": _PARTITION_BYTES,
        "check_crcs": False,
        **config,
    }
