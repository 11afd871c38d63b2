"""Byte limits and memory, against a real broker."""

from __future__ import annotations

import json
import time
from typing import Final

import pytest

from kfast import TopicPartition
from kfast.errors import RecordTooLargeError
from kfast.local.local_kafka import LocalKafka
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter, Message
from tests.integration.support import Reading, assigned, run_program, tps

pytestmark = pytest.mark.integration

MIB: Final = 1 << 20


def test_the_broker_waits_for_the_minimum(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter
) -> None:
    """B-01, B-08: too little data comes after fetch_max_wait_ms, enough of it at once."""
    topic = new_topic()
    tp = TopicPartition(topic, 0)
    writer.write(topic, [b"little"])
    servers = kafka.bootstrap_servers
    with assigned(servers, [tp], fetch_min_bytes=MIB, fetch_max_wait_ms=2_000) as consumer:
        assert consumer.position(tp) == 0
        began = time.monotonic()
        Reading(consumer).until_count(1)
        assert time.monotonic() - began > 1.0
    with assigned(servers, [tp], fetch_min_bytes=100_000, fetch_max_wait_ms=25_000) as consumer:
        reading = Reading(consumer)
        assert reading.poll(500) == 0
        began = time.monotonic()
        writer.write(topic, [bytes(1000)] * 1_500)
        reading.until_count(100)
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("partition_bytes", "total_bytes"), [(1, 1), (0, 0), (5_000, 12_000), (MIB, 3_000)]
)
def test_small_limits(
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    partition_bytes: int,
    total_bytes: int,
) -> None:
    """B-02, B-03, F-09: however small the limits, every batch gets through, of all partitions."""
    topic = new_topic(3)
    writer.write(topic, [Message(bytes(500), partition=n % 3) for n in range(180)], batch_records=4)
    with assigned(
        kafka.bootstrap_servers,
        tps(topic, 3),
        max_partition_fetch_bytes=partition_bytes,
        fetch_max_bytes=total_bytes,
    ) as consumer:
        reading = Reading(consumer).until(dict.fromkeys(tps(topic, 3), 60))
    for tp in tps(topic, 3):
        assert reading.offsets(tp) == list(range(60))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_record_larger_than_every_limit(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, codec: str
) -> None:
    """B-03, B-05: it is delivered whole, and what is before and behind it too."""
    topic = new_topic(max_message_bytes=10 * MIB)
    large = bytes(range(256)) * (5 * MIB // 256)
    for values in ([b"before"] * 10, [large], [b"behind"] * 10):
        writer.write(topic, values, codec=codec, message_max_bytes=10 * MIB)
    tp = TopicPartition(topic, 0)
    with assigned(
        kafka.bootstrap_servers,
        [tp],
        max_partition_fetch_bytes=10_000,
        fetch_max_bytes=20_000,
        buffer_memory_bytes=100_000,
    ) as consumer:
        reading = Reading(consumer).until({tp: 21})
    assert reading.values(tp) == [b"before"] * 10 + [large] + [b"behind"] * 10


def test_a_record_larger_than_what_is_received(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter
) -> None:
    """B-04, F-08: it is an error that names the size; the position stays, a seek goes past it."""
    topic = new_topic(max_message_bytes=10 * MIB)
    for values in ([b"before"] * 10, [bytes(5 * MIB)], [b"behind"] * 10):
        writer.write(topic, values, message_max_bytes=10 * MIB)
    tp = TopicPartition(topic, 0)
    with assigned(
        kafka.bootstrap_servers,
        [tp],
        max_partition_fetch_bytes=10_000,
        fetch_max_bytes=20_000,
        receive_message_max_bytes=2 * MIB,
    ) as consumer:
        reading = Reading(consumer)

        def until_refused() -> RecordTooLargeError:
            with pytest.raises(RecordTooLargeError) as raised:
                reading.until({tp: 21}, 20)
            return raised.value

        error = until_refused()
        assert consumer.position(tp) == 10 == reading.count
        assert error.size_needed is not None
        assert error.size_needed > 5 * MIB
        assert "receive_message_max_bytes" in str(error)
        until_refused()
        assert consumer.position(tp) == 10
        consumer.seek(tp, 11)
        reading.until({tp: 21})
        assert reading.values(tp) == [b"before"] * 10 + [b"behind"] * 10


SLOW_READER = """
    import json, resource, sys, threading, time
    import kfast

    servers, topic, cap, end = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    typed = kfast.Json(json.loads(sys.argv[5])) if sys.argv[5:] else None

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    tp = kfast.TopicPartition(topic, 0)
    consumer = kfast.KafkaConsumer(
        bootstrap_servers=servers, buffer_memory_bytes=cap, value_deserializer=typed
    )
    consumer.assign([tp])
    consumer.seek(tp, 0)
    before = peak()
    batch = consumer.poll(10_000)  # prefetching goes on while this is worked at
    deadline, seen = time.monotonic() + 1.5, peak()
    while time.monotonic() < deadline:
        threading.Event().wait(0.05)
    idle = peak()
    count, nbytes = batch.count(), batch.nbytes
    while consumer.position(tp) < end:
        batch = consumer.poll(10_000)
        count, nbytes = count + batch.count(), nbytes + batch.nbytes
    print(json.dumps([before, idle, peak(), count, nbytes]))
    consumer.close()
"""


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_memory_of_a_slow_reader(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, codec: str
) -> None:
    """B-05, B-06, F-25: the cap holds while the reader dozes, and while it reads 200 MB."""
    topic = new_topic()
    record = bytes(range(250)) * 40
    count = 20_000
    writer.write(topic, [record] * count, codec=codec, batch_num_messages=50)
    cap = 16 * MIB
    output, _ = run_program(SLOW_READER, kafka.bootstrap_servers, topic, cap, count)
    before, idle, peak, read, nbytes = json.loads(output)
    assert read == count
    assert nbytes >= count * len(record)
    # What was handed out is not in the account; it is at most once more the cap.
    assert idle - before < 3 * cap
    assert peak - before < 4 * cap


def test_memory_of_a_slow_reader_of_typed_columns(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter
) -> None:
    """TC-182: columns of four times the size of their documents, which were 100 times smaller."""
    topic = new_topic()
    count, items, cap = 15_000, 4_000, 64 * MIB
    record = b'{"numbers":[' + b"7," * (items - 1) + b"7]}"
    writer.write(topic, [record] * count, codec="lz4", batch_num_messages=100)
    schema = json.dumps({"numbers": ["int64"]})
    output, _ = run_program(SLOW_READER, kafka.bootstrap_servers, topic, cap, count, schema)
    before, idle, peak, read, nbytes = json.loads(output)
    assert read == count
    assert nbytes >= count * len(record)
    # What was handed out is not in the account: one batch, and another one while it is replaced.
    assert idle - before < 2 * cap
    assert peak - before < 3 * cap
