"""Ranges read on real Kafka without Spark: ends, holes, losses, cached consumers, leaks."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Generator, Iterator

import pytest

from kfast import TopicPartition
from kfast.errors import KafkaTimeoutError, OffsetOutOfRangeError
from kfast.local.local_kafka import LocalKafka
from kfast.spark.source.consumer_cache import MAX_IDLE, ConsumerCache
from kfast.spark.source.driver import OffsetLookup
from kfast.spark.source.options import parse_options
from kfast.spark.source.range_reader import RangeReader, ReadSettings
from kfast.table.offset_ranges import OffsetRange
from kfast.testing.server import BrokerServer
from tests.end_to_end.ingests import Truth, fetched_offsets
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import delete_records
from tests.spark.conftest import TopicFactory


@pytest.fixture
def cache() -> Iterator[ConsumerCache]:
    """A cache of its own, closed at the end."""
    made = ConsumerCache()
    yield made
    made.close()


class Task:
    """Reads ranges as tasks of one worker would."""

    def __init__(self, kafka: LocalKafka, cache: ConsumerCache, **more: str) -> None:
        settings = {name.replace("_", "."): value for name, value in more.items()}
        self.kafka = {"bootstrap.servers": kafka.bootstrap_servers, **settings}
        self.cache = cache

    def reader(
        self, fail: bool = True, timeout_ms: int = 10_000, is_retry: bool = False
    ) -> RangeReader:
        """Return a reader."""
        settings = ReadSettings(self.kafka, fail, timeout_ms)
        return RangeReader(settings, cache=self.cache, is_retry=is_retry)

    def offsets(
        self, topic: str, start: int, until: int, number: int = 0, **more: bool
    ) -> list[int]:
        """Return the offsets of a range."""
        wanted = OffsetRange(topic, number, start, until)
        return [n for batch in self.reader(**more).read(wanted) for n in batch.offsets.tolist()]


def test_a_range_is_read_exactly(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, cache: ConsumerCache
) -> None:
    topic = new_topic(partitions=2)
    writer.write(topic, [b"x"] * 1000, partition=1, batch_records=64, codec="lz4")
    task = Task(kafka, cache)
    for start, until in ((0, 1000), (63, 65), (64, 128), (999, 1000), (5, 5), (9, 3)):
        assert task.offsets(topic, start, until, 1) == list(range(start, until))


def test_a_range_of_nothing_but_markers_and_aborted_records_ends(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, cache: ConsumerCache
) -> None:
    topic = new_topic()
    with writer.transaction(topic, commit=False) as transaction:
        transaction.write(topic, [b"aborted"] * 20)
    task = Task(kafka, cache, isolation_level="read_committed")
    assert task.offsets(topic, 0, 21) == []
    assert task.offsets(topic, 5, 15) == []
    assert Task(kafka, cache).offsets(topic, 5, 21) == list(range(5, 20))


def test_records_behind_an_open_transaction_are_waited_for_and_then_missed(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, cache: ConsumerCache
) -> None:
    topic = new_topic()
    writer.write(topic, [b"x"] * 3)
    task = Task(kafka, cache, isolation_level="read_committed")
    with writer.transaction(topic) as transaction:
        transaction.write(topic, [b"open"])
        with pytest.raises(KafkaTimeoutError) as raised:
            list(task.reader(timeout_ms=1_500).read(OffsetRange(topic, 0, 0, 4)))
    assert raised.value.message == f"{topic}-0: no record at offset 3 for 1500 ms"
    assert "kafkaConsumer.pollTimeoutMs" in str(raised.value.hint)
    assert task.offsets(topic, 0, 4) == [0, 1, 2, 3]


def test_retention_while_a_range_is_read(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, cache: ConsumerCache
) -> None:
    topic = new_topic()
    writer.write(topic, [bytes(1000)] * 400, batch_records=10)
    tp = TopicPartition(topic, 0)
    # Little is fetched ahead, so that most of the range is still on the broker.
    small = {"max_partition_fetch_bytes": "10000", "buffer_memory_bytes": "30000"}
    for fail in (True, False):
        found: list[int] = []
        reader = Task(kafka, cache, **small).reader(fail)
        batches = reader.read(OffsetRange(topic, 0, 350 if not fail else 0, 400))
        found += next(batches).offsets.tolist()
        delete_records(kafka.bootstrap_servers, tp, 300 if fail else 395)
        if fail:
            with pytest.raises(OffsetOutOfRangeError, match="the log now starts at 300"):
                list(batches)
        else:
            found += [n for batch in batches for n in batch.offsets.tolist()]
            assert found[0] == 350
            assert found[-5:] == [395, 396, 397, 398, 399]
            assert found == sorted(set(found))


def test_a_partition_that_is_deleted(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, cache: ConsumerCache
) -> None:
    topic = new_topic()
    writer.write(topic, [b"x"] * 3)
    task = Task(kafka, cache)
    assert task.offsets(topic, 0, 3) == [0, 1, 2]
    kafka.delete_topic(topic)
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets 0 to 2 of .* are not there"):
        task.offsets(topic, 0, 3)
    assert task.offsets(topic, 0, 3, fail=False) == []


def test_a_topic_made_anew_is_read_by_a_consumer_that_knew_the_old_one(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, cache: ConsumerCache
) -> None:
    topic = new_topic()
    task = Task(kafka, cache)
    for _ in range(3):
        writer.write(topic, [b"x"] * 3)
        assert task.offsets(topic, 0, 3) == [0, 1, 2]
        kafka.delete_topic(topic)
        kafka.create_topic(topic)


# --- consumers between tasks ----------------------------------------------------------------------


def test_consumers_are_used_again(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, cache: ConsumerCache
) -> None:
    topic = new_topic(partitions=2)
    for number in range(2):
        writer.write(topic, [b"x"] * 3, partition=number)
    task = Task(kafka, cache)
    task.offsets(topic, 0, 3)
    (first,) = cache._idle.values()
    task.offsets(topic, 0, 3, 1)
    assert list(cache._idle.values()) == [first]
    assert first.assignment() == set(), "an idle consumer reads nothing"
    task.offsets(topic, 0, 3, is_retry=True)
    (second,) = cache._idle.values()
    assert second is not first, "a task that failed before trusts no old connection"


def test_a_reader_that_is_left_early_leaves_a_consumer_that_works(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, cache: ConsumerCache
) -> None:
    topic = new_topic()
    writer.write(topic, [b"x"] * 50, batch_records=5)
    task = Task(kafka, cache, max_partition_fetch_bytes="100")
    batches = task.reader().read(OffsetRange(topic, 0, 0, 50))
    next(batches)
    assert isinstance(batches, Generator)
    batches.close()  # what a LIMIT does
    assert len(cache) == 1
    assert task.offsets(topic, 7, 9) == [7, 8]


def test_a_consumer_that_failed_is_not_kept(
    kafka: LocalKafka, new_topic: TopicFactory, cache: ConsumerCache
) -> None:
    topic = new_topic()
    with pytest.raises(OffsetOutOfRangeError):
        Task(kafka, cache).offsets(topic, 5, 7)
    assert len(cache) == 0


def test_the_cache_is_small_and_of_one_process(kafka: LocalKafka, cache: ConsumerCache) -> None:
    settings = [
        {"bootstrap.servers": kafka.bootstrap_servers, "fetch.min.bytes": str(number)}
        for number in range(MAX_IDLE + 2)
    ]
    for each in settings:
        cache.give_back(each, cache.borrow(each))
    assert len(cache) == MAX_IDLE
    kept = cache.borrow(settings[-1])
    cache.give_back(settings[-1], kept)
    cache._pid += 1  # as a forked child would find it
    forked = cache.borrow(settings[-1])
    assert forked is not kept
    assert len(cache) == 0
    forked.close()
    kept.close()


def test_three_hundred_micro_batches_leave_nothing_behind(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, cache: ConsumerCache
) -> None:
    topic = new_topic(partitions=3)
    for number in range(3):
        writer.write(topic, [b"x"] * 100, partition=number)
    task = Task(kafka, cache)

    def counts() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    task.offsets(topic, 0, 1)
    before = counts()
    for number in range(300):
        assert task.offsets(topic, number // 3, number // 3 + 1, number % 3) == [number // 3]
    fds, threads = counts()
    assert fds <= before[0] + 1
    assert threads <= before[1]


# --- the driver's questions -----------------------------------------------------------------------


def test_a_look_up_is_tried_again_after_a_restart_of_the_broker(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, cache: ConsumerCache
) -> None:
    topic = new_topic()
    writer.write(topic, [b"x"] * 3)
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.request.timeout.ms": "1000",
        "kafka.default.api.timeout.ms": "1000",
        "subscribe": topic,
    }
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        kafka.resume_node(1)

    with OffsetLookup(parse_options(given, is_stream=False), sleep, cache) as lookup:
        partitions = lookup.partitions(must_exist=True)
        assert lookup.latest(partitions) == {TopicPartition(topic, 0): 3}
        kafka.pause_node(1)
        try:
            assert lookup.latest(partitions) == {TopicPartition(topic, 0): 3}
        finally:
            kafka.resume_node(1)
    assert pauses == [1.0]


def test_look_ups_of_one_process_share_a_consumer(
    kafka: LocalKafka, new_topic: TopicFactory, cache: ConsumerCache
) -> None:
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": new_topic()}
    chosen = parse_options(given, is_stream=False)
    found = []
    for _ in range(2):
        with OffsetLookup(chosen, cache=cache) as lookup:
            lookup.partitions(must_exist=True)
            found.append(lookup._consumer)
            assert len(cache) == 0
        assert len(cache) == 1
    assert found[0] is found[1]
    lookup = OffsetLookup(chosen, cache=cache)
    lookup.partitions(must_exist=True)
    lookup.__exit__(RuntimeError, RuntimeError(), None)
    assert len(cache) == 0


def test_nothing_is_fetched_behind_the_end_of_a_range(cache: ConsumerCache) -> None:
    """CL-241: nor does a range end where the one before it of the same consumer has."""
    truth = Truth()
    truth.write(0, 50)
    few = {"max.partition.fetch.bytes": "100", "fetch.max.bytes": "100"}
    with BrokerServer(truth.cluster) as server:
        kafka = {"bootstrap.servers": server.bootstrap_servers, **few}
        reader = RangeReader(ReadSettings(kafka, True, 10_000), cache=cache)
        for start, until, last in ((0, 13, 7), (13, 50, 49)):
            batches = reader.read(OffsetRange("t", 0, start, until))
            found = next(batches).offsets.tolist()
            # What is fetched ahead is, while nothing takes it.
            end = time.monotonic() + 0.3
            while max(fetched_offsets(truth.cluster)[0]) <= last and time.monotonic() < end:
                time.sleep(0.01)
            found += [n for each in batches for n in each.offsets.tolist()]
            assert found == [*range(start, until)]
            assert max(fetched_offsets(truth.cluster)[0]) == last
