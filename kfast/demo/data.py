"""Reproducible records for demos and benchmarks, and a fast producer for them.

*Sensor readings* are 32-byte packed structs (``SENSOR_DTYPE``) with the sensor's id as
key, as Kafka's ``IntegerSerializer`` writes it: ``Struct`` and ``Int32`` decode them into NumPy
arrays. *Shop events* are JSON texts of some 250 bytes with a text key and two headers each, as
compressible as such logs usually are. Their generators yield blocks, lists of a few thousand
records. *Trades* are rows of six columns, for formats with a schema. The producer is
confluent-kafka's, which kfast needs for nothing else.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np

from kfast.errors import KafkaError, MissingDependencyError

SENSOR_DTYPE: Final = np.dtype(
    [
        ("sensor_id", "<u4"),
        ("status", "<u2"),
        ("battery_mv", "<u2"),
        ("time_us", "<i8"),
        ("temperature", "<f4"),
        ("humidity", "<f4"),
        ("pressure", "<f8"),
    ]
)
"""One sensor reading, 32 bytes without padding."""

TRADE_COLUMNS: Final = {
    "id": "int64",
    "ts": "timestamp[ms, UTC]",
    "user": "string",
    "price": "float64",
    "qty": "int32",
    "side": "string",
}
"""The columns of trades, as `kfast.Json` takes them."""

TRADE_AVRO: Final = {
    "type": "record",
    "name": "Trade",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "user", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "qty", "type": "int"},
        {"name": "side", "type": "string"},
    ],
}
"""The same as a schema of Avro."""

START_MS: Final = 1_735_689_600_000
"""Timestamp of the first record: 2025-01-01T00:00:00Z."""

SENSORS: Final = 500
_BLOCK: Final = 5_000
_POOL: Final = 20_000

Headers = list[tuple[str, bytes]]
Report = Callable[[int], None]


Record = tuple[bytes, bytes | None, int, int, Headers | None]
"""Value, key, partition, timestamp in ms, headers: a plain tuple, as millions of them are made."""


def sensor_readings(
    count: int, partitions: int, *, dtype: np.dtype[Any] = SENSOR_DTYPE, seed: int = 1
) -> Iterator[list[Record]]:
    """Yield ``count`` sensor readings in blocks, in time order, each sensor in one partition.

    ``SENSOR_DTYPE.newbyteorder(">")`` is the big-endian layout.
    """
    generator = np.random.default_rng(seed)
    base = generator.normal(20.0, 8.0, SENSORS)
    keys = [sensor.to_bytes(4, "big") for sensor in range(SENSORS)]
    size = dtype.itemsize
    for first in range(0, count, _BLOCK):
        n = min(_BLOCK, count - first)
        index = np.arange(first, first + n)
        sensor = generator.integers(0, SENSORS, n)
        time_us = START_MS * 1000 + index * 30_000
        block = np.empty(n, dtype)
        block["sensor_id"] = sensor
        block["status"] = generator.choice(np.array([0, 0, 0, 0, 0, 0, 0, 1, 2]), n)
        block["battery_mv"] = 3000 + generator.integers(0, 1200, n)
        block["time_us"] = time_us
        block["temperature"] = np.round(base[sensor] + generator.normal(0, 0.5, n), 2)
        block["humidity"] = np.round(generator.uniform(20, 90, n), 1)
        block["pressure"] = np.round(generator.normal(1013.25, 5, n), 2)
        raw, numbers = block.tobytes(), sensor.tolist()
        yield list(
            zip(
                [raw[at : at + size] for at in range(0, len(raw), size)],
                [keys[number] for number in numbers],
                (sensor % partitions).tolist(),
                (time_us // 1000).tolist(),
                itertools.repeat(None),
                strict=False,
            )
        )


def shop_events(count: int, partitions: int, *, seed: int = 2) -> Iterator[list[Record]]:
    """Yield ``count`` JSON events with keys and headers in blocks."""
    chooser = random.Random(seed)
    bodies = [json.dumps(_event(chooser), separators=(",", ":"))[1:] for _ in range(_POOL)]
    keys = [f"user-{chooser.randrange(100_000):06d}".encode() for _ in range(_POOL)]
    headers: list[Headers] = [
        [
            ("source", chooser.choice((b"web", b"ios", b"android"))),
            ("trace-id", chooser.randbytes(16)),
        ]
        for _ in range(_POOL)
    ]
    for first in range(0, count, _BLOCK):
        block: list[Record] = []
        for number in range(first, min(first + _BLOCK, count)):
            at = number % _POOL
            time_ms = START_MS + number * 40
            value = f'{{"id":{number},"time_ms":{time_ms},{bodies[at]}'.encode()
            block.append((value, keys[at], at % partitions, time_ms, headers[at]))
        yield block


def trades(count: int, generator: random.Random) -> Iterator[dict[str, Any]]:
    """Yield trades; one has 97 bytes as JSON without spaces."""
    for row in range(count):
        yield {
            "id": generator.randrange(10**8, 10**9),
            "ts": START_MS + 31 * row,
            "user": f"user-{generator.randrange(100_000):08}",
            "price": round(generator.uniform(1000, 2000), 2),
            "qty": generator.randrange(100, 1000),
            "side": generator.choice(("buy", "sell")),
        }


_PRODUCTS: Final = ("lamp", "chair", "kettle", "bicycle", "notebook", "headphones", "backpack")
_ADJECTIVES: Final = ("small", "blue", "foldable", "wireless", "wooden", "light", "used")
_TYPES: Final = ("view", "view", "view", "search", "cart", "order")
_AGENTS: Final = (
    "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/133.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) Mobile/15E148",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/131.0.0.0",
)


def _event(chooser: random.Random) -> dict[str, object]:
    product = f"{chooser.choice(_ADJECTIVES)} {chooser.choice(_PRODUCTS)}"
    return {
        "type": chooser.choice(_TYPES),
        "session": f"{chooser.getrandbits(64):016x}",
        "country": chooser.choice(("DE", "FR", "US", "JP", "BR", "IN", "GB")),
        "product": {"sku": f"SKU-{chooser.randrange(10_000):05d}", "name": product},
        "price": round(chooser.uniform(1, 400), 2),
        "quantity": chooser.choice((1, 1, 1, 2, 3)),
        "agent": chooser.choice(_AGENTS),
    }


def produce(
    bootstrap_servers: str,
    topic: str,
    blocks: Iterable[list[Record]],
    *,
    codec: str = "none",
    report: Report | None = None,
) -> int:
    """Write blocks of records to an existing topic; return the number of acknowledged records.

    ``codec`` is ``compression.type``; ``report`` is called with the number of records queued so
    far.
    """
    try:
        from confluent_kafka import Producer  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingDependencyError(
            "writing records needs confluent-kafka", hint='pip install "kfast[demo]"'
        ) from None
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": codec,
            "batch.size": 128 << 10,
            "batch.num.messages": 100_000,
            "linger.ms": 10,
            "queue.buffering.max.messages": 200_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failures.append(str(error)),
            "log_level": 0,
        }
    )
    send, count = producer.produce, 0
    for block in blocks:
        at = 0
        while at < len(block):
            try:
                for value, key, partition, timestamp_ms, headers in block[at:]:
                    if headers is None:
                        send(topic, value, key, partition, timestamp=timestamp_ms)
                    else:
                        send(topic, value, key, partition, timestamp=timestamp_ms, headers=headers)
                    at += 1
            except BufferError:  # the queue is full: the records before this one are queued
                producer.poll(0.05)
        count += len(block)
        producer.poll(0)
        if report is not None:
            report(count)
        if failures:
            break
    if producer.flush(60) or failures:
        raise KafkaError(
            f"cannot write to {topic}", cause=failures[0] if failures else "no answer in 60 s"
        )
    return count
