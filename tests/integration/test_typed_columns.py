"""Typed columns of values that other programs wrote to a real broker."""

from __future__ import annotations

import struct
import uuid
from typing import Any, Final

import numpy as np
import pytest

import kfast
from kfast import (
    Float32,
    Float64,
    Int32,
    Int64,
    Struct,
    TopicPartition,
    Utf8,
)
from kfast.deserializers import Uuid
from kfast.errors import DeserializationError
from kfast.local.local_kafka import LocalKafka
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter, Message
from tests.integration.support import Reading, assigned

pytestmark = pytest.mark.integration

NUMBERS: Final = [0, 1, -1, 127, -128, 2**31 - 1, -(2**31), 12345]
IDS: Final = [uuid.UUID(int=(n * 7919) ** 9 % 2**128) for n in range(8)]
POINT: Final = np.dtype([("sensor", ">i4"), ("celsius", ">f8"), ("flag", "u1")])

CASES: Final[dict[str, tuple[Any, list[bytes], list[Any]]]] = {
    "int32": (Int32(), [struct.pack(">i", n) for n in NUMBERS], NUMBERS),
    "int64": (Int64(), [struct.pack(">q", n << 31) for n in NUMBERS], [n << 31 for n in NUMBERS]),
    "float32": (Float32(), [struct.pack(">f", n / 4) for n in range(8)], [n / 4 for n in range(8)]),
    "float64": (Float64(), [struct.pack(">d", n / 3) for n in NUMBERS], [n / 3 for n in NUMBERS]),
    "utf8": (Utf8(), ["ä€𝄞"[:n].encode() for n in range(8)], ["ä€𝄞"[:n] for n in range(8)]),
    "uuid text": (Uuid(), [str(one).encode() for one in IDS], IDS),
    "uuid bytes": (Uuid(), [one.bytes for one in IDS], IDS),
    "struct": (
        Struct(POINT),
        [struct.pack(">idB", n, n / 8, n % 2) for n in NUMBERS],
        [(n, n / 8, n % 2) for n in NUMBERS],
    ),
    "callable": (lambda raw: raw.hex(), [b"\x01\x02"] * 8, ["0102"] * 8),
}


@pytest.mark.parametrize("case", CASES)
def test_values_of_other_programs(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, case: str
) -> None:
    """D-02, D-13: columns hold what ``struct.pack`` wrote, plain or compressed, nulls masked."""
    topic = new_topic()
    deserializer, raw, expected = CASES[case]
    for codec in ("none", "zstd"):
        writer.write(topic, raw, codec=codec)
    with_nulls = [*raw[:3], None, *raw[3:], None]
    writer.write(topic, with_nulls)
    servers = kafka.bootstrap_servers
    full = 2 * len(raw)
    tp = TopicPartition(topic, 0)
    batches = kfast.read_topic(
        topic, end={0: full}, value_deserializer=deserializer, bootstrap_servers=servers
    )
    values = batches[tp].values
    assert _plain(values) == expected * 2
    batch = kfast.read_topic(
        topic, start={0: full}, value_deserializer=deserializer, bootstrap_servers=servers
    )[tp]
    read = [record.value for record in batch]
    read = [value.item() if isinstance(value, np.void) else value for value in read]
    assert read == [*expected[:3], None, *expected[3:], None]


def _plain(values: Any) -> list[Any]:
    listed: list[Any] = values.tolist() if isinstance(values, np.ndarray) else values.to_list()
    return listed


@pytest.fixture
def flawed(new_topic: TopicFactory, writer: KafkaWriter) -> TopicPartition:
    """A partition of int32 values, of which 30 and 31 are three bytes long."""
    topic = new_topic()
    values = [struct.pack(">i", n) if n not in (30, 31) else b"bad" for n in range(100)]
    writer.write(topic, [Message(v, b"k%d" % n) for n, v in enumerate(values)], batch_records=8)
    return TopicPartition(topic, 0)


def test_a_malformed_value_raises(kafka: LocalKafka, flawed: TopicPartition) -> None:
    """E-08, F-08: what is before it comes first, it stays until a seek, which goes past it."""
    with assigned(kafka.bootstrap_servers, [flawed], value_deserializer=Int32()) as consumer:
        reading = Reading(consumer)
        for _ in range(2):
            with pytest.raises(DeserializationError) as raised:
                reading.until({flawed: 100})
            error = raised.value
            assert (error.topic, error.partition, error.offset) == (*flawed, 30)
            assert (error.column, error.key_bytes, error.value_bytes) == ("value", b"k30", b"bad")
            assert consumer.position(flawed) == 30
            assert reading.offsets(flawed) == list(range(30))
        consumer.seek(flawed, 32)
        reading.until({flawed: 100})
        assert reading.values(flawed) == [n for n in range(100) if n not in (30, 31)]


def test_a_malformed_value_is_nulled_or_skipped(kafka: LocalKafka, flawed: TopicPartition) -> None:
    """E-08, E-07: on request it becomes null, or its row is left out."""
    read = {
        mode: kfast.read_topic(
            flawed,
            value_deserializer=Int32(),
            on_deserialization_error=mode,
            bootstrap_servers=kafka.bootstrap_servers,
        )[flawed]
        for mode in ("null", "skip")
    }
    assert read["null"].offsets.tolist() == list(range(100))
    assert _plain(read["null"].values) == [None if n in (30, 31) else n for n in range(100)]
    assert read["skip"].offsets.tolist() == [n for n in range(100) if n not in (30, 31)]
    assert _plain(read["skip"].values) == read["skip"].offsets.tolist()
