# ruff: noqa: PLC0415 - optional packages
"""The demo's part about typed columns: JSON and Avro into tables, next to confluent-kafka.

One document is not what its schema says. The schema registry is a real one (``LocalRegistry``);
where its files or confluent-kafka's packages for Avro cannot be had, the demo says so and shows
JSON only.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final

import kfast
from kfast.demo import data
from kfast.demo.contestants import Ends, consume_messages
from kfast.demo.show import Show
from kfast.errors import LocalKafkaError

JSON_TOPIC: Final = "trades"
AVRO_TOPIC: Final = "trades-avro"
_PER_MEGABYTE: Final = 2_000
_DIFFERENT: Final = 20_000
_AVRO_PART: Final = 10
"""So many times fewer, because confluent-kafka takes so many times longer for one."""
_PARTITIONS: Final = 2
_BLOCK: Final = 5_000
_SHOWN: Final = 4

Read = Callable[[bytes], Mapping[str, Any] | None]


def show_typed(
    show: Show, kafka: kfast.LocalKafka, config: Mapping[str, str], megabytes: int
) -> None:
    """Write trades, and read them into tables of six columns, with kfast and without."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        show.text('skipped: pip install "kfast[arrow]"')
        return
    count = megabytes * _PER_MEGABYTE
    rows = _show_json(show, kafka, config, count)
    rows += _show_avro(show, kafka, config, count // _AVRO_PART)
    show.table("Into a table of six columns", ["topic", "client", "seconds", "records/s", ""], rows)


def _show_json(
    show: Show, kafka: kfast.LocalKafka, config: Mapping[str, str], count: int
) -> list[list[Any]]:
    values = _values(count, lambda row: json.dumps(row, separators=(",", ":")).encode())
    bad = count // 3
    values[bad] = values[bad].replace(b'"qty":', b'"qty":"twelve","quantity":')
    ends = _write(show, kafka, JSON_TOPIC, values)
    show.code(
        f"schema = {json.dumps(data.TRADE_COLUMNS)}",
        f'records = kfast.read_topic("{JSON_TOPIC}", value_deserializer=kfast.Json(schema),',
        '                           on_deserialization_error="null")',
        "table = records.to_arrow(flatten=True)",
        "for error in records.errors: print(error.message)",
    )
    table, errors, seconds = _read(JSON_TOPIC, config, kfast.Json(data.TRADE_COLUMNS))
    rows = table.select(["offset", *data.TRADE_COLUMNS]).slice(0, _SHOWN).to_pylist()
    shown = [[*(row | {"ts": row["ts"].time().isoformat("milliseconds")}).values()] for row in rows]
    show.table(f"{table.num_rows:,} rows; the first ones", [*rows[0]], shown)
    for error in errors:
        show.text(error.message)
    return _compare(show, JSON_TOPIC, config, ends, seconds, _read_json())


def _show_avro(
    show: Show, kafka: kfast.LocalKafka, config: Mapping[str, str], count: int
) -> list[list[Any]]:
    try:
        from confluent_kafka.schema_registry import (
            SchemaRegistryClient,
            topic_subject_name_strategy,
        )
        from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
        from confluent_kafka.serialization import MessageField, SerializationContext
    except ImportError:
        show.text('Avro is left out: pip install "confluent-kafka[avro,schemaregistry]"')
        return []
    context = SerializationContext(AVRO_TOPIC, MessageField.VALUE)
    named = {"subject.name.strategy": topic_subject_name_strategy}
    with ExitStack() as stack:
        try:
            registry = stack.enter_context(show.local_registry())
        except LocalKafkaError as error:
            show.text(f"Avro is left out, there is no schema registry: {error.message}")
            return []
        client = stack.enter_context(SchemaRegistryClient({"url": registry.url}))
        encode: Any = AvroSerializer(client, json.dumps(data.TRADE_AVRO), conf=named)
        values = _values(count, lambda row: encode(row, context))
        ends = _write(show, kafka, AVRO_TOPIC, values)
        show.code(
            f'registry = kfast.SchemaRegistry("{registry.url}")',
            f'kfast.read_topic("{AVRO_TOPIC}", value_deserializer=kfast.Avro(registry=registry))',
        )
        schemas = stack.enter_context(kfast.SchemaRegistry(registry.url))
        table, _, seconds = _read(AVRO_TOPIC, config, kfast.Avro(registry=schemas))
        types = ", ".join(f"{name} {table.schema.field(name).type}" for name in data.TRADE_COLUMNS)
        show.text(f"{table.num_rows:,} rows with the columns of the registry's schema: {types}")
        decode: Any = AvroDeserializer(client, conf=named)
        return _compare(
            show, AVRO_TOPIC, config, ends, seconds, lambda value: decode(value, context)
        )


def _values(count: int, encode: Callable[[Mapping[str, Any]], bytes]) -> list[bytes]:
    """Return trades in a format; some thousand different ones in turn."""
    encoded = [encode(row) for row in data.trades(min(count, _DIFFERENT), random.Random(5))]
    return [encoded[number % len(encoded)] for number in range(count)]


def _write(show: Show, kafka: kfast.LocalKafka, topic: str, values: list[bytes]) -> Ends:
    """Create and fill a topic; return the offsets of its partitions."""
    kafka.create_topic(topic, _PARTITIONS)
    firsts = range(0, len(values), _BLOCK)
    blocks: Iterable[list[data.Record]] = (
        [
            (value, None, number % _PARTITIONS, data.START_MS + first + row, None)
            for row, value in enumerate(values[first : first + _BLOCK])
        ]
        for number, first in enumerate(firsts)
    )
    with show.progress(f"{topic}, {_PARTITIONS} partitions", len(values)) as report:
        data.produce(kafka.bootstrap("PLAINTEXT"), topic, blocks, report=report)
    sizes = [0] * _PARTITIONS
    for number, first in enumerate(firsts):
        sizes[number % _PARTITIONS] += min(_BLOCK, len(values) - first)
    return {kfast.TopicPartition(topic, number): (0, size) for number, size in enumerate(sizes)}


def _read(
    topic: str, config: Mapping[str, str], deserializer: object
) -> tuple[Any, kfast.RecordErrors, float]:
    """Read a topic with kfast; return the table, what could not be read, and the seconds."""
    began = time.perf_counter()
    records = kfast.read_topic(
        topic,
        config=config,
        value_deserializer=deserializer,
        on_deserialization_error="null",
    )
    table = records.to_arrow(flatten=True)
    return table, records.errors, time.perf_counter() - began


# --- without kfast --------------------------------------------------------------------------------


def _compare(
    show: Show, topic: str, config: Mapping[str, str], ends: Ends, seconds: float, read: Read
) -> list[list[Any]]:
    """Do the same with confluent-kafka; return the rows of the table that compares the two."""
    total = sum(end for _, end in ends.values())
    with show.progress(f"{topic} with confluent-kafka", total) as report:
        other = _read_without_kfast(config, ends, read, report)
    return [
        [topic, "kfast", f"{seconds:.2f}", f"{total / seconds:,.0f}", f"{other / seconds:.1f}x"],
        [topic, "confluent-kafka, pyarrow", f"{other:.2f}", f"{total / other:,.0f}", ""],
    ]


def _read_json() -> Read:
    """Return how a user reads a document, and finds out that it is not what it should be."""
    try:
        from orjson import loads
    except ImportError:
        from json import loads  # type: ignore[assignment]

    def read(value: bytes) -> Mapping[str, Any] | None:
        row: Mapping[str, Any] = loads(value)
        return row if type(row["qty"]) is int else None

    return read


def _read_without_kfast(
    config: Mapping[str, str], ends: Ends, read: Read, report: Callable[[int], None]
) -> float:
    """Make the table of messages; return the seconds."""
    import pyarrow as pa

    schema = pa.schema(kfast.Json(data.TRADE_COLUMNS).schema)
    was_enabled = gc.isenabled()
    gc.disable()
    total = sum(end for _, end in ends.values())
    began = time.perf_counter()
    batches = consume_messages(config, ends)
    try:
        tables = []
        done = 0
        for messages in batches:
            rows = [read(message.value()) for message in messages]
            tables.append(pa.Table.from_pylist([row for row in rows if row is not None], schema))
            done += len(messages)
            report(done)
            if done >= total:
                break
        pa.concat_tables(tables)
        return time.perf_counter() - began
    finally:
        batches.close()
        if was_enabled:
            gc.enable()
