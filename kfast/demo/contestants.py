# ruff: noqa: PLC0415 - optional packages, and each contestant without the modules of the others
"""Clients that read the same records, for the demo's race and ``kfast bench``.

A contestant connects, finds out about its topics and yields once: from then on the clock runs, and
not before may it be assigned partitions. It reads from the given offsets on and yields, without
end, the number of records of each batch. Settings are the best that were measured.

The race of ``make demo`` reads the same offsets with kfast and confluent-kafka alternately, in this
process. confluent-kafka has a short back-off when its queue is full, 2000 messages per call, and no
garbage collection meanwhile.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import kfast
from kfast.errors import KafkaError
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
_LIBRDKAFKA: Final = {
    "bootstrap_servers": "bootstrap.servers",
    "security_protocol": "security.protocol",
    "ssl_truststore_location": "ssl.ca.location",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
}
_TIMEOUT_SECONDS: Final = 30
_REPORT_SECONDS: Final = 0.2


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
        consumer = AIOKafkaConsumer(**_tuned(config))
        await consumer.start()
        await consumer.topics()
        return consumer

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


# --- the race -------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Rate:
    """The rate at which a topic was read."""

    records_per_second: float

    def megabytes_per_second(self, bytes_per_record: float) -> float:
        """Return the rate in MB of keys and values, uncompressed."""
        return self.records_per_second * bytes_per_record / 1e6


def librdkafka(login: Mapping[str, str]) -> dict[str, str]:
    """Return ``LocalKafka.client_config()`` by librdkafka's names, which kfast takes as well."""
    return {_LIBRDKAFKA[key]: value for key, value in login.items()}


def time_kfast(config: Mapping[str, object], ends: Ends, report: Callable[[int], None]) -> Rate:
    """Read with ``poll``: every record as columns, checksums verified."""
    return _time(poll_kfast(config, ends), ends, report)


def time_confluent(
    config: Mapping[str, object], ends: Ends, report: Callable[[int], None]
) -> Rate | None:
    """Read with ``consume``; None when confluent-kafka is not installed."""
    try:
        import confluent_kafka  # noqa: F401 - optional
    except ImportError:
        return None
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _time(consume_confluent(config, ends), ends, report)
    finally:
        if was_enabled:
            gc.enable()


def _time(batches: Iterator[int], ends: Ends, report: Callable[[int], None]) -> Rate:
    """Measure ``batches``, whose first item says that the next one may send a Fetch."""
    total = sum(end - start for start, end in ends.values())
    done = 0
    last_report = 0.0
    try:
        next(batches)
        started = now = last_batch = time.perf_counter()
        for count in batches:
            now = time.perf_counter()
            done += count
            if count:
                last_batch = now
            if now - last_report > _REPORT_SECONDS or done >= total:
                last_report = now  # not for every batch: drawing is not to be measured
                report(min(done, total))
            if done >= total:
                break
            if now - last_batch > _TIMEOUT_SECONDS:
                raise KafkaError(
                    f"no record for {_TIMEOUT_SECONDS} s: {total - done:,} of {total:,} are missing"
                )
    finally:
        batches.close()  # type: ignore[attr-defined]  # a generator: closes the consumer
    return Rate(done / (now - started))
