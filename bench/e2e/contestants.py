# ruff: noqa: PLC0415 - imports inside functions, see below
"""The contestants: every way to read a topic that is measured.

A contestant connects, finds out about the topic and yields once: from then on the clock runs, and
not before may it be assigned partitions or subscribe. It reads all partitions from their start and
yields, without end, the number of records it has just processed. Its title describes the
processing; the meter counts and stops it.
Imports are inside the functions: each contestant runs in a process of its own, without the modules
of the others in its memory.
"""

from __future__ import annotations

import gc
import selectors
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Run = Callable[["Target"], Iterator[int]]
_BUSY_SECONDS = 0.01

JSON, AVRO = "trades", "trades-avro"
"""Kinds of topics whose values become typed columns."""


@dataclass(slots=True, frozen=True)
class Target:
    """The topic to read, from the broker at ``servers``."""

    servers: str
    topic: str
    partitions: int
    login: Mapping[str, Any] = field(default_factory=dict)
    """What a KafkaConsumer needs besides the servers, ``ssl_truststore_location`` for TLS."""
    registry: str = ""
    """URL of the schema registry, where values name their schema."""


@dataclass(slots=True, frozen=True)
class Contestant:
    """One way to read; ``settings`` describes the tuning, "" for defaults."""

    title: str
    settings: str
    run: Run
    security: str = "PLAINTEXT"
    """Security protocol of the target that it is given."""
    kinds: tuple[str, ...] = ("text",)
    """Kinds of the topics that it is run on (``TopicSpec.kind``)."""


# --- the limit ------------------------------------------------------------------------------------


def _drain(target: Target) -> Iterator[int]:
    from bench.e2e.drain import Drain, first_address

    partitions = list(range(target.partitions))
    ca = target.login.get("ssl_truststore_location")
    drain = Drain(first_address(target.servers), target.topic, partitions, ca=ca)
    yield 0
    yield from drain.batches()


def _drain_two(target: Target) -> Iterator[int]:
    """Read with two connections, each with half of the partitions, as data arrives."""
    from bench.e2e.drain import Drain, first_address

    selector = selectors.DefaultSelector()
    halves = [list(range(start, target.partitions, 2)) for start in range(2)]
    address = first_address(target.servers)
    drains = [Drain(address, target.topic, half) for half in halves if half]
    yield 0
    for drain in drains:
        drain.send()
        selector.register(drain, selectors.EVENT_READ, drain)
    while True:
        for key, _ in selector.select():
            drain = key.data
            frame = drain.receive_some()
            if frame is not None:
                count = drain.walk(frame)
                del frame
                drain.send()
                yield count


# --- kfast ----------------------------------------------------------------------------------------


def _kfast(target: Target, handle: Callable[[Any], int], **configs: Any) -> Iterator[int]:
    import kfast

    with kfast.KafkaConsumer(
        bootstrap_servers=target.servers,
        auto_offset_reset="earliest",
        **target.login,
        **configs,
    ) as consumer:
        consumer.partitions_for_topic(target.topic)
        yield 0
        partitions = [kfast.TopicPartition(target.topic, i) for i in range(target.partitions)]
        consumer.assign(partitions)
        for tp in partitions:
            consumer.seek(tp, 0)
        while True:
            yield handle(consumer.poll(timeout_ms=1000))


def _kfast_group(target: Target, handle: Callable[[Any], int], **configs: Any) -> Iterator[int]:
    """Read the same as the only member of a new group."""
    import uuid

    import kfast

    with kfast.KafkaConsumer(
        bootstrap_servers=target.servers,
        auto_offset_reset="earliest",
        group_id=f"bench-{uuid.uuid4()}",
        **configs,
    ) as consumer:
        consumer.partitions_for_topic(target.topic)
        yield 0
        consumer.subscribe([target.topic])
        while True:
            yield handle(consumer.poll(timeout_ms=1000))


def _count(records: Any) -> int:
    return int(records.count())


def _touch(records: Any) -> int:
    """Use every column without gathering bytes: lengths, offsets and timestamps are arrays."""
    for batch in records.values():
        _ = int(batch.offsets[-1]) + int(batch.timestamps.max())
        _ = int(batch.values.lengths.sum()) + int(batch.keys.lengths.sum())
    return int(records.count())


def _arrow(records: Any) -> int:
    return int(records.to_arrow().num_rows) if records.count() else 0


def _busy(records: Any) -> int:
    """Do something else for a while, in Python without a pause, as applications do."""
    import time

    end = time.perf_counter() + _BUSY_SECONDS
    while time.perf_counter() < end:
        pass
    return int(records.count())


def _objects(records: Any) -> int:
    count = 0
    for batch in records.values():
        for record in batch:
            _ = (record.offset, record.key, record.value)
            count += 1
    return count


# --- typed columns --------------------------------------------------------------------------------

# All of them end in six columns of Arrow. Imports come before the clock runs.

_TRADE_DUCKDB = {
    "id": "BIGINT",
    "ts": "BIGINT",
    "user": "VARCHAR",
    "price": "DOUBLE",
    "qty": "INTEGER",
    "side": "VARCHAR",
}


def _trade_schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        {
            "id": pa.int64(),
            "ts": pa.timestamp("ms", "UTC"),
            "user": pa.string(),
            "price": pa.float64(),
            "qty": pa.int32(),
            "side": pa.string(),
        }
    )


def _kfast_typed(target: Target, deserializer: object) -> Iterator[int]:
    import pyarrow as pa

    def columns(records: Any) -> int:
        for batch in records.values():
            pa.record_batch(batch.values)
        return int(records.count())

    return _kfast(target, columns, value_deserializer=deserializer)


def _kfast_json(target: Target) -> Iterator[int]:
    import kfast
    from kfast.demo.data import TRADE_COLUMNS

    return _kfast_typed(target, kfast.Json(TRADE_COLUMNS))


def _kfast_avro(target: Target) -> Iterator[int]:
    import kfast

    return _kfast_typed(target, kfast.Avro(registry=kfast.SchemaRegistry(target.registry)))


def _kfast_duckdb(target: Target) -> Iterator[int]:
    """Read raw values, and have duckdb parse those of a poll as lines of a file in memory."""
    import os

    import duckdb
    import pyarrow  # noqa: F401 - of which duckdb makes a table

    file = os.memfd_create("values")
    query = f"SELECT * FROM read_ndjson('/proc/self/fd/{file}', columns={_TRADE_DUCKDB})"
    connection = duckdb.connect()

    def columns(records: Any) -> int:
        values = [value for batch in records.values() for value in batch.values.to_list()]
        if values:
            os.ftruncate(file, 0)
            os.pwrite(file, b"\n".join(values), 0)
            connection.sql(query).to_arrow_table()
        return len(values)

    return _kfast(target, columns)


# --- the others -----------------------------------------------------------------------------------

# By default consume() sleeps for a second when its queue is full. Measured here, messages in
# thousands rather than tens of thousands and fetches of the default size are quickest: what lies
# in the queue is then still in the processor's cache. "large" is what is often advised instead.
_QUICK: dict[str, object] = {"fetch.queue.backoff.ms": 5}
_LARGE: dict[str, object] = {
    "fetch.message.max.bytes": 4 << 20,
    "fetch.max.bytes": 100 << 20,
    "fetch.queue.backoff.ms": 5,
    "queued.max.messages.kbytes": 256 << 10,
}
_QUICK_SETTINGS = "fetch.queue.backoff.ms 5, gc off"
_LARGE_SETTINGS = (
    "consume(50000), fetch.message.max.bytes 4 MiB, fetch.max.bytes 100 MiB, "
    "fetch.queue.backoff.ms 5, queued.max.messages.kbytes 256 MiB, gc off"
)


def _confluent(
    target: Target,
    handle: Callable[[list[Any]], int],
    count: int,
    tuning: dict[str, object] | None = None,
) -> Iterator[int]:
    from confluent_kafka import Consumer, TopicPartition

    from kfast.demo.contestants import librdkafka

    if tuning is not None:
        gc.disable()
    consumer = Consumer(
        {
            "bootstrap.servers": target.servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **librdkafka(target.login),
            **(tuning or {}),
        }
    )
    consumer.list_topics(target.topic, 10)
    yield 0
    partitions = range(target.partitions)
    consumer.assign([TopicPartition(target.topic, number, 0) for number in partitions])
    while True:
        yield handle(consumer.consume(count, 1.0))


def _touch_messages(messages: list[Any]) -> int:
    for message in messages:
        _ = (message.value(), message.key(), message.offset())
    return len(messages)


def _columns_today(messages: list[Any]) -> int:
    """Build the columns that kfast's Arrow export has, the way it is done without kfast."""
    import pyarrow as pa

    table = pa.table(
        {
            "topic": [message.topic() for message in messages],
            "partition": pa.array([message.partition() for message in messages], pa.int32()),
            "offset": pa.array([message.offset() for message in messages], pa.int64()),
            "timestamp": pa.array([message.timestamp()[1] for message in messages], pa.int64()),
            "key": pa.array([message.key() for message in messages], pa.binary()),
            "value": pa.array([message.value() for message in messages], pa.binary()),
        }
    )
    return int(table.num_rows)


def _confluent_orjson(target: Target) -> Iterator[int]:
    import orjson
    import pyarrow as pa

    schema = _trade_schema()

    def columns(messages: list[Any]) -> int:
        rows = [orjson.loads(message.value()) for message in messages]
        return int(pa.Table.from_pylist(rows, schema).num_rows)

    return _confluent(target, columns, 5_000, _QUICK)


def _confluent_avro(target: Target) -> Iterator[int]:
    import pyarrow as pa
    from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient({"url": target.registry})
    named = {"subject.name.strategy": topic_subject_name_strategy}
    read: Any = AvroDeserializer(client, conf=named)
    context, schema = SerializationContext(target.topic, MessageField.VALUE), _trade_schema()

    def columns(messages: list[Any]) -> int:
        rows = [read(message.value(), context) for message in messages]
        return int(pa.Table.from_pylist(rows, schema).num_rows)

    return _confluent(target, columns, 5_000, _QUICK)


def _kafka_python(target: Target) -> Iterator[int]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=target.servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=4 << 20,
        check_crcs=False,
    )
    consumer.partitions_for_topic(target.topic)
    yield 0
    partitions = [TopicPartition(target.topic, number) for number in range(target.partitions)]
    consumer.assign(partitions)
    for tp in partitions:
        consumer.seek(tp, 0)
    while True:
        polled = consumer.poll(timeout_ms=1000, max_records=50_000)
        yield sum(map(len, polled.values()))


def _aiokafka(target: Target) -> Iterator[int]:
    import asyncio

    from aiokafka import AIOKafkaConsumer, TopicPartition

    loop = asyncio.new_event_loop()

    async def make() -> Any:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=target.servers,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_partition_fetch_bytes=4 << 20,
            check_crcs=False,
        )
        await consumer.start()
        await consumer.topics()
        return consumer

    async def assign() -> None:  # which starts tasks
        partitions = [TopicPartition(target.topic, number) for number in range(target.partitions)]
        consumer.assign(partitions)
        for tp in partitions:
            consumer.seek(tp, 0)

    consumer = loop.run_until_complete(make())
    yield 0
    loop.run_until_complete(assign())
    while True:
        polled = loop.run_until_complete(consumer.getmany(timeout_ms=1000, max_records=50_000))
        yield sum(map(len, polled.values()))


CONTESTANTS: dict[str, Contestant] = {
    "drain": Contestant("drain, 1 connection", "1 MiB per partition", _drain),
    "drain2": Contestant("drain, 2 connections", "1 MiB per partition", _drain_two),
    "kfast": Contestant("kfast poll(): columns indexed", "", lambda target: _kfast(target, _count)),
    "kfast-group": Contestant(
        "kfast poll(), in a group",
        "subscribe(), group_id, auto-commit every 5 s",
        lambda target: _kfast_group(target, _count),
    ),
    "kfast-commits": Contestant(
        "kfast poll(), in a group that commits often",
        "subscribe(), group_id, auto-commit every 200 ms",
        lambda target: _kfast_group(target, _count, auto_commit_interval_ms=200),
    ),
    "kfast-nocrc": Contestant(
        "kfast poll(), CRC off",
        "check_crcs=False",
        lambda target: _kfast(target, _count, check_crcs=False),
    ),
    "kfast-touch": Contestant(
        "kfast, offsets, timestamps, lengths used", "", lambda target: _kfast(target, _touch)
    ),
    "kfast-arrow": Contestant(
        "kfast, all gathered into Arrow", "", lambda target: _kfast(target, _arrow)
    ),
    "kfast-busy": Contestant(
        "kfast, 10 ms of pure Python per poll", "", lambda target: _kfast(target, _busy)
    ),
    "kfast-records": Contestant(
        "kfast, one object per record", "", lambda target: _kfast(target, _objects)
    ),
    "confluent-default": Contestant(
        "confluent-kafka consume(), default",
        "consume(500)",
        lambda target: _confluent(target, len, 500),
    ),
    "confluent": Contestant(
        "confluent-kafka consume(), tuned",
        f"consume(2000), {_QUICK_SETTINGS}",
        lambda target: _confluent(target, len, 2_000, _QUICK),
    ),
    "confluent-large": Contestant(
        "confluent-kafka consume(), large fetches",
        _LARGE_SETTINGS,
        lambda target: _confluent(target, len, 50_000, _LARGE),
    ),
    "confluent-crc": Contestant(
        "confluent-kafka, tuned, CRC on",
        f"check.crcs, consume(2000), {_QUICK_SETTINGS}",
        lambda target: _confluent(target, len, 2_000, {**_QUICK, "check.crcs": True}),
    ),
    "confluent-touch": Contestant(
        "confluent-kafka, tuned, value(), key(), offset() called",
        f"consume(2000), {_QUICK_SETTINGS}",
        lambda target: _confluent(target, _touch_messages, 2_000, _QUICK),
    ),
    "columns-today": Contestant(
        "columns today: confluent-kafka → pyarrow",
        f"consume(5000), {_QUICK_SETTINGS}",
        lambda target: _confluent(target, _columns_today, 5_000, _QUICK),
    ),
    "aiokafka": Contestant(
        "aiokafka getmany()", "50 000 records, 4 MiB per partition, CRC off", _aiokafka
    ),
    "kafka-python": Contestant(
        "kafka-python poll()", "50 000 records, 4 MiB per partition, CRC off", _kafka_python
    ),
    "drain-tls": Contestant(
        "drain over TLS: a bare SSLSocket", "1 MiB per partition", _drain, security="SSL"
    ),
    "kfast-tls": Contestant(
        "kfast poll() over TLS", "", lambda target: _kfast(target, _count), security="SSL"
    ),
    "kfast-tls-busy": Contestant(
        "kfast over TLS, 10 ms of pure Python per poll",
        "",
        lambda target: _kfast(target, _busy),
        security="SSL",
    ),
    "confluent-tls": Contestant(
        "confluent-kafka consume() over TLS, tuned",
        f"consume(2000), {_QUICK_SETTINGS}",
        lambda target: _confluent(target, len, 2_000, _QUICK),
        security="SSL",
    ),
    "kfast-raw": Contestant(
        "kfast poll(): values as they are",
        "",
        lambda target: _kfast(target, _count),
        kinds=(JSON, AVRO),
    ),
    "kfast-json": Contestant("kfast.Json: six columns", "", _kfast_json, kinds=(JSON,)),
    "kfast-duckdb": Contestant(
        "kfast raw, joined for duckdb read_ndjson",
        "one query per poll, duckdb's threads as by default",
        _kfast_duckdb,
        kinds=(JSON,),
    ),
    "confluent-orjson": Contestant(
        "confluent-kafka, orjson → Arrow",
        f"consume(5000), {_QUICK_SETTINGS}",
        _confluent_orjson,
        kinds=(JSON,),
    ),
    "kfast-avro": Contestant(
        "kfast.Avro with a registry: six columns", "", _kfast_avro, kinds=(AVRO,)
    ),
    "confluent-avro": Contestant(
        "confluent-kafka, AvroDeserializer → Arrow",
        f"consume(5000), {_QUICK_SETTINGS}",
        _confluent_avro,
        kinds=(AVRO,),
    ),
}
"""By their names on the command line, in the order of tables."""

DEFAULT = (
    *("drain", "kfast", "kfast-group", "kfast-arrow"),
    *("confluent-default", "confluent", "columns-today"),
)
"""The contestants of a run that names none."""

TLS = (
    *("kfast-tls", "confluent-tls", "drain-tls", "kfast", "confluent"),
    *("kfast-tls-busy", "kfast-busy"),
)
"""Those of ``--contestants tls``: every way to read over TLS, and what it is compared with."""

TYPED = (
    *("kfast-json", "kfast-raw", "kfast-duckdb", "confluent-orjson"),
    *("kfast-avro", "confluent-avro"),
)
"""Those of ``--contestants typed``: JSON and Avro to typed columns, and reading without that."""
