"""Positions of the public consumer: where it starts, seeks, looks up, lags."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from kfast import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kfast.errors import (
    ConfigurationError,
    IllegalStateError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import Delay, EditResponse, NeverAnswer, PartitionError
from tests.end_to_end.stage import Stage, error_of, eventually, offsets, partitions, read
from tests.end_to_end.virtual import T0, T1, make_cluster, write
from tests.simulation.partition_faults import OmitPartition

MakeStage = Callable[..., Stage]


def timed_cluster() -> FakeCluster:
    """Return a topic whose record n has the timestamp 1000 + 10 n."""
    cluster = FakeCluster(2)
    cluster.create_topic("t", 2)
    for partition in range(2):
        records = [Record(value=b"v", timestamp=1_000 + 10 * n) for n in range(20)]
        cluster.append("t", partition, records, batch_records=3)
    return cluster


# -- where reading starts ------------------------------------------------------------------


def test_policies(make_stage: MakeStage) -> None:
    """P-01, P-02: earliest, latest and none, and a seek before any of them."""
    cluster = make_cluster(nodes=1)
    stage = make_stage(cluster)
    assert offsets(read(stage.consumer("t", auto_offset_reset="earliest"), 20)) == list(range(20))
    latest = stage.consumer(auto_offset_reset="latest")
    latest.assign([T0])
    assert latest.position(T0) == 20
    write(cluster, 0, 3)
    assert offsets(read(latest, 3)) == [20, 21, 22]
    none = stage.consumer(auto_offset_reset="none")
    none.assign([T0])
    error = error_of(none)
    assert isinstance(error, NoOffsetForPartitionError)
    assert "t-0" in str(error)
    none.seek(T0, 5)
    assert offsets(read(none, 18)) == list(range(5, 23))


def test_a_policy_by_duration(make_stage: MakeStage) -> None:
    """P-02: by_duration starts at the first record that is recent enough (KIP-1106)."""
    now_ms = int(time.time() * 1000)
    cluster = FakeCluster()
    cluster.create_topic("t")
    ages_ms = (7_200_000, 4_000_000, 1_000_000, 10_000)
    cluster.append("t", 0, [Record(value=b"v", timestamp=now_ms - age) for age in ages_ms])
    consumer = make_stage(cluster).consumer("t", auto_offset_reset="by_duration:PT1H")
    assert offsets(read(consumer, 2)) == [2, 3]
    for bad in ("by_duration:-PT1H", "by_duration:soon", "by_duration:"):
        with pytest.raises(ConfigurationError):
            make_stage(FakeCluster()).consumer("t", auto_offset_reset=bad)


def test_a_late_reset_does_not_override_a_seek(make_stage: MakeStage) -> None:
    """P-03: the answer of a look-up under way when the user seeks is dropped."""
    cluster = make_cluster(nodes=1)
    rule = cluster.faults.add(Delay(300), api=ApiKey.LIST_OFFSETS)
    consumer = make_stage(cluster).consumer()
    consumer.assign([T0])
    consumer.poll(timeout_ms=0)
    assert cluster.requests.wait_for(lambda log: len(log.select(ApiKey.LIST_OFFSETS)) == 1)
    consumer.seek(T0, 15)
    assert offsets(read(consumer, 5)) == [15, 16, 17, 18, 19]
    assert rule.hits == 1


def test_an_answer_without_the_partition_is_no_position(make_stage: MakeStage) -> None:
    """P-09: offset -1 and omitted partitions are asked for again."""

    def without_offset(response: object, _: object) -> None:
        response.topics[0].partitions[0].offset = -1  # type: ignore[attr-defined]

    cluster = make_cluster(nodes=1)
    cluster.faults.add(OmitPartition(), api=ApiKey.LIST_OFFSETS)
    cluster.faults.add(EditResponse(without_offset), api=ApiKey.LIST_OFFSETS, nth=2)
    cluster.faults.add(PartitionError(78), api=ApiKey.LIST_OFFSETS, nth=3)
    consumer = make_stage(cluster).consumer()
    consumer.assign([T0])
    assert consumer.position(T0) == 0
    assert offsets(read(consumer, 20)) == list(range(20))


# -- seek ----------------------------------------------------------------------------------


def test_seek_drops_what_is_buffered_of_its_partition_only(make_stage: MakeStage) -> None:
    """P-04: the next record has the target's offset; the other partition goes on."""
    consumer = make_stage(make_cluster(nodes=1, partitions=2, records=100)).consumer("t")
    found = read(consumer, 10)
    other = len(found.get(T1, []))
    consumer.seek(T0, 95)
    found = read(consumer, 5 + 100 - other)
    assert offsets(found) == [95, 96, 97, 98, 99]
    assert offsets(found, 1) == list(range(other, 100))
    for _ in range(3):
        consumer.seek(T0, 42)
        assert offsets(read(consumer, 58)) == list(range(42, 100))


def test_bad_seeks_raise_at_once(make_stage: MakeStage) -> None:
    """P-04: an unassigned partition, a negative offset, something that is no offset."""
    consumer = make_stage(make_cluster(nodes=1)).consumer()
    consumer.assign([T0])
    for partition, offset in ((T1, 0), (T0, -1)):
        with pytest.raises(IllegalStateError):
            consumer.seek(partition, offset)
    with pytest.raises(ConfigurationError):
        consumer.seek(T0, "0")  # type: ignore[arg-type]
    with pytest.raises(IllegalStateError):
        consumer.seek_to_beginning(T1)


def test_seek_to_either_end(make_stage: MakeStage) -> None:
    """P-05: lazy, for all partitions without arguments, forced by position()."""
    cluster = make_cluster(nodes=1, partitions=2)
    with cluster.changing():
        cluster.log("t", 0).delete_before(5)
    with cluster.writing("t", 1) as writer:
        writer.append([b"open"], producer_id=1, is_transactional=True)
    stage = make_stage(cluster)
    for isolation_level, end in (("read_uncommitted", 21), ("read_committed", 20)):
        consumer = stage.consumer(isolation_level=isolation_level)
        consumer.assign(partitions(0, 1))
        consumer.seek_to_end()
        assert [consumer.position(T0), consumer.position(T1)] == [20, end]
        consumer.seek_to_beginning(T0)
        assert [consumer.position(T0), consumer.position(T1)] == [5, end]
        assert offsets(read(consumer, 15)) == list(range(5, 20))


def test_seek_with_an_epoch_is_validated_first(make_stage: MakeStage) -> None:
    """P-14, P-16: a saved position with its epoch is checked against the log."""
    cluster = make_cluster(nodes=2, leaders=[1], batch_records=4)
    cluster.move_leader("t", 0, 2, truncate_to=8)
    write(cluster, 0, 20)
    consumer = make_stage(cluster).consumer()
    consumer.assign([T0])
    consumer.seek(T0, OffsetAndMetadata(14, "", 0))
    assert offsets(read(consumer, 20))[0] == 8
    assert cluster.requests.select(ApiKey.OFFSET_FOR_LEADER_EPOCH)


# -- position, lag -------------------------------------------------------------------------


def test_position_and_lag(make_stage: MakeStage) -> None:
    """P-06, P-12: position is behind the last returned record; lag needs no network."""
    cluster = make_cluster(nodes=1, records=30)
    consumer = make_stage(cluster).consumer(max_poll_records=10)
    with pytest.raises(IllegalStateError):
        consumer.position(T0)
    consumer.assign([T0])
    assert consumer.current_lag(T0) is None
    assert consumer.position(T0) == 0
    assert offsets(read(consumer, 10)) == list(range(10))
    assert consumer.position(T0) == 10
    asked = len(cluster.requests)
    assert consumer.current_lag(T0) == 20
    assert consumer.highwater(T0) == 30
    assert len(cluster.requests) - asked <= 2


def test_position_obeys_its_timeout(make_stage: MakeStage) -> None:
    """P-06, E-06: the error names what was waited for."""
    cluster = make_cluster(nodes=1)
    cluster.faults.add(NeverAnswer(), api=ApiKey.LIST_OFFSETS, times=None)
    consumer = make_stage(cluster).consumer()
    consumer.assign([T0, TopicPartition("t", 7)])
    for partition in (T0, TopicPartition("t", 7)):
        with pytest.raises(KafkaTimeoutError, match=f"t-{partition.partition}") as caught:
            consumer.position(partition, timeout_ms=300)
        assert caught.value.retriable


# -- look-ups ------------------------------------------------------------------------------


def test_offsets_for_times(make_stage: MakeStage) -> None:
    """P-07: the first record that is not older, None where there is none."""
    consumer = make_stage(timed_cluster()).consumer()
    assert consumer.offsets_for_times({T0: 1_055, T1: 5_000}) == {
        T0: OffsetAndTimestamp(6, 1_060, 0),
        T1: None,
    }
    assert consumer.offsets_for_times({T0: 0}) == {T0: OffsetAndTimestamp(0, 1_000, 0)}
    assert consumer.offsets_for_times({}) == {}
    at_once = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert consumer.offsets_for_times({T0: at_once}) == {T0: OffsetAndTimestamp(0, 1_000, 0)}


def test_both_ends(make_stage: MakeStage) -> None:
    """P-08: neither needs an assignment nor moves a position."""
    cluster = timed_cluster()
    with cluster.changing():
        cluster.log("t", 1).delete_before(7)
    consumer = make_stage(cluster).consumer()
    assert consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 7}
    assert consumer.end_offsets([T0, T1]) == {T0: 20, T1: 20}
    assert consumer.assignment() == set()


def test_look_ups_survive_errors(make_stage: MakeStage) -> None:
    """P-08: each partition is asked again on its own until it answers."""
    cluster = timed_cluster()
    for code in (6, 5, 78, 3):
        cluster.faults.add(PartitionError(code, "t", 0), api=ApiKey.LIST_OFFSETS)
    consumer = make_stage(cluster).consumer()
    assert consumer.end_offsets([T0, T1]) == {T0: 20, T1: 20}


def test_look_ups_of_unknown_topics_time_out(make_stage: MakeStage) -> None:
    """P-07, E-06: they end with an error that names the partition, they never hang."""
    consumer = make_stage(timed_cluster()).consumer()
    unknown = TopicPartition("nowhere", 0)
    for look_up in (
        lambda: consumer.offsets_for_times({unknown: 0, T0: 0}, timeout_ms=300),
        lambda: consumer.end_offsets([unknown, T0], timeout_ms=300),
        lambda: consumer.beginning_offsets([TopicPartition("t", 99)], timeout_ms=300),
    ):
        with pytest.raises(KafkaTimeoutError, match=r"nowhere-0|t-99"):
            look_up()
    assert consumer.end_offsets([T0]) == {T0: 20}


# -- lag of partitions whose broker has nothing new to say ---------------------------------


def test_lag_is_known_again_after_a_rebalance_without_new_records(make_stage: MakeStage) -> None:
    """U-07: the partition is the same in the fetch session (KIP-227), which leaves it out."""
    reader = make_stage(make_cluster(nodes=1), fetch_max_wait_ms=500).consumer("t", group_id="g")
    read(reader, 20)
    eventually(lambda: not reader.poll(timeout_ms=50) and reader.current_lag(T0) == 0)
    reader.commit()

    def is_read_again() -> bool:
        is_empty = not reader.poll(timeout_ms=50)
        return is_empty and T0 in reader.assignment() and reader.current_lag(T0) == 0

    for _ in range(3):
        reader.enforce_rebalance()
        eventually(is_read_again)
        assert reader.highwater(T0) == 20
        assert reader.metrics()["consumer-fetch-manager-metrics.t-0"]["records-lead"] == 20


def test_lag_is_known_again_after_assigning_anew(make_stage: MakeStage) -> None:
    """U-07: also at another position of the same log, and to the last stable offset."""
    cluster = make_cluster(nodes=1)
    reader = make_stage(cluster).consumer(isolation_level="read_committed")
    for offset in (20, 20, 17, 20):
        reader.unsubscribe()
        reader.assign([T0])
        reader.seek(T0, offset)
        eventually(lambda: reader.poll(timeout_ms=50) is not None and reader.current_lag(T0) == 0)
        assert reader.highwater(T0) == 20
    write(cluster, 0, 3)
    assert offsets(read(reader, 3)) == [20, 21, 22]
    assert reader.highwater(T0) == 23


# -- resets that lead nowhere --------------------------------------------------------------


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_position_that_stays_out_of_range_is_reset_after_growing_pauses(
    make_stage: MakeStage, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    """U-08: a broker whose log and answers differ is not asked in a tight loop; one warning."""
    cluster = make_cluster(nodes=1)
    rule = cluster.faults.add(PartitionError(1), api=ApiKey.FETCH, times=None)
    consumer = make_stage(cluster, retry_backoff_ms=100, retry_backoff_max_ms=1_000).consumer(
        auto_offset_reset=policy
    )
    consumer.assign([T0])
    begun = time.monotonic()
    while time.monotonic() < begun + 1.0:
        assert not consumer.poll(timeout_ms=100)
    asked = len([each for each in cluster.requests if each.api_key == ApiKey.LIST_OFFSETS])
    assert 2 <= asked <= 8
    assert rule.hits <= 8
    again = [each for each in caplog.messages if "although the last reset has found it" in each]
    assert len(again) == 1
    assert not [each for each in caplog.messages if "is gone" in each]
    cluster.faults.clear()
    write(cluster, 0, 5)
    consumer.seek(T0, 20)
    assert offsets(read(consumer, 5)) == [20, 21, 22, 23, 24]
