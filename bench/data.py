"""The records that benchmarks read: the same in every run, and generated fast.

*text* values are JSON-like and of an exact length, *trades* are those of the demo in JSON, and
*trades-avro* in Avro with a schema id in front: 20 000 different values in turn, with 8-byte keys,
no headers, timestamps 1 ms apart. Partitions alternate in blocks of 1000 records, so that a
producer fills its batches. *sensor* values and *events* are those of the demo. A topic is written
once per broker, with batches of 128 KiB.
"""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kfast.demo.data import (
    START_MS,
    TRADE_AVRO,
    Record,
    produce,
    sensor_readings,
    shop_events,
    trades,
)
from kfast.local.local_kafka import LocalKafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_POOL = 20_000
_SEED = 3
_TURN = 1_000
_WORDS = (
    *("user", "order", "page", "cart", "item", "price", "state", "open", "closed", "pending"),
    *("shipped", "country", "city", "street", "phone", "mobile", "desktop", "campaign", "referrer"),
    *("session", "latency", "status", "warning", "error", "retry", "checkout", "payment", "refund"),
)


@dataclass(slots=True, frozen=True)
class TopicSpec:
    """A topic to measure on."""

    kind: str = "text"
    """``text``, ``trades``, ``trades-avro``, ``sensor`` or ``events``."""
    value_bytes: int = 100
    """Length of text values; the other kinds have their own."""
    codec: str = "none"
    records: int = 1_000_000
    partitions: int = 6

    @property
    def name(self) -> str:
        """Name of the topic, unique for these values."""
        size = f"-{self.value_bytes}" if self.kind == "text" else ""
        return f"bench-{self.kind}{size}-{self.codec}-{self.records}-{self.partitions}"

    def blocks(self) -> Iterator[list[Record]]:
        """Yield the records in blocks."""
        if self.kind == "sensor":
            return sensor_readings(self.records, self.partitions)
        if self.kind == "events":
            return shop_events(self.records, self.partitions)
        return pooled_records(self._pool(), self.records, self.partitions)

    def _pool(self) -> list[bytes]:
        """Return the values to take in turn."""
        if self.kind == "text":
            return text_values(self.value_bytes)
        rows = trades(_POOL, random.Random(_SEED))
        return avro_values(TRADE_AVRO, rows) if self.kind == "trades-avro" else json_values(rows)


def write_topic(kafka: LocalKafka, spec: TopicSpec) -> None:
    """Create and fill a topic."""
    kafka.create_topic(spec.name, spec.partitions)
    produce(kafka.bootstrap_servers, spec.name, spec.blocks(), codec=spec.codec)


def text_values(size: int, count: int = _POOL, seed: int = _SEED) -> list[bytes]:
    """Return different JSON-like texts of exactly ``size`` bytes."""
    chooser = random.Random(seed)
    return [_text(chooser, size) for _ in range(count)]


def _text(chooser: random.Random, size: int) -> bytes:
    if size < 8:
        return bytes(chooser.choices(b"0123456789", k=size))
    parts: list[str] = []
    length = 0
    while length < size:
        key = chooser.choice(_WORDS)
        draw = chooser.random()
        if draw < 0.35:
            value = f'"{chooser.choice(_WORDS)}"'
        elif draw < 0.7:
            value = str(chooser.randrange(100_000))
        elif draw < 0.85:
            value = f"{chooser.uniform(0, 1000):.2f}"
        else:
            value = f'"{chooser.getrandbits(32):08x}"'
        parts.append(f'"{key}":{value}')
        length += len(parts[-1]) + 1
    return ("{" + ",".join(parts)).encode()[: size - 1] + b"}"


def pooled_records(values: list[bytes], count: int, partitions: int) -> Iterator[list[Record]]:
    """Yield blocks of records with values of a pool in turn."""
    for first, partition in zip(
        range(0, count, _TURN), itertools.cycle(range(partitions)), strict=False
    ):
        numbers = range(first, min(first + _TURN, count))
        yield [
            (values[n % len(values)], n.to_bytes(8, "big"), partition, START_MS + n, None)
            for n in numbers
        ]


def json_values(rows: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """Return rows as JSON without spaces."""
    import orjson  # noqa: PLC0415 - not in the processes of contestants

    return [orjson.dumps(row) for row in rows]


def avro_values(
    schema: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], number: int = 1
) -> list[bytes]:
    """Return rows as Avro in Confluent's framing, with the id of their schema."""
    import fastavro  # noqa: PLC0415 - not in the processes of contestants

    parsed = fastavro.parse_schema(schema)
    prefix = b"\0" + number.to_bytes(4, "big")
    made = []
    for row in rows:
        stream = io.BytesIO(prefix)
        stream.seek(len(prefix))
        fastavro.schemaless_writer(stream, parsed, row)
        made.append(stream.getvalue())
    return made


def parse_list(text: str, allowed: Iterable[str]) -> list[str]:
    """Split a comma-separated option; raise ValueError for an item that is not allowed."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    known = list(allowed)
    if unknown := [word for word in words if word not in known]:
        raise ValueError(f"{', '.join(unknown)}: not among {', '.join(known)}")
    return words
