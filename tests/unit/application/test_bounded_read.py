"""`BoundedRead` in virtual time: it ends exactly, and what it does where records do not come."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import pytest

from kfast.application.bounded_read import (
    BoundedRead,
    Loss,
    LossKind,
    ReadPolicy,
    error_of,
)
from kfast.errors import (
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.records.partition_records import PartitionRecords
from kfast.settings.offset_reset import RESET_EARLIEST, RESET_NONE
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import NeverAnswer, PartitionError
from kfast.testing.topology import NO_LEADER
from kfast.types import TopicPartition
from tests.end_to_end.virtual import T0, T1, make_cluster
from tests.simulation.loopback_consumer import LoopbackConsumer

READ_UNCOMMITTED = 0
SMALL = {"max_partition_fetch_bytes": 200, "buffer_memory_bytes": 1_000}
"""Little is fetched ahead, so that the log can change in front of the reader."""
LOSES = ReadPolicy(skips_lost=True, ends_early=True)


class SimulatedConsumer:
    """The calls of a ``KafkaConsumer`` that a read makes, and its ``_internals``."""

    def __init__(self, cluster: FakeCluster, **configs: Any) -> None:
        self.loopback = LoopbackConsumer(cluster, **{"request_timeout_ms": 5_000, **configs})
        self.subscriptions = self.loopback.subscriptions
        self.timeout_ms = self.loopback.config.default_api_timeout_ms
        self.lookups: list[set[TopicPartition]] = []

    @property
    def _internals(self) -> Any:
        return self

    def read_range(self, ends: Mapping[TopicPartition, int]) -> None:
        self.subscriptions.default_reset_strategy = RESET_NONE
        self.subscriptions.end_fetching_at(ends)

    def position(self, tp: TopicPartition) -> int | None:
        return self.loopback.position(tp)

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.lookups.append({*partitions})
        return self._listed(self.lookups[-1], -1)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._listed(partitions, -2)

    def _listed(self, partitions: Iterable[TopicPartition], time: int) -> dict[TopicPartition, int]:
        deadline_ms = self.loopback.clock.now + self.timeout_ms
        listed = self.loopback.wait(
            self.loopback.offsets.list_offsets(
                dict.fromkeys(partitions, time), deadline_ms, READ_UNCOMMITTED
            ),
            self.timeout_ms + 1_000,
        )
        return {tp: hit.offset for tp, hit in listed.items() if hit is not None}

    def poll(self, timeout_ms: int) -> Any:
        return self.loopback.poll(timeout_ms)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        self.loopback.assign(*partitions)

    def assignment(self) -> set[TopicPartition]:
        return set(self.subscriptions.assigned_partitions())

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.loopback.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self.subscriptions.request_offset_reset(partitions, RESET_EARLIEST)

    def pause(self, *partitions: TopicPartition) -> None:
        self.subscriptions.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.subscriptions.resume(partitions)


class Reader:
    """A read with what it has returned and lost."""

    def __init__(
        self, cluster: FakeCluster, policy: ReadPolicy | None = None, **configs: Any
    ) -> None:
        self.cluster = cluster
        self.consumer = SimulatedConsumer(cluster, **configs)
        self.clock = self.consumer.loopback.clock
        self.rows: dict[TopicPartition, list[int]] = {}
        self.lost: list[Loss] = []
        self.errors: list[KafkaError] = []
        self.read: BoundedRead[PartitionRecords] = BoundedRead(
            self.consumer,
            policy or ReadPolicy(),
            lambda loss: error_of(loss, "the hint"),
            self._lose,
            clock=self.clock,
        )

    def _lose(self, loss: Loss, error: KafkaError) -> None:
        self.lost.append(loss)
        self.errors.append(error)

    def begin(self, *ends: int, start: int = 0) -> Reader:
        """Begin to read the first partitions up to these ends."""
        bounds = dict(zip((T0, T1), ends, strict=False))
        self.read.begin({tp: (start, end) for tp, end in bounds.items()})
        return self

    def poll(self, timeout_ms: int = 1_000) -> None:
        for tp, batch in self.read.poll(timeout_ms):
            self.rows.setdefault(tp, []).extend(batch.offsets.tolist())

    def to_end(self) -> list[int]:
        """Read to the ends; return the offsets of t-0."""
        deadline_ms = self.clock.now + 600_000
        while self.read.ends:
            assert self.clock.now < deadline_ms
            self.poll()
        return self.rows.get(T0, [])

    @property
    def losses(self) -> list[tuple[LossKind, int, int | None]]:
        return [(loss.kind, loss.position, loss.until) for loss in self.lost]


def begun(
    policy: ReadPolicy | None = None, end: int = 20, records: int = 20, **more: Any
) -> Reader:
    """Return a reader that has read the first batch of "t", and little ahead of it."""
    cluster = make_cluster(3, records=records, leaders=[1])
    reader = Reader(cluster, policy, **{**SMALL, **more}).begin(end)
    reader.poll()
    assert reader.rows[T0][0] == 0
    assert len(reader.rows[T0]) < 10
    return reader


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "end"), [(0, 20), (3, 7), (4, 5), (5, 10), (19, 20)])
def test_a_range_ends_in_the_middle_of_batches(start: int, end: int) -> None:
    reader = Reader(make_cluster()).begin(end, start=start)
    assert reader.to_end() == list(range(start, end))
    assert (reader.read.positions, reader.read.done) == ({T0: end}, end - start)
    assert reader.consumer.lookups == [], "nothing is looked up while records come"


def test_a_compaction_gap_at_the_end_is_passed() -> None:
    """The position counts, not the last record."""
    cluster = make_cluster(records=10)
    with cluster.writing("t", 0) as writer:
        writer.append_emptied(5)
    assert Reader(cluster).begin(15).to_end() == list(range(10))
    assert Reader(cluster).begin(12).to_end() == list(range(10))


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_transaction_marker_at_the_end_is_passed(is_committed: bool) -> None:
    cluster = make_cluster(records=10)
    with cluster.writing("t", 0) as writer:
        writer.append([b"x"] * 3, producer_id=1, is_transactional=True)
        writer.end_transaction(1, committed=is_committed)
    expected = list(range(13 if is_committed else 10))
    for end in (13, 14):
        reader = Reader(cluster, isolation_level="read_committed").begin(end)
        assert reader.to_end() == expected


def test_an_empty_partition_is_not_waited_for() -> None:
    cluster = make_cluster(partitions=2)
    reader = Reader(cluster).begin(20, 0)
    assert reader.to_end() == list(range(20))
    assert reader.consumer.assignment() == {T0}
    empty = Reader(cluster).begin(0, 0)
    assert empty.to_end() == []
    assert empty.consumer.assignment() == set()
    assert not cluster.requests.select(ApiKey.FETCH)[20:]


def test_an_end_before_the_start_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """E-02: the other partitions are read."""
    with caplog.at_level(logging.WARNING, "kfast"):
        reader = Reader(make_cluster(partitions=2)).begin(3, 20, start=8)
    assert reader.to_end() == []
    assert reader.rows == {T1: list(range(8, 20))}
    assert reader.read.done == 12
    assert "t-0: start 8 is beyond end 3" in caplog.text


def test_what_is_buffered_behind_an_end_is_not_returned() -> None:
    cluster = make_cluster(partitions=2)
    reader = Reader(cluster).begin(3, 18)
    reader.to_end()
    assert reader.rows == {T0: [0, 1, 2], T1: list(range(18))}
    assert reader.consumer.subscriptions.paused_partitions() <= {T0, T1}


def test_a_read_begins_again_with_others() -> None:
    reader = Reader(make_cluster()).begin(20, start=15)
    reader.to_end()
    reader.read.begin({T0: (5, 15)})
    assert reader.to_end() == [*range(15, 20), *range(5, 15)]


# --- offsets that are gone ------------------------------------------------------------------------


def test_a_log_whose_start_moves_while_it_is_read() -> None:
    """P-10: an error, whatever ``auto.offset.reset`` says, or skipped and counted."""
    failing = begun()
    failing.cluster.log("t", 0).delete_before(17)
    with pytest.raises(OffsetOutOfRangeError, match="the log now starts at 17") as caught:
        failing.to_end()
    assert caught.value.hint == "the hint"
    skipping = begun(ReadPolicy(skips_lost=True))
    skipping.cluster.log("t", 0).delete_before(17)
    rows = skipping.to_end()
    ((kind, first, until),) = skipping.losses
    assert (kind, until) == (LossKind.GONE, 17)
    assert rows == [*range(first), 17, 18, 19]
    assert skipping.read.done == 20


def test_all_of_the_rest_may_be_gone() -> None:
    reader = begun(LOSES)
    reader.cluster.append("t", 0, [b"later"] * 10)
    reader.cluster.log("t", 0).delete_before(25)
    rows = reader.to_end()
    assert reader.losses == [(LossKind.GONE, len(rows), 20)]


# --- logs that are shortened ----------------------------------------------------------------------


def test_a_truncated_log_is_an_error() -> None:
    """E-13: an unclean leader election; what was read may not be in the log any more."""
    reader = begun()
    reader.cluster.move_leader("t", 0, 2, truncate_to=3)
    with pytest.raises(LogTruncationError) as caught:
        reader.to_end()
    assert caught.value.hint == "the hint"


@pytest.mark.parametrize("behind", [10, 15])
def test_a_log_that_is_truncated_behind_the_position_is_shortened(behind: int) -> None:
    """E-13: looked up after a second without records."""
    reader = begun()
    begun_ms = reader.clock.now
    reader.cluster.move_leader("t", 0, 2, truncate_to=behind)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        reader.to_end()
    assert caught.value.message == (
        f"the log of t-0 ends at {behind} now, and was to be read to 20"
    )
    assert reader.clock.now - begun_ms < 10_000
    assert reader.rows[T0] == list(range(behind)), "what there is comes first"


def test_a_shortened_log_may_end_a_partition_early() -> None:
    reader = begun(LOSES)
    reader.cluster.move_leader("t", 0, 2, truncate_to=10)
    assert reader.to_end() == list(range(10))
    assert reader.losses == [(LossKind.SHORTENED, 10, 20)]
    assert reader.errors[0].message.startswith("the log of t-0 ends at 10 now")


def test_a_log_that_is_truncated_before_the_position_may_end_a_partition_early() -> None:
    reader = begun(LOSES)
    reader.cluster.move_leader("t", 0, 2, truncate_to=3)
    rows = reader.to_end()
    assert reader.losses == [(LossKind.SHORTENED, len(rows), 20)]


def test_a_log_that_was_truncated_and_written_again_is_an_error() -> None:
    """It has the range, of which some is other records: nothing may be skipped."""
    reader = begun(LOSES)
    reader.cluster.move_leader("t", 0, 2, truncate_to=3)
    reader.cluster.append("t", 0, [b"other"] * 30)
    with pytest.raises(LogTruncationError):
        reader.to_end()


# --- topics that are deleted ----------------------------------------------------------------------


def recreate(cluster: FakeCluster) -> None:
    cluster.recreate_topic("t")
    cluster.append("t", 0, [b"new"] * 30, batch_records=5)


@pytest.mark.parametrize("policy", [ReadPolicy(), ReadPolicy(skips_lost=True)])
def test_a_topic_created_anew_is_an_error(policy: ReadPolicy) -> None:
    """E-13: under another topic id its offsets are of other records, so none of it is returned."""
    reader = begun(policy)
    recreate(reader.cluster)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        reader.to_end()
    assert caught.value.message == "t was deleted and created anew while it was read"
    assert len(reader.rows[T0]) < 20


@pytest.mark.parametrize("is_of_new_topic", [False, True])
def test_a_topic_created_anew_may_end_a_partition_early(is_of_new_topic: bool) -> None:
    """Q-02: its records are not taken for the rest of the range."""
    reader = begun(ReadPolicy(skips_lost=True, ends_early=True, is_of_new_topic=is_of_new_topic))
    recreate(reader.cluster)
    rows = reader.to_end()
    assert reader.losses == [(LossKind.CREATED_ANEW, len(rows), 20)]
    assert len(rows) < 20


def test_a_range_of_a_new_topic_is_read_by_a_consumer_that_knew_the_old_one() -> None:
    """The plan was made for the topic there is now."""
    cluster = make_cluster(1, records=20)
    reader = Reader(cluster, ReadPolicy(is_of_new_topic=True, waits_for_brokers=True))
    reader.begin(20).to_end()
    reader.rows.clear()
    recreate(cluster)
    assert reader.begin(30).to_end() == list(range(30))


def test_a_new_topic_is_followed_from_its_beginning() -> None:
    """CL-47"""
    cluster = make_cluster(1, records=20)
    policy = ReadPolicy(skips_lost=True, follows_new_topic=True)
    reader = Reader(cluster, policy)
    reader.read.follow({T0: 18})
    reader.poll()
    assert reader.rows == {T0: [18, 19]}
    recreate(cluster)
    until_ms = reader.clock.now + 60_000
    while len(reader.rows[T0]) < 32 and reader.clock.now < until_ms:
        reader.poll()
    assert reader.rows[T0] == [18, 19, *range(30)]


@pytest.mark.parametrize("waits", [False, True])
def test_a_deleted_topic(waits: bool) -> None:
    """E-13: an error after a second or so, or the partition ends early."""
    reader = begun(ReadPolicy(waits_for_brokers=waits))
    begun_ms = reader.clock.now
    reader.cluster.delete_topic("t")
    with pytest.raises(UnknownTopicOrPartitionError):
        reader.to_end()
    assert reader.clock.now - begun_ms < 20_000
    losing = begun(ReadPolicy(skips_lost=True, ends_early=True, waits_for_brokers=True))
    losing.cluster.delete_topic("t")
    rows = losing.to_end()
    assert losing.losses == [(LossKind.DELETED, len(rows), 20)]


# --- silence --------------------------------------------------------------------------------------


def without_leader(reader: Reader) -> None:
    reader.cluster.move_leader("t", 0, NO_LEADER)


def silent_broker(reader: Reader) -> None:
    for api in (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA):
        reader.cluster.faults.add(NeverAnswer(), api=api, times=None)


def failing_fetches(reader: Reader) -> None:
    """The broker has the log and answers, but does not hand out records."""
    reader.cluster.faults.add(PartitionError(-1), api=ApiKey.FETCH, times=None)


@pytest.mark.parametrize("silence", [without_leader, silent_broker, failing_fetches])
@pytest.mark.parametrize("waits", [False, True])
def test_silence_ends_after_the_timeout(silence: Callable[[Reader], None], waits: bool) -> None:
    """E-13: a read does not wait for ever, whatever it is that does not come."""
    reader = begun(ReadPolicy(waits_for_brokers=waits), default_api_timeout_ms=20_000)
    silence(reader)
    begun_ms = reader.clock.now
    with pytest.raises(KafkaTimeoutError):
        reader.to_end()
    assert 20_000 <= reader.clock.now - begun_ms < 60_000


def test_a_policy_may_have_a_time_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    reader = begun(ReadPolicy(waits_for_brokers=True, silence_ms=90_000))
    without_leader(reader)
    begun_ms = reader.clock.now
    with (
        caplog.at_level(logging.WARNING, "kfast.application.bounded_read"),
        pytest.raises(KafkaTimeoutError) as caught,
    ):
        reader.to_end()
    assert 90_000 <= reader.clock.now - begun_ms < 200_000
    assert caught.value.message == "no records for 90000 ms, though the logs have more"
    assert caught.value.found == f"t-0 was read up to offset {len(reader.rows[T0])}"


def test_a_leader_that_comes_back_is_waited_for() -> None:
    reader = begun(ReadPolicy(waits_for_brokers=True), default_api_timeout_ms=60_000)
    without_leader(reader)
    reader.consumer.loopback.network.schedule(20_000, lambda: reader.cluster.move_leader("t", 0, 2))
    assert reader.to_end() == list(range(20))


def test_an_open_transaction_is_waited_for() -> None:
    """T-10: the log has the range, so it is not shortened."""
    cluster = make_cluster(records=10)
    with cluster.writing("t", 0) as writer:
        writer.append([b"open"] * 3, producer_id=1, is_transactional=True)

    def commit() -> None:
        with cluster.writing("t", 0) as writer:
            writer.end_transaction(1, committed=True)

    reader = Reader(cluster, isolation_level="read_committed").begin(14)
    cluster.append("t", 0, [])
    reader.consumer.loopback.network.schedule(10_000, commit)
    with pytest.raises(OffsetOutOfRangeError, match="ends at 13 now"):
        reader.to_end()
    reader = Reader(cluster, isolation_level="read_committed").begin(13)
    reader.consumer.loopback.network.schedule(10_000, commit)
    assert reader.to_end() == list(range(13))


def test_the_time_of_the_caller_is_no_silence() -> None:
    reader = begun(ReadPolicy(waits_for_brokers=True), default_api_timeout_ms=20_000)
    reader.clock.advance(100_000)
    assert reader.to_end() == list(range(20))


def test_a_log_that_is_followed_may_be_silent() -> None:
    cluster = make_cluster(1, records=20)
    reader = Reader(cluster, ReadPolicy(waits_for_brokers=True), default_api_timeout_ms=20_000)
    reader.read.follow({T0: 20})
    for _ in range(100):
        reader.poll()
    assert reader.rows == {}
    cluster.append("t", 0, [b"new"])
    reader.poll()
    assert reader.rows == {T0: [20]}
    cluster.add_partitions("t", 2)
    cluster.append("t", 1, [b"more"] * 2)
    reader.read.add({T1: None})
    until_ms = reader.clock.now + 30_000
    while T1 not in reader.rows and reader.clock.now < until_ms:
        reader.poll()
    assert reader.rows[T1] == [0, 1]
