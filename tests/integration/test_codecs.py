"""What a real broker stores, in every codec, as kfast and two other clients read it."""

from __future__ import annotations

import random
import time
from typing import Final

import pytest

from kfast import TopicPartition
from kfast.local.local_kafka import LocalKafka
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import CODECS, KafkaWriter, Message
from tests.integration.support import Row, confluent_rows, kafka_python_rows, kfast_rows

pytestmark = pytest.mark.integration

START_MS: Final = 1_700_000_000_000


def messages() -> list[Message]:
    """Return records with everything that may be null, empty, repeated, large or out of order."""
    rng = random.Random(7)
    special = [
        Message(b"value", b"key", [("h", b"1")]),
        Message(b"value", None),
        Message(b"value", b""),
        Message(None, b"tombstone"),
        Message(b"", b"empty value"),
        Message(None, None),
        Message(b"", b""),
        Message(None, b"tombstone", [("why", b"deleted")]),
        Message(b"v", b"k", []),
        Message(b"v", b"k", [("same", b"1"), ("same", b"2"), ("other", b"3"), ("same", b"1")]),
        Message(b"v", b"k", [("null", None), ("empty", b""), ("", b"no name")]),
        Message(b"v", b"k", [("größe", "ü".encode()), ("many", bytes(1000))]),
        Message(bytes(range(256)) * 400, b"compressible"),
        Message(rng.randbytes(100_000), b"incompressible"),
    ]
    usual = [
        Message(
            rng.randbytes(rng.randrange(200)),
            f"key-{number % 50}".encode(),
            [("number", str(number).encode())] if number % 3 else None,
        )
        for number in range(1_000)
    ]
    all_of_them = special + usual
    return [
        # Times go forth and back, also within a batch.
        Message(message.value, message.key, message.headers, START_MS + 1_000 * i - 7_919 * (i % 5))
        for i, message in enumerate(all_of_them)
    ]


def expected(written: list[Message], first_offset: int = 0) -> list[Row]:
    return [
        (
            first_offset + number,
            message.timestamp_ms or 0,
            0,
            message.key,
            message.value,
            list(message.headers or []),
        )
        for number, message in enumerate(written)
    ]


@pytest.mark.parametrize("batch_records", [1, 100, 10_000])
@pytest.mark.parametrize("codec", CODECS)
def test_three_clients_read_the_same(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, codec: str, batch_records: int
) -> None:
    """D-02, D-12, D-13, D-24: all codecs, nulls, empties, headers, times, in three clients."""
    topic = new_topic()
    written = messages()[: 100 if batch_records == 1 else None]
    writer.write(topic, written, codec=codec, batch_records=batch_records)
    tp = TopicPartition(topic, 0)
    servers = kafka.bootstrap_servers
    rows = kfast_rows(servers, tp)
    assert rows == expected(written)
    assert rows == confluent_rows(servers, tp)
    if codec != "snappy":  # kafka-python would need one more package
        assert rows == kafka_python_rows(servers, tp)


def test_one_log_with_every_codec(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter
) -> None:
    """D-13, F-05: batches of all codecs in one response, in several orders and sizes."""
    topic = new_topic()
    written: list[Message] = []
    for turn, codec in enumerate((*CODECS, *reversed(CODECS))):
        part = messages()[turn : 120 - turn]
        writer.write(topic, part, codec=codec, batch_records=1 + 20 * (turn % 3))
        written += part
    servers = kafka.bootstrap_servers
    rows = kfast_rows(servers, TopicPartition(topic, 0))
    assert rows == expected(written)
    assert rows == confluent_rows(servers, TopicPartition(topic, 0))


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_the_brokers_time(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, codec: str
) -> None:
    """D-12, D-24: with LogAppendTime the broker's time replaces the producer's, for all records."""
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    written = messages()
    writer.write(topic, written, codec=codec, batch_records=200)
    after = int(time.time() * 1000)
    tp = TopicPartition(topic, 0)
    rows = kfast_rows(kafka.bootstrap_servers, tp)
    assert [row[3:] for row in rows] == [row[3:] for row in expected(written)]
    assert {row[2] for row in rows} == {1}
    assert all(before - 1000 <= row[1] <= after + 1000 for row in rows)
    assert rows == kafka_python_rows(kafka.bootstrap_servers, tp)
    assert rows == confluent_rows(kafka.bootstrap_servers, tp)


def test_checksums_may_be_left_out(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter
) -> None:
    """D-03: without check_crcs the records are the same; also without decode threads."""
    topic = new_topic()
    written = messages()
    writer.write(topic, written, codec="zstd")
    tp = TopicPartition(topic, 0)
    for configs in ({"check_crcs": False}, {"decode_threads": 0}, {"decode_threads": 3}):
        assert kfast_rows(kafka.bootstrap_servers, tp, **configs) == expected(written)
