"""Iteration: what was polled and not yielded yet is not handed out, whatever happens meanwhile."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable

import pytest

import kfast
from kfast import KafkaConsumer, TopicPartition
from kfast.consumer.subscription_state import SubscriptionState
from kfast.errors import IllegalStateError, LogTruncationError
from kfast.testing.cluster import FakeCluster
from tests.end_to_end.stage import Stage, eventually
from tests.unit.records.sample_records import build

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


@pytest.mark.parametrize("is_polling", [False, True])
def test_a_partition_resumed_inside_of_a_poll_goes_on_with_its_rest(
    make_stage: MakeStage, is_polling: bool
) -> None:
    """P-11, F-11: what was polled before the pause comes before what is polled after it."""
    cluster = cluster_of(1, 50)
    for _ in range(3):
        cluster.append("t", 0, [b"x"] * 50, batch_records=50)
    settings = {"max_poll_records": 50, "group_id": "g", "enable_auto_commit": False}
    reader = make_stage(cluster).consumer(consumer_timeout_ms=500, **settings)
    reader.assign([T0])
    found = take(reader, 10)
    reader.pause(T0)
    reader.commit_async(callback=lambda _, error: reader.resume(T0))
    if is_polling:
        found += reader.poll(timeout_ms=10_000)[T0].offsets.tolist()
        assert found == list(range(50))
    found += [record.offset for record in reader]
    assert found == list(range(200))


@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_a_truncation_leaves_what_was_polled_before_it(make_stage: MakeStage, policy: str) -> None:
    """P-14, F-11: rows up to where the log diverged are yielded, then those of the new leader."""
    cluster = FakeCluster(2)
    cluster.create_topic("t", 1)
    cluster.append("t", 0, [b"old"] * 10, batch_records=2)
    reader = make_stage(cluster).consumer(consumer_timeout_ms=500, auto_offset_reset=policy)
    reader.assign([T0])
    reader.seek(T0, 0)
    found = [(record.offset, record.value) for record in (next(reader) for _ in range(3))]
    cluster.move_leader("t", 0, 2, truncate_to=8)
    cluster.append("t", 0, [b"new"] * 3)
    subscriptions = reader._runtime.subscriptions
    eventually(lambda: has_moved(subscriptions, policy))
    if policy == "none":  # the rest first, then the error
        found += [(record.offset, record.value) for record in (next(reader) for _ in range(7))]
        with pytest.raises(LogTruncationError):
            next(reader)
        reader.seek(T0, 8)
        del found[8:]
    found += [(record.offset, record.value) for record in reader]
    assert found == [(n, b"old") for n in range(8)] + [(n, b"new") for n in range(8, 11)]


def has_moved(subscriptions: SubscriptionState, policy: str) -> bool:
    """Return whether the consumer has noticed the truncation of 10 offsets to 8."""
    position = subscriptions.position(T0)
    return position is None if policy == "none" else position is not None and position.offset == 8


def test_a_position_that_is_gone_leaves_what_was_polled_before_it(make_stage: MakeStage) -> None:
    """P-10, F-11: retention overtakes; the polled rows come before those at the new start."""
    cluster = cluster_of(1, 10)
    reader = make_stage(cluster).consumer(consumer_timeout_ms=500)
    reader.assign([T0])
    assert take(reader, 3) == [0, 1, 2]
    with cluster.changing():
        cluster.append("t", 0, [b"y"] * 10, batch_records=1)
        cluster.log("t", 0).delete_before(15)
    position = reader._runtime.subscriptions.position
    eventually(lambda: (at := position(T0)) is not None and at.offset == 15)
    assert [record.offset for record in reader] == [*range(3, 10), *range(15, 20)]


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


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_called_in_between_rows_come_once_and_in_order(
    make_stage: MakeStage, seed: int
) -> None:
    """F-11, P-11, C-03: loops, batches and polls take turns with pauses, seeks and new leaders."""
    rng = random.Random(seed)
    cluster = FakeCluster(2)
    cluster.create_topic("t", 3)
    everything = [TopicPartition("t", number) for number in range(3)]
    for tp in everything:
        cluster.append("t", tp.partition, [b"x"] * 2_000, batch_records=25)
    reader = make_stage(cluster, max_partition_fetch_bytes=4_000).consumer(
        group_id="g", consumer_timeout_ms=20, auto_commit_interval_ms=5
    )
    reader.assign(everything)
    ahead = dict.fromkeys(everything, 0)

    def note(batch: kfast.PartitionRecords) -> None:
        tp = batch.topic_partition
        assert batch.offsets.tolist() == list(range(ahead[tp], ahead[tp] + len(batch)))
        ahead[tp] += len(batch)

    def loop(count: int) -> None:
        for record in itertools.islice(reader, count):
            tp = TopicPartition(record.topic, record.partition)
            assert record.offset == ahead[tp]
            ahead[tp] += 1

    def seek() -> None:
        (tp,) = rng.choices(everything)
        ahead[tp] = rng.randrange(2_000)
        reader.seek(tp, ahead[tp])

    def some() -> list[TopicPartition]:
        return rng.sample(everything, rng.randrange(1, 4))

    def resume_later(partitions: list[TopicPartition]) -> None:
        reader.commit_async(callback=lambda _, error: reader.resume(*partitions))

    actions: list[Callable[[], object]] = [
        lambda: loop(rng.randrange(1, 60)),
        lambda: note(next(reader.batches(timeout_ms=20), empty)),
        lambda: list(map(note, reader.poll(20, rng.choice([None, 7])).values())),
        lambda: reader.pause(*some()),
        lambda: reader.resume(*some()),
        lambda: resume_later(some()),
        lambda: cluster.move_leader("t", rng.randrange(3), rng.choice([1, 2])),
        seek,
    ]
    empty = build()[:0]
    ahead[empty.topic_partition] = 0
    for action in rng.choices(actions, [8, 3, 3, 2, 1, 2, 1, 1], k=150):
        action()
    reader.resume(*everything)
    while min(ahead[tp] for tp in everything) < 2_000:
        loop(10_000)
    reader.commit()
    assert {tp: reader.committed(tp) for tp in everything} == dict.fromkeys(everything, 2_000)
