"""Iteration: what was polled and not yielded yet is not handed out, whatever happens meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import kfast
from kfast import KafkaConsumer, TopicPartition
from kfast.errors import IllegalStateError
from tests.end_to_end.stage import Stage
from tests.fake_broker.cluster import FakeCluster

MakeStage = Callable[..., Stage]

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def cluster_of(partitions: int = 1, records: int = 10) -> FakeCluster:
    cluster = FakeCluster(1)
    cluster.create_topic("t", partitions)
    for partition in range(partitions):
        cluster.append("t", partition, [b"x"] * records, batch_records=records)
    return cluster


@pytest.fixture
def reader(make_stage: MakeStage) -> KafkaConsumer:
    """Give a consumer of one partition with ten records in one batch."""
    consumer = make_stage(cluster_of()).consumer(consumer_timeout_ms=10_000)
    consumer.assign([T0])
    return consumer


def take(consumer: KafkaConsumer, count: int) -> list[int]:
    return [next(consumer).offset for _ in range(count)]


def test_a_seek_ends_the_rest_of_the_polled_batch(reader: KafkaConsumer) -> None:
    """P-04: the next record after a seek has the offset sought."""
    assert take(reader, 3) == [0, 1, 2]
    reader.seek(T0, 7)
    assert take(reader, 3) == [7, 8, 9]
    reader.seek(T0, 3)
    assert take(reader, 2) == [3, 4]
    reader.seek_to_beginning(T0)
    assert take(reader, 2) == [0, 1]


def test_a_position_counts_what_was_yielded(reader: KafkaConsumer) -> None:
    """P-06, P-12: position and lag stand behind the record in hand, not behind what was polled."""
    assert take(reader, 3) == [0, 1, 2]
    assert (reader.position(T0), reader.current_lag(T0)) == (3, 7)
    assert take(reader, 7)[-1] == 9
    assert (reader.position(T0), reader.current_lag(T0)) == (10, 0)


def test_a_poll_in_between_is_given_the_rest(reader: KafkaConsumer) -> None:
    """C-03: nothing polled is lost, and the order is kept."""
    assert take(reader, 3) == [0, 1, 2]
    records = reader.poll(timeout_ms=0, max_records=4)
    assert list(records[T0].offsets) == [3, 4, 5, 6]
    assert records.next_offsets()[T0].offset == 7
    assert reader.position(T0) == 7
    assert take(reader, 3) == [7, 8, 9]


def test_a_paused_partition_waits_with_its_rest(reader: KafkaConsumer) -> None:
    """P-11: nothing comes while it is paused, and nothing is missing afterwards."""
    assert take(reader, 3) == [0, 1, 2]
    reader.pause(T0)
    assert not reader.poll(timeout_ms=0)
    assert list(reader.batches(timeout_ms=50)) == []
    reader.resume(T0)
    assert take(reader, 7) == list(range(3, 10))


def test_a_partition_that_is_no_longer_assigned_yields_nothing_more(make_stage: MakeStage) -> None:
    """G-08, G-24: the rest of its batch is dropped; one that stays goes on where it was."""
    consumer = make_stage(cluster_of(2)).consumer(consumer_timeout_ms=10_000)
    consumer.assign([T0, T1])
    first = next(consumer)
    gone = TopicPartition(first.topic, first.partition)
    kept = T1 if gone == T0 else T0
    consumer.assign([kept])
    rest = take(consumer, 10)
    assert rest == list(range(10))
    assert consumer.position(kept) == 10
    with pytest.raises(IllegalStateError, match="not assigned"):
        consumer.position(gone)


def test_batches_left_in_the_middle_go_on_in_the_next_loop(make_stage: MakeStage) -> None:
    """C-03: a batch counts when it is yielded; those polled with it are still to come."""
    consumer = make_stage(cluster_of(2)).consumer()
    consumer.assign([T0, T1])
    batch = next(consumer.batches(timeout_ms=10_000))
    other = T1 if batch.topic_partition == T0 else T0
    assert consumer.position(batch.topic_partition) == 10
    assert consumer.position(other) == 0
    assert [b.topic_partition for b in consumer.batches(timeout_ms=300)] == [other]


def test_iteration_ends_in_time_and_goes_on_later(make_stage: MakeStage) -> None:
    """L-10: consumer_timeout_ms ends a loop, and a later loop goes on."""
    cluster = cluster_of()
    consumer = make_stage(cluster).consumer(consumer_timeout_ms=200)
    consumer.assign([T0])
    assert [record.offset for record in consumer] == list(range(10))
    cluster.append("t", 0, [b"y"])
    assert [record.offset for record in consumer] == [10]


def test_no_timed_wait_ends_early(make_stage: MakeStage) -> None:
    """L-10: 5 ms are 5 ms, whatever part of a millisecond the wait begins in."""
    consumer = make_stage(cluster_of()).consumer(consumer_timeout_ms=5)
    consumer.assign([T0])
    consumer.seek_to_end(T0)
    consumer.position(T0)
    waits: list[Callable[[], object]] = [
        lambda: consumer.poll(timeout_ms=5),
        lambda: list(consumer.batches()),
        lambda: list(consumer),
    ]
    for wait in waits * 10:
        begun_ns = time.monotonic_ns()
        assert not wait()
        assert time.monotonic_ns() - begun_ns >= 5_000_000


def test_long_batches_are_yielded_slice_by_slice(make_stage: MakeStage) -> None:
    """P-06: more rows than one slice has, none twice, none missing."""
    consumer = make_stage(cluster_of(1, 1_203)).consumer(consumer_timeout_ms=300)
    consumer.assign([T0])
    assert [record.offset for record in consumer] == list(range(1_203))


def test_a_closed_consumer_yields_nothing_more(reader: KafkaConsumer) -> None:
    """L-02: not even what was polled before."""
    iterator = iter(reader)
    assert next(iterator).offset == 0
    reader.close()
    with pytest.raises(IllegalStateError, match="closed"):
        next(iterator)


def test_interceptors_see_what_iteration_yields(make_stage: MakeStage) -> None:
    """O-05: in order, each given what the one before it returned; errors are only logged."""

    class Upper:
        def on_consume(self, records: kfast.ConsumerRecords) -> kfast.ConsumerRecords:
            return kfast.ConsumerRecords([batch[:2] for batch in records.batches()])

    class Broken:
        def on_consume(self, records: kfast.ConsumerRecords) -> kfast.ConsumerRecords:
            raise ValueError("broken")

    stage = make_stage(cluster_of())
    consumer = stage.consumer(interceptor_classes=[Broken(), Upper], consumer_timeout_ms=300)
    consumer.assign([T0])
    assert [record.offset for record in consumer] == [0, 1]
    assert consumer.position(T0) == 10
