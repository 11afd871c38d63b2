"""Leaders move, logs are truncated, followers serve: positions stay right, no time is wasted."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from kfast.errors import KafkaError, LogTruncationError, OffsetOutOfRangeError
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import EditResponse, NeverAnswer, PartitionError
from kfast.testing.topology import ReplicaView
from kfast.types import TopicPartition
from tests.end_to_end.virtual import (
    T0,
    fetches,
    make_cluster,
    offsets,
    read_all,
    write,
)
from tests.simulation.loopback_consumer import LoopbackConsumer


def reading(cluster: FakeCluster, **configs: object) -> LoopbackConsumer:
    """Return a consumer that has read all there is of "t"."""
    consumer = LoopbackConsumer(cluster, **configs)
    consumer.assign(T0)
    read_all(consumer)
    return consumer


@pytest.mark.parametrize("has_hints", [True, False])
@pytest.mark.parametrize("release", ["2.1", "2.8", "4.3"])
def test_a_moved_leader_is_found_at_once(release: str, has_hints: bool) -> None:
    """M-03: reading goes on within a second of the brokers knowing it, with and without hint."""
    cluster = make_cluster(leaders=[1], release=release)
    cluster.has_leader_hints = has_hints
    consumer = reading(cluster)
    consumer.run(1_000)
    cluster.move_leader("t", 0, 2)
    write(cluster, 0, 10)
    start = consumer.clock.now
    assert offsets(consumer.take(10)) == list(range(20, 30))
    assert consumer.clock.now - start < (100 if has_hints and release == "4.3" else 1_000)


def test_a_hint_saves_waiting_for_metadata() -> None:
    """M-03: with a hint the new leader is used although every Metadata answer is stale."""
    cluster = make_cluster(leaders=[1])
    consumer = reading(cluster)
    for node in (1, 2, 3):
        cluster.freeze_metadata(node)
    cluster.move_leader("t", 0, 3)
    write(cluster, 0, 10)
    start = consumer.clock.now
    assert offsets(consumer.take(10)) == list(range(20, 30))
    assert consumer.clock.now - start < 100
    consumer.run(30_000)
    write(cluster, 0, 5)
    assert offsets(consumer.take(5)) == list(range(30, 35))


def test_a_stale_broker_does_not_turn_the_leader_back() -> None:
    """M-02, M-09: lower epochs in later Metadata answers are ignored and reset nothing."""
    cluster = make_cluster(leaders=[1])
    for node in (1, 2, 3):
        if node != 2:
            cluster.freeze_metadata(node)
    consumer = reading(cluster, metadata_max_age_ms=500)
    cluster.move_leader("t", 0, 2)
    write(cluster, 0, 10)
    assert offsets(consumer.take(10)) == list(range(20, 30))
    cluster.requests.clear()
    consumer.run(10_000)
    assert len(cluster.requests.select(ApiKey.METADATA)) >= 10
    assert not cluster.requests.select(ApiKey.LIST_OFFSETS)
    partition = consumer.metadata.cluster.partition(T0)
    assert partition is not None
    assert (partition.leader_id, partition.leader_epoch) == (2, 1)
    write(cluster, 0, 5)
    assert offsets(consumer.take(5)) == list(range(30, 35))


def test_the_position_is_validated_before_anything_is_fetched() -> None:
    """P-13: after a leader change OffsetForLeaderEpoch comes before the next Fetch of it."""
    cluster = make_cluster(leaders=[1])
    consumer = reading(cluster)
    cluster.requests.clear()
    cluster.move_leader("t", 0, 2)
    write(cluster, 0, 10)
    consumer.take(10)
    asked = [entry.api_key for entry in cluster.requests.select(node=2)]
    assert ApiKey.OFFSET_FOR_LEADER_EPOCH in asked
    assert asked.index(ApiKey.OFFSET_FOR_LEADER_EPOCH) < asked.index(ApiKey.FETCH)
    (request,) = cluster.requests.messages(OffsetForLeaderEpochRequest)
    assert request.replica_id == -1
    part = request.topics[0].partitions[0]
    assert (part.current_leader_epoch, part.leader_epoch) == (1, 0)


def test_old_brokers_are_not_asked_to_validate() -> None:
    """P-13: OffsetForLeaderEpoch below version 3 needs rights a consumer lacks."""
    cluster = make_cluster(leaders=[1], release="2.1")
    consumer = reading(cluster)
    cluster.move_leader("t", 0, 2)
    write(cluster, 0, 10)
    assert offsets(consumer.take(10)) == list(range(20, 30))
    assert not cluster.requests.select(ApiKey.OFFSET_FOR_LEADER_EPOCH)


def truncated(**configs: object) -> tuple[FakeCluster, LoopbackConsumer]:
    """Return a reader at offset 20 of a log that then lost 12 to 19 and got others instead."""
    cluster = make_cluster(leaders=[1], batch_records=4)
    consumer = reading(cluster, **configs)
    cluster.move_leader("t", 0, 2, truncate_to=12)
    cluster.append("t", 0, [b"other"] * 10)
    return cluster, consumer


def test_a_truncated_log_goes_on_where_it_diverged(caplog: pytest.LogCaptureFixture) -> None:
    """P-14: with a policy the position goes to the divergence, not to the log start."""
    _, consumer = truncated()
    with caplog.at_level(logging.WARNING, "kfast"):
        rows = consumer.take(10)[T0]
    assert [(row.offset, row.value) for row in rows] == [(n, b"other") for n in range(12, 22)]
    assert "12" in caplog.text
    assert "20" in caplog.text


def test_a_truncated_log_raises_without_policy() -> None:
    """P-14: without a policy LogTruncation is raised, naming where the log diverged."""
    cluster = make_cluster(leaders=[1], batch_records=4)
    consumer = LoopbackConsumer(cluster, auto_offset_reset="none")
    consumer.assign(T0)
    consumer.seek(T0, 0)
    read_all(consumer)
    cluster.move_leader("t", 0, 2, truncate_to=12)
    cluster.append("t", 0, [b"other"] * 10)
    with pytest.raises(LogTruncationError) as caught:
        consumer.take(1)
    assert (caught.value.topic, caught.value.partition) == ("t", 0)
    assert "12" in str(caught.value)
    consumer.seek(T0, 12)
    assert offsets(consumer.take(10)) == list(range(12, 22))


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78, 100])
def test_no_failed_validation_resets_the_position(code: int) -> None:
    """P-15: errors of OffsetForLeaderEpoch lead to another try, never to a reset."""
    cluster = make_cluster(leaders=[1])
    consumer = reading(cluster)
    cluster.faults.add(PartitionError(code), api=ApiKey.OFFSET_FOR_LEADER_EPOCH, times=5)
    cluster.requests.clear()
    cluster.move_leader("t", 0, 2)
    write(cluster, 0, 10)
    assert offsets(consumer.take(10)) == list(range(20, 30))
    assert not cluster.requests.select(ApiKey.LIST_OFFSETS)
    assert 6 <= len(cluster.requests.select(ApiKey.OFFSET_FOR_LEADER_EPOCH)) <= 20


@pytest.mark.parametrize("code", [29, -1])
def test_a_permanent_validation_error_is_raised_once_and_resets_nothing(code: int) -> None:
    """P-15: after the error was told, the partition waits for the user or a new leader."""
    cluster = make_cluster(leaders=[1])
    consumer = reading(cluster)
    cluster.faults.add(PartitionError(code), api=ApiKey.OFFSET_FOR_LEADER_EPOCH)
    cluster.requests.clear()
    cluster.move_leader("t", 0, 2)
    write(cluster, 0, 10)
    with pytest.raises(KafkaError, match="t-0"):
        consumer.take(10)
    consumer.run(1_000)
    cluster.move_leader("t", 0, 3)
    assert offsets(consumer.take(10, timeout_ms=400_000)) == list(range(20, 30))
    assert not cluster.requests.select(ApiKey.LIST_OFFSETS)


def test_a_second_leader_change_starts_a_fresh_validation() -> None:
    """P-15: the answer for the older epoch is ignored, and requests do not pile up."""
    cluster = make_cluster(leaders=[1])
    consumer = reading(cluster)
    cluster.faults.add(NeverAnswer(), api=ApiKey.OFFSET_FOR_LEADER_EPOCH, node=2)
    cluster.requests.clear()
    cluster.move_leader("t", 0, 2)
    consumer.run(5_000)
    cluster.move_leader("t", 0, 3)
    write(cluster, 0, 10)
    assert offsets(consumer.take(10, timeout_ms=120_000)) == list(range(20, 30))
    assert len(cluster.requests.select(ApiKey.OFFSET_FOR_LEADER_EPOCH)) <= 4


def test_leaders_moving_all_the_time() -> None:
    """F-11, M-03: a leader move every 300 ms costs neither a record nor a repetition."""
    cluster = make_cluster(leaders=[1], records=0)
    consumer = LoopbackConsumer(cluster)
    consumer.assign(T0)

    def step(number: int) -> None:
        cluster.move_leader("t", 0, number % 3 + 1)
        write(cluster, 0, 7, batch_records=3)

    for number in range(50):
        consumer.network.schedule(300 * (number + 1), partial(step, number))
    assert offsets(consumer.take(350, timeout_ms=60_000)) == list(range(350))
    assert len(cluster.requests.select(ApiKey.LIST_OFFSETS)) == 1


def test_a_partition_without_leader_waits_for_one() -> None:
    """M-04: no leader means backing off, not giving up and not asking without pause."""
    cluster = make_cluster(leaders=[1])
    consumer = reading(cluster)
    cluster.move_leader("t", 0, -1)
    cluster.requests.clear()
    consumer.run(10_000)
    assert len(cluster.requests) < 60
    cluster.move_leader("t", 0, 2)
    write(cluster, 0, 5)
    start = consumer.clock.now
    assert offsets(consumer.take(5)) == list(range(20, 25))
    assert consumer.clock.now - start < 2_500


def test_an_empty_broker_list_is_a_failed_refresh() -> None:
    """M-04: an answer without brokers keeps the old routing."""

    def without_brokers(response: object, _: object) -> None:
        response.brokers = []  # type: ignore[attr-defined]
        response.topics = []  # type: ignore[attr-defined]

    cluster = make_cluster(leaders=[1])
    consumer = reading(cluster, metadata_max_age_ms=1_000)
    cluster.faults.add(EditResponse(without_brokers), api=ApiKey.METADATA, times=None)
    consumer.run(5_000)
    write(cluster, 0, 5)
    assert offsets(consumer.take(5)) == list(range(20, 25))


def test_a_recreated_topic_is_read_from_its_start() -> None:
    """M-02: a new topic id drops the old epochs and positions."""
    cluster = make_cluster(leaders=[1])
    cluster.move_leader("t", 0, 2)
    cluster.move_leader("t", 0, 1)
    consumer = reading(cluster)
    cluster.recreate_topic("t")
    write(cluster, 0, 7)
    rows = consumer.take(7, timeout_ms=20_000)
    assert offsets(rows) == list(range(7))


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78, 100, 103, -1])
def test_retriable_fetch_errors(code: int) -> None:
    """F-20, E-06: these never leave poll; the partition goes on where it stood."""
    cluster = make_cluster(leaders=[1])
    consumer = reading(cluster)
    cluster.faults.add(PartitionError(code), api=ApiKey.FETCH, times=3)
    write(cluster, 0, 10)
    start = consumer.clock.now
    assert offsets(consumer.take(10)) == list(range(20, 30))
    assert consumer.clock.now - start < 3_000


# -- followers -----------------------------------------------------------------------------


def two_racks() -> FakeCluster:
    return make_cluster(nodes=2, leaders=[1], racks=["a", "b"])


def test_a_preferred_replica_is_followed_at_once() -> None:
    """F-17: the data comes from the follower, at the unchanged position, without a pause."""
    cluster = two_racks()
    consumer = LoopbackConsumer(cluster, client_rack="b")
    consumer.assign(T0)
    start = consumer.clock.now
    assert offsets(consumer.take(20)) == list(range(20))
    assert consumer.clock.now - start < 50
    assert len(fetches(cluster, 1)) == 1
    assert fetches(cluster, 2)[0].topics[0].partitions[0].fetch_offset == 0
    assert all(request.rack_id == "b" for request in fetches(cluster))


def test_a_preferred_replica_is_forgotten_after_a_while() -> None:
    """F-18: after metadata_max_age_ms the leader is asked again, from the current position."""
    cluster = two_racks()
    consumer = LoopbackConsumer(cluster, client_rack="b", metadata_max_age_ms=10_000)
    consumer.assign(T0)
    consumer.take(20)
    cluster.requests.clear()
    consumer.run(9_000)
    assert not fetches(cluster, 1)
    consumer.run(4_000)
    asked = [
        part.fetch_offset for r in fetches(cluster, 1) for t in r.topics for part in t.partitions
    ]
    assert asked
    assert set(asked) == {20}
    write(cluster, 0, 5)
    assert offsets(consumer.take(5)) == list(range(20, 25))


@pytest.mark.parametrize("code", [1, 3, 6, 9, 56, 74, 75, 78, 100, -1])
def test_any_error_of_a_follower_leads_back_to_the_leader(code: int) -> None:
    """F-18, F-19: errors of a follower, out of range among them, reset nothing."""
    cluster = two_racks()
    consumer = LoopbackConsumer(cluster, client_rack="b")
    consumer.assign(T0)
    consumer.take(20)
    cluster.has_rack_selector = False
    cluster.faults.add(PartitionError(code), api=ApiKey.FETCH, node=2, times=None)
    cluster.requests.clear()
    write(cluster, 0, 10)
    assert offsets(consumer.take(10)) == list(range(20, 30))
    assert fetches(cluster, 1)
    assert not cluster.requests.select(ApiKey.LIST_OFFSETS)


def test_a_follower_that_fails_again_and_again_is_not_requested_in_a_loop() -> None:
    """F-18, F-20: the leader goes on to name it; once it works again it is read from."""
    cluster = two_racks()
    consumer = LoopbackConsumer(cluster, client_rack="b")
    consumer.assign(T0)
    consumer.take(20)
    cluster.faults.add(PartitionError(56), api=ApiKey.FETCH, node=2, times=None)
    write(cluster, 0, 10)
    consumer.run(5_000)
    assert 10 < len(fetches(cluster, 2)) < 100
    cluster.faults.clear()
    assert offsets(consumer.take(10)) == list(range(20, 30))


def test_a_follower_that_dies_leads_back_to_the_leader() -> None:
    """F-18: a lost follower costs no record and little time."""
    cluster = two_racks()
    consumer = LoopbackConsumer(cluster, client_rack="b")
    consumer.assign(T0)
    consumer.take(20)
    cluster.stop_node(2)
    write(cluster, 0, 10)
    start = consumer.clock.now
    assert offsets(consumer.take(10)) == list(range(20, 30))
    assert consumer.clock.now - start < 3_000


def test_a_follower_that_lags_is_no_reason_to_reset() -> None:
    """F-19: OFFSET_OUT_OF_RANGE of a follower behind its leader sends the fetch to the leader."""
    cluster = two_racks()
    consumer = LoopbackConsumer(cluster, client_rack="b")
    consumer.assign(T0)
    consumer.take(20)
    cluster.partition("t", 0).replica_views[2] = ReplicaView(log_end_offset=10, high_watermark=5)
    write(cluster, 0, 10)
    cluster.requests.clear()
    assert offsets(consumer.take(10)) == list(range(20, 30))
    assert not cluster.requests.select(ApiKey.LIST_OFFSETS)


# -- out of range --------------------------------------------------------------------------


def test_an_offset_that_is_gone_is_reset_by_policy(caplog: pytest.LogCaptureFixture) -> None:
    """P-10: with a policy the position moves, and a warning names both offsets."""
    cluster = make_cluster(leaders=[1], records=40)
    consumer = LoopbackConsumer(cluster)
    consumer.assign(T0)
    consumer.seek(T0, 3)
    with cluster.changing():
        cluster.log("t", 0).delete_before(25)
    with caplog.at_level(logging.WARNING, "kfast"):
        assert offsets(consumer.take(15)) == list(range(25, 40))
    assert "3" in caplog.text
    assert "25" in caplog.text


def test_an_offset_that_is_gone_is_an_error_without_policy() -> None:
    """P-10: OffsetOutOfRange carries topic, partition and offset; seeking makes it good."""
    cluster = make_cluster(leaders=[1], records=40)
    consumer = LoopbackConsumer(cluster, auto_offset_reset="none")
    consumer.assign(T0)
    consumer.seek(T0, 3)
    with cluster.changing():
        cluster.log("t", 0).delete_before(25)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            consumer.take(1)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 3)
    assert not caught.value.retriable
    consumer.seek(T0, 30)
    assert offsets(consumer.take(10)) == list(range(30, 40))


def test_other_partitions_go_on_beside_one_in_error() -> None:
    """F-08, F-22: an error of one partition does not hold up the others."""
    cluster = make_cluster(nodes=1, partitions=2, records=40)
    consumer = LoopbackConsumer(cluster, auto_offset_reset="none")
    other = TopicPartition("t", 1)
    consumer.assign(T0, other)
    consumer.seek(T0, 1_000)
    consumer.seek(other, 0)
    found: list[int] = []
    errors: list[KafkaError] = []
    while len(found) < 40 or not errors:
        try:
            found += (row.offset for row in consumer.poll(1_000).get(other) or ())
        except KafkaError as error:
            errors.append(error)
        assert len(errors) < 20
    assert found == list(range(40))
    assert {type(error) for error in errors} == {OffsetOutOfRangeError}
    assert {error.partition for error in errors} == {0}
