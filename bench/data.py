"""The records that benchmarks read: the same in every run, and generated fast.

*text* values are JSON-like and of an exact length, with 8-byte keys, no headers, timestamps 1 ms
apart. Partitions alternate in blocks of 1000 records, so that a producer fills its batches.
*sensor* values and *events* are those of the demo. A topic is written once per broker, with
batches of 128 KiB.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kfast.demo.data import START_MS, Record, produce, sensor_readings, shop_events
from kfast.local.local_kafka import LocalKafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_POOL = 20_000
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
    """``text``, ``sensor`` or ``events``."""
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
        return text_records(self.records, self.value_bytes, self.partitions)


def write_topic(kafka: LocalKafka, spec: TopicSpec) -> None:
    """Create and fill a topic."""
    kafka.create_topic(spec.name, spec.partitions)
    produce(kafka.bootstrap_servers, spec.name, spec.blocks(), codec=spec.codec)


def text_values(size: int, count: int = _POOL, seed: int = 3) -> list[bytes]:
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


def text_records(count: int, size: int, partitions: int) -> Iterator[list[Record]]:
    """Yield blocks of records with text values."""
    values = text_values(size)
    for first, partition in zip(
        range(0, count, _TURN), itertools.cycle(range(partitions)), strict=False
    ):
        numbers = range(first, min(first + _TURN, count))
        yield [
            (values[n % _POOL], n.to_bytes(8, "big"), partition, START_MS + n, None)
            for n in numbers
        ]


def parse_list(text: str, allowed: Iterable[str]) -> list[str]:
    """Split a comma-separated option; raise ValueError for an item that is not allowed."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    known = list(allowed)
    if unknown := [word for word in words if word not in known]:
        raise ValueError(f"{', '.join(unknown)}: not among {', '.join(known)}")
    return words
