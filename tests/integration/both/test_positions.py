"""Seeking, pausing, positions and offset look-ups."""

from __future__ import annotations

import logging
import time
from typing import Final

import pytest

from kfast import KafkaConsumer, TopicPartition
from kfast.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from tests.integration.both.brokers import Broker, Writer
from tests.integration.both.conftest import TopicFactory
from tests.integration.kafka_writer import Message
from tests.integration.support import (
    KafkaPythonConsumer,
    KafkaPythonPartition,
    Reading,
    assigned,
    consuming,
    tps,
    until,
)

pytestmark = pytest.mark.integration

COUNT: Final = 1_000
START_MS: Final = 1_700_000_000_000


@pytest.fixture
def topic(new_topic: TopicFactory, writer: Writer) -> str:
    """Two partitions of ``COUNT`` records, one a second, and an empty one."""
    name = new_topic(3)
    writer.write(
        name,
        [
            Message(f"{number}".encode(), timestamp_ms=START_MS + 1_000 * number, partition=p)
            for number in range(COUNT)
            for p in (0, 1)
        ],
        batch_records=100,
    )
    return name


def next_offset(consumer: KafkaConsumer, tp: TopicPartition) -> int:
    """Return the offset of the record delivered next."""
    return until(lambda: [int(b.offsets[0]) for b in [consumer.poll(100).get(tp)] if b], "data")[0]


def test_seek(kafka: Broker, topic: str) -> None:
    """P-04, P-01, F-04, P-06: the next record is the one sought, on and inside batches."""
    first, second, empty = tps(topic, 3)
    with assigned(kafka.bootstrap_servers, [first, second, empty]) as consumer:
        reading = Reading(consumer).until({first: COUNT, second: COUNT, empty: 0})
        assert reading.count == 2 * COUNT
        for offset in (0, 1, 99, 100, 555, COUNT - 1, 3):
            consumer.seek(first, offset)
            assert consumer.position(first) == offset
            assert consumer.position(second) == COUNT
            assert next_offset(consumer, first) == offset
        consumer.seek(first, 7)
        consumer.seek(first, 300)  # while the fetch for the first one is on its way
        reading = Reading(consumer).until({first: COUNT})
        assert reading.offsets(first) == list(range(300, COUNT))
        assert not reading.offsets(second)
        with pytest.raises(IllegalStateError, match="not assigned"):
            consumer.seek(TopicPartition(topic, 7), 0)
        with pytest.raises(IllegalStateError, match="-1"):
            consumer.seek(first, -1)


def test_seek_to_the_ends(kafka: Broker, topic: str, writer: Writer) -> None:
    """P-05: both ends, of all or of some partitions, lazily, and at once through position()."""
    first, second, empty = tps(topic, 3)
    with assigned(kafka.bootstrap_servers, [first, second, empty]) as consumer:
        consumer.seek_to_end()
        assert [consumer.position(tp) for tp in (first, second, empty)] == [COUNT, COUNT, 0]
        consumer.seek_to_beginning(second)
        assert [consumer.position(tp) for tp in (first, second)] == [COUNT, 0]
        consumer.seek_to_end(second)
        assert next_offset_after_write(consumer, second, writer) == COUNT
        consumer.seek_to_beginning()
        reading = Reading(consumer).until({first: COUNT, second: COUNT + 1})
        assert reading.offsets(first) == list(range(COUNT))
        assert reading.offsets(second) == list(range(COUNT + 1))


def next_offset_after_write(consumer: KafkaConsumer, tp: TopicPartition, writer: Writer) -> int:
    assert consumer.position(tp) == COUNT
    writer.write(tp.topic, [b"new"], partition=tp.partition)
    return next_offset(consumer, tp)


def test_pause_and_resume(kafka: Broker, topic: str) -> None:
    """P-11, F-21: a paused partition is silent, keeps its place, and goes on where it was."""
    first, second, _ = tps(topic, 3)
    with assigned(kafka.bootstrap_servers, [first, second], max_poll_records=50) as consumer:
        reading = Reading(consumer).until_count(50)
        consumer.pause(first)
        consumer.pause(first)
        assert consumer.paused() == {first}
        place = consumer.position(first)
        reading.until({second: COUNT})
        assert consumer.position(first) == place
        consumer.pause(second)
        assert reading.poll(300) == 0
        consumer.resume(first, second)
        assert consumer.paused() == set()
        reading.until({first: COUNT})
        for tp in (first, second):
            assert reading.offsets(tp) == list(range(COUNT))


def test_look_ups(kafka: Broker, topic: str) -> None:
    """P-07, P-08, P-12: ends, times, lag and topics, as kafka-python sees them."""
    first, second, empty = partitions = tps(topic, 3)
    times = {first: START_MS, second: START_MS + 500_500, empty: START_MS}
    late = {first: START_MS + 1_000 * COUNT}
    theirs = KafkaPythonConsumer(bootstrap_servers=kafka.bootstrap_servers.split(","))
    try:
        with consuming(kafka.bootstrap_servers) as consumer:
            assert consumer.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
            assert consumer.end_offsets(partitions) == {first: COUNT, second: COUNT, empty: 0}
            assert consumer.end_offsets(partitions) == theirs.end_offsets(
                [KafkaPythonPartition(*tp) for tp in partitions]
            )
            found = consumer.offsets_for_times(times)
            places = {tp: hit and hit[:2] for tp, hit in found.items()}
            assert places == {
                first: (0, START_MS),
                second: (501, START_MS + 501_000),
                empty: None,
            }
            assert consumer.offsets_for_times(late) == {first: None}
            others = theirs.offsets_for_times(
                {KafkaPythonPartition(*tp): ms for tp, ms in times.items()}
            )
            for tp, hit in found.items():
                other = others[KafkaPythonPartition(*tp)]
                assert (hit and hit[:2]) == (other and other[:2])
            assert topic in consumer.topics()
            assert not {name for name in consumer.topics() if name.startswith("__")}
            assert consumer.partitions_for_topic(topic) == {0, 1, 2}
            assert consumer.partitions_for_topic("no-such-topic") is None
            assert consumer.assignment() == set()
            consumer.assign([first, empty])
            assert consumer.current_lag(first) is None
            assert consumer.highwater(first) is None
            consumer.seek(first, 10)
            assert consumer.poll(5_000, max_records=1).count() == 1
            assert consumer.current_lag(first) == COUNT - 11
            assert consumer.highwater(first) == COUNT
            with pytest.raises(IllegalStateError):
                consumer.position(second)
    finally:
        theirs.close()


def test_look_ups_of_what_is_not_there(kafka: Broker, topic: str) -> None:
    """P-07, P-06, E-06: an unknown topic or partition times out, by name, and never hangs."""
    unknown = TopicPartition("no-such-topic", 0)
    beyond = TopicPartition(topic, 99)
    with consuming(kafka.bootstrap_servers) as consumer:
        for tp in (unknown, beyond):
            for look_up in (
                lambda tp=tp: consumer.offsets_for_times({tp: 0}, timeout_ms=300),
                lambda tp=tp: consumer.end_offsets([tp], timeout_ms=300),
                lambda tp=tp: consumer.beginning_offsets([tp], timeout_ms=300),
            ):
                with pytest.raises(KafkaTimeoutError, match=tp.topic):
                    look_up()
            consumer.assign([tp])
            with pytest.raises(KafkaTimeoutError, match=tp.topic):
                consumer.position(tp, timeout_ms=300)
        assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): COUNT}


def test_max_poll_records(kafka: Broker, topic: str) -> None:
    """F-12: one poll gives at most so many rows over all partitions, and nothing gets lost."""
    first, second, _ = tps(topic, 3)
    with assigned(kafka.bootstrap_servers, [first, second], max_poll_records=33) as consumer:
        reading = Reading(consumer)
        counts = []
        while not reading.has_reached({first: COUNT, second: COUNT}):
            counts.append(reading.poll(1_000))
        assert max(counts) == 33
        assert sum(counts) == 2 * COUNT
        for tp in (first, second):
            assert reading.offsets(tp) == list(range(COUNT))
        consumer.seek_to_beginning()
        assert until(lambda: consumer.poll(100, max_records=7).count(), "records") == 7


def test_iteration(kafka: Broker, topic: str) -> None:
    """L-10: batches and records are iterated over until consumer_timeout_ms; poll(0) gets on."""
    first, second, _ = tps(topic, 3)
    with consuming(kafka.bootstrap_servers, topic, consumer_timeout_ms=1_500) as consumer:
        sizes = [len(batch) for batch in consumer.batches()]
        assert sum(sizes) == 2 * COUNT
        assert min(sizes) > 0
        consumer.seek_to_beginning(first)
        records = list(consumer)
        assert [record.offset for record in records] == list(range(COUNT))
        assert records[5].value == b"5"
        assert records[5].timestamp == START_MS + 5_000
        consumer.seek(second, COUNT - 3)
        assert [record.offset for record in consumer] == [COUNT - 3, COUNT - 2, COUNT - 1]
        consumer.seek(first, 0)
        reading = Reading(consumer)
        until(lambda: [reading.poll(0), reading.count == COUNT][1], "poll(0) to deliver it all")
        assert list(consumer.batches(timeout_ms=0)) == []


# --- where a read starts --------------------------------------------------------------------------


def test_reset_policies(kafka: Broker, new_topic: TopicFactory, writer: Writer) -> None:
    """P-02: earliest, latest, none and by_duration."""
    name = new_topic()
    tp = TopicPartition(name, 0)
    servers = kafka.bootstrap_servers
    now = int(time.time() * 1000)
    minute = 60_000
    ages = [180, 120, 90, 45, 20, 5]
    writer.write(name, [Message(b"", timestamp_ms=now - age * minute) for age in ages])
    expected = {
        "earliest": 0,
        "latest": 6,
        "by_duration:PT1H": 3,
        "by_duration:PT2H30M": 1,
        "by_duration:P10D": 0,
        "by_duration:PT1M": 6,
    }
    for policy, offset in expected.items():
        with assigned(servers, [tp], auto_offset_reset=policy) as consumer:
            assert consumer.position(tp) == offset, policy
    with assigned(servers, [tp], auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetForPartitionError) as raised:
            until(lambda: consumer.poll(200), "the error")
        assert (raised.value.topic, raised.value.partition) == tp
        consumer.seek(tp, 4)
        assert next_offset(consumer, tp) == 4


@pytest.mark.parametrize(
    ("policy", "expected"), [("earliest", 600), ("latest", COUNT), ("by_duration:P9999D", 600)]
)
def test_retention_overtakes(
    kafka: Broker, topic: str, policy: str, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    """P-10, O-02: an offset that is gone leads to the policy, with a warning with both offsets."""
    tp = TopicPartition(topic, 0)
    with assigned(kafka.bootstrap_servers, [tp], auto_offset_reset=policy) as consumer:
        consumer.pause(tp)
        consumer.seek(tp, 10)
        kafka.delete_records(tp, 600)
        with caplog.at_level(logging.WARNING, "kfast"):
            consumer.resume(tp)
            reading = Reading(consumer)
            until(lambda: [reading.poll(50), consumer.position(tp) >= expected][1], "the reset")
        assert consumer.beginning_offsets([tp]) == {tp: 600}
        reading.until({tp: COUNT})
        assert reading.offsets(tp) == list(range(expected, COUNT))
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert topic in warning
    assert "10" in warning
    assert str(expected) in warning


def test_retention_overtakes_without_policy(kafka: Broker, topic: str, writer: Writer) -> None:
    """P-10, P-17, F-26: OffsetOutOfRange names the place, stays until a seek, harms nobody else."""
    first, second, _ = tps(topic, 3)
    with assigned(kafka.bootstrap_servers, [first, second], auto_offset_reset="none") as consumer:
        consumer.pause(first)
        consumer.seek(first, 10)
        consumer.seek(second, 0)
        kafka.delete_records(first, 600)
        consumer.resume(first)
        errors: list[OffsetOutOfRangeError] = []
        reading = Reading(consumer)

        def poll() -> bool:
            try:
                reading.poll(100)
            except OffsetOutOfRangeError as error:
                errors.append(error)
            return len(errors) >= 2 and reading.has_reached({second: COUNT})

        until(poll, "two errors, and the other partition")
        assert {(e.topic, e.partition, e.offset) for e in errors} == {(*first, 10)}
        assert reading.offsets(second) == list(range(COUNT))
        assert consumer.position(first) == 10
        consumer.seek_to_beginning(first)
        assert consumer.position(first) == 600
        assert reading.until({first: COUNT}).offsets(first) == list(range(600, COUNT))
