"""Reading with the public consumer: poll, batches, iteration, limits, pausing, memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kfast import KafkaConsumer, PartitionRecords, TopicPartition
from kfast.protocol.api_keys import ApiKey
from kfast.testing.faults import Drop, NeverAnswer, PartitionError
from kfast.testing.releases import RELEASE_NAMES
from kfast.testing.request_log import RequestLog
from tests.end_to_end.stage import Stage, eventually, offsets, partitions, read
from tests.end_to_end.virtual import T0, T1, fetches, make_cluster, value, write
from tests.simulation.wire_faults import Split

MakeStage = Callable[..., Stage]


def fetch_asked_for(partition: int, offset: int) -> Callable[[RequestLog], bool]:
    """Return whether a Fetch of an offset, or a later one, was asked for."""

    def is_asked(log: RequestLog) -> bool:
        return any(
            part.partition == partition and part.fetch_offset >= offset
            for entry in log.select(ApiKey.FETCH)
            for topic in entry.message.topics
            for part in topic.partitions
        )

    return is_asked


@pytest.mark.parametrize("release", RELEASE_NAMES)
def test_every_release_is_read_over_sockets(make_stage: MakeStage, release: str) -> None:
    """N-03, F-11: all records of all partitions, once, in order."""
    stage = make_stage(make_cluster(partitions=4, records=300, release=release))
    found = read(stage.consumer("t"), 1_200)
    for number in range(4):
        assert found[TopicPartition("t", number)] == [(n, value(n)) for n in range(300)]


def test_faults_on_real_connections(make_stage: MakeStage) -> None:
    """N-06, N-18, F-20: lost connections, split answers and errors cost nothing but time."""
    cluster = make_cluster(partitions=3, records=500, batch_records=10)
    cluster.faults.add(Drop(300, is_reset=True), api=ApiKey.FETCH, nth=2)
    cluster.faults.add(Drop(), api=ApiKey.METADATA)
    cluster.faults.add(PartitionError(6), api=ApiKey.FETCH, nth=5)
    cluster.faults.add(Split((1, 2, 997)), times=None)
    stage = make_stage(cluster)
    found = read(stage.consumer("t", max_partition_fetch_bytes=2_000), 1_500)
    assert [offsets(found, number) for number in range(3)] == [list(range(500))] * 3


def test_iteration_ends_after_its_timeout(make_stage: MakeStage) -> None:
    """L-10: iteration gives single records and ends after consumer_timeout_ms without any."""
    stage = make_stage(make_cluster())
    records = list(stage.consumer("t", consumer_timeout_ms=300))
    assert [(record.topic, record.offset, record.value) for record in records] == [
        ("t", n, value(n)) for n in range(20)
    ]


def test_batches_are_columns_of_one_partition(make_stage: MakeStage) -> None:
    """B-09: a batch knows its topic, partition, offsets and size."""
    stage = make_stage(make_cluster(partitions=2))
    consumer = stage.consumer("t")
    seen: dict[TopicPartition, list[int]] = {}
    for batch in consumer.batches(timeout_ms=300):
        assert batch.topic_partition == (batch.topic, batch.partition)
        assert batch.nbytes > 0
        seen.setdefault(batch.topic_partition, []).extend(batch.offsets.tolist())
        assert consumer.position(batch.topic_partition) == batch.next_offset
        assert consumer.highwater(batch.topic_partition) == 20
    assert seen == {T0: list(range(20)), T1: list(range(20))}


def test_poll_without_waiting_makes_progress(make_stage: MakeStage) -> None:
    """L-10: poll(0) returns at once, and the records come over repeated calls."""
    consumer = make_stage(make_cluster()).consumer("t")
    found: list[int] = []

    def step() -> bool:
        started = time.monotonic()
        records = consumer.poll(0)
        assert time.monotonic() - started < 5
        found.extend(row.offset for row in records.get(T0) or ())
        return len(found) == 20

    eventually(step)
    assert found == list(range(20))


def test_poll_returns_with_whatever_is_there(make_stage: MakeStage) -> None:
    """B-08, F-22: neither a silent broker nor the poll's own timeout delays what is ready."""
    cluster = make_cluster(nodes=2, partitions=2, leaders=[1, 2])
    cluster.faults.add(NeverAnswer(), api=ApiKey.FETCH, node=1, times=None)
    consumer = make_stage(cluster).consumer("t")
    started = time.monotonic()
    records = consumer.poll(timeout_ms=60_000)
    assert list(records) == [T1]
    assert time.monotonic() - started < 30


def test_the_next_fetch_is_on_its_way_before_the_application_asks(make_stage: MakeStage) -> None:
    """F-10: without any further poll the broker is asked for what comes next."""
    cluster = make_cluster(nodes=1, records=100)
    consumer = make_stage(cluster).consumer("t", max_partition_fetch_bytes=1_000)
    assert consumer.poll(timeout_ms=10_000)
    position = consumer.position(T0)
    assert position < 100
    assert cluster.requests.wait_for(fetch_asked_for(0, position))


def test_max_poll_records_bounds_one_poll(make_stage: MakeStage) -> None:
    """F-12: no poll returns more rows; together they are complete."""
    consumer = make_stage(make_cluster(partitions=2, records=50)).consumer("t", max_poll_records=7)
    found: list[tuple[int, int]] = []
    while len(found) < 100:
        records = consumer.poll(timeout_ms=1_000)
        assert records.count() <= 7
        found += ((row.partition, row.offset) for rows in records.values() for row in rows)
    assert sorted(found) == [(p, n) for p in range(2) for n in range(50)]
    assert consumer.poll(timeout_ms=0, max_records=3).count() == 0


def test_paused_data_is_kept_and_delivered_after_resume(make_stage: MakeStage) -> None:
    """F-21, P-11: what is buffered waits; after resume it comes without a new Fetch of it."""
    cluster = make_cluster(nodes=1, records=0)
    consumer = make_stage(cluster).consumer()
    consumer.assign(partitions(0))
    assert not consumer.poll(timeout_ms=50)
    consumer.position(T0)
    cluster.requests.clear()
    write(cluster, 0, 10)
    assert cluster.requests.wait_for(fetch_asked_for(0, 10))
    consumer.pause(T0)
    consumer.pause(T0)
    assert consumer.paused() == {T0}
    assert not consumer.poll(timeout_ms=200)
    cluster.requests.clear()
    consumer.resume(T0)
    assert consumer.paused() == set()
    assert offsets(read(consumer, 10)) == list(range(10))
    asked = [p.fetch_offset for r in fetches(cluster) for t in r.topics for p in t.partitions]
    assert all(offset >= 10 for offset in asked)


def test_memory_bounds_what_is_fetched_ahead(make_stage: MakeStage) -> None:
    """B-05, B-06: a reader that does not poll gets no more than its buffer and one answer."""
    cluster = make_cluster(nodes=1, records=0)
    cluster.append("t", 0, [b"x" * 10_000] * 400, batch_records=2)
    consumer = make_stage(cluster).consumer(
        buffer_memory_bytes=200_000, max_partition_fetch_bytes=50_000
    )
    consumer.assign([T0])
    assert consumer.position(T0) == 0
    assert cluster.requests.wait_for(fetch_asked_for(0, 4))
    assert not cluster.requests.wait_for(fetch_asked_for(0, 26), timeout_s=1)
    assert offsets(read(consumer, 400)) == list(range(400))


def test_a_look_up_does_not_wait_for_memory(make_stage: MakeStage) -> None:
    """B-06: its response may come behind a Fetch response for which there is no room."""
    cluster = make_cluster(nodes=1, partitions=30, records=0)
    consumer = make_stage(cluster, fetch_max_wait_ms=25_000).consumer(
        buffer_memory_bytes=1_000_000, max_partition_fetch_bytes=60_000
    )
    everything = [TopicPartition("t", number) for number in range(30)]
    consumer.assign(everything)
    consumer.poll(timeout_ms=0)
    assert cluster.requests.wait_for(fetch_asked_for(0, 0))

    def fill(numbers: range) -> None:
        with cluster.changing():
            for number in numbers:
                cluster.append("t", number, [b"x" * 1_000] * 50)

    fill(range(8))
    assert cluster.requests.wait_for(fetch_asked_for(0, 50))
    fill(range(8, 30))
    calls: list[Callable[[], object]] = [
        lambda: consumer.end_offsets(everything),
        consumer.topics,
        lambda: consumer.seek_to_end(everything[0]),
        lambda: consumer.position(everything[0]),
    ]
    for call in calls:
        started = time.monotonic()
        call()
        assert time.monotonic() - started < 10
    assert sum(map(len, read(consumer, 29 * 50).values())) == 29 * 50


def test_unassigning_and_seeking_release_memory(make_stage: MakeStage) -> None:
    """B-07, P-04: data nobody wants any more makes room at once for other partitions."""
    cluster = make_cluster(nodes=1, partitions=2, records=0)
    cluster.append("t", 0, [b"x" * 10_000] * 100, batch_records=2)
    consumer = make_stage(cluster).consumer(
        buffer_memory_bytes=50_000, max_partition_fetch_bytes=50_000
    )
    consumer.assign([T0])
    consumer.poll(timeout_ms=0)
    assert cluster.requests.wait_for(fetch_asked_for(0, 0))
    consumer.assign([T1])
    write(cluster, 1, 20)
    assert offsets(read(consumer, 20), 1) == list(range(20))


def test_a_result_outlives_its_consumer(make_stage: MakeStage) -> None:
    """D-25: columns stay as they are after later polls and after close."""
    cluster = make_cluster(nodes=1, records=2_000, batch_records=10)
    consumer: KafkaConsumer = make_stage(cluster).consumer("t", max_partition_fetch_bytes=5_000)
    kept: list[PartitionRecords] = []
    while sum(map(len, kept)) < 2_000:
        kept += consumer.poll(timeout_ms=1_000).values()
    consumer.close()
    seen = [(row.offset, row.value) for batch in kept for row in batch]
    assert seen == [(n, value(n)) for n in range(2_000)]
