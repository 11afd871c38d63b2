"""Q-08, Q-09, Q-10: topics deleted while a query is planned, and what is kept of a failed plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfast.errors import (
    KafkaConnectionError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kfast.spark.source.driver import OffsetLookup
from kfast.spark.source.options import SourceOptions, parse_options
from kfast.spark.source.stream_offsets import ENDS_MAX_AGE_MS, StreamOffsets
from kfast.table.offset_ranges import OffsetRange
from kfast.table.store import LocalStore
from kfast.table.topic_ids import TopicIds
from kfast.testing.server import BrokerServer
from kfast.types import TopicPartition
from tests.end_to_end.ingests import START_MS, Truth
from tests.fake_clock import FakeClock
from tests.spark.support import FakeLookup, at, options, tp

STAYS, GOES = TopicPartition("orders-a", 0), TopicPartition("orders-b", 0)


@pytest.fixture
def truth() -> Truth:
    """Two topics that one pattern matches, with a record each."""
    truth = Truth("orders-a", 1)
    truth.cluster.create_topic("orders-b", 1)
    for topic, count in (("orders-a", 9), ("orders-b", 4)):
        truth.write(0, count, topic)
    return truth


@pytest.fixture
def servers(truth: Truth) -> Iterator[str]:
    """Their broker."""
    with BrokerServer(truth.cluster) as server:
        yield server.bootstrap_servers


class DeletingLookup(OffsetLookup):
    """Deletes a topic right after a listing that had it."""

    def __init__(self, options: SourceOptions, delete: Callable[[], object]) -> None:
        super().__init__(options, sleep=lambda _: None)
        self.delete: Callable[[], object] | None = delete

    def partitions(self, *, must_exist: bool) -> set[TopicPartition]:
        """List, then delete."""
        listed = super().partitions(must_exist=must_exist)
        if self.delete is not None:
            delete, self.delete = self.delete, None
            delete()
        return listed


def chosen(servers: str, is_stream: bool = True, **more: str) -> SourceOptions:
    """Return the options of a query of all orders."""
    if "subscribe" not in more:
        more["subscribePattern"] = "orders-.*"
    return parse_options({"kafka.bootstrap.servers": servers, **more}, is_stream=is_stream)


def deleting(truth: Truth, options: SourceOptions) -> DeletingLookup:
    """Return look-ups between which the second topic is deleted."""
    return DeletingLookup(options, lambda: truth.cluster.delete_topic("orders-b"))


def test_a_stream_goes_on_without_a_topic_that_is_deleted_between_look_ups(
    truth: Truth, servers: str
) -> None:
    """Q-08: with failOnDataLoss=false."""
    options = chosen(servers, failOnDataLoss="false")
    lookup = deleting(truth, options)
    try:
        offsets = StreamOffsets(options, lookup, FakeClock())
        assert offsets.next_end({STAYS: 5, GOES: 2}, None) == {STAYS: 9}
        assert offsets.ranges({STAYS: 5, GOES: 2}, {STAYS: 9}) == [OffsetRange(*STAYS, 5, 9)]
    finally:
        lookup.close()


def test_a_stream_names_the_topic_that_is_deleted_between_look_ups(
    truth: Truth, servers: str
) -> None:
    """Q-08: it is data loss, and no unknown topic."""
    options = chosen(servers)
    lookup = deleting(truth, options)
    try:
        offsets = StreamOffsets(options, lookup, FakeClock())
        with pytest.raises(OffsetOutOfRangeError, match="orders-b-0 of this query are gone"):
            offsets.next_end({STAYS: 5, GOES: 2}, None)
    finally:
        lookup.close()


def test_a_new_partition_that_is_deleted_between_look_ups_is_not_read(
    truth: Truth, servers: str
) -> None:
    """Q-08: neither where a limit counts its offsets nor where the batch is planned."""
    for plan in (False, True):
        options = chosen(servers, failOnDataLoss="false")
        lookup = DeletingLookup(options, lambda: None)
        lookup.partitions(must_exist=False)
        if not truth.cluster.topics.get("orders-b"):
            truth.cluster.create_topic("orders-b", 1)
            truth.write(0, 4, "orders-b")
        offsets = StreamOffsets(options, lookup, FakeClock())
        try:
            end = offsets.latest()
            assert end == {STAYS: 9, GOES: 4}
            truth.cluster.delete_topic("orders-b")
            if plan:
                assert offsets.ranges({STAYS: 5}, end) == [OffsetRange(*STAYS, 5, 9)]
            else:
                assert offsets.next_end({STAYS: 5}, 3) == {STAYS: 8}
        finally:
            lookup.close()


def test_a_new_query_begins_without_a_topic_that_is_deleted_meanwhile(
    truth: Truth, servers: str
) -> None:
    """Q-08: of a pattern; a topic that was named is missed."""
    for start in ("latest", "earliest"):
        options = chosen(servers, startingOffsets=start)
        lookup = deleting(truth, options)
        try:
            assert set(StreamOffsets(options, lookup, FakeClock()).initial()) == {STAYS}
        finally:
            lookup.close()
        truth.cluster.create_topic("orders-b", 1)
    options = chosen(servers, subscribe="orders-a,orders-b")
    lookup = deleting(truth, options)
    try:
        with pytest.raises(UnknownTopicOrPartitionError, match='no topic "orders-b"'):
            StreamOffsets(options, lookup, FakeClock()).initial()
    finally:
        lookup.close()


def test_a_batch_query_is_planned_without_a_topic_that_is_deleted_meanwhile(
    truth: Truth, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q-08: of a pattern; a topic that was named is missed."""
    pytest.importorskip("pyspark")
    from kfast.spark.source.batch_reader import KafkaBatchReader, ranges_of  # noqa: PLC0415

    monkeypatch.setattr(
        "kfast.spark.source.driver.OffsetLookup", lambda options: deleting(truth, options)
    )
    columns: Any = None  # not used by a plan
    for more, until in (({}, 9), ({"endingTimestamp": str(START_MS + 60_000 * 3)}, 3)):
        options = chosen(servers, is_stream=False, **more)
        planned = KafkaBatchReader(options, columns).partitions()
        assert [ranges_of(task) for task in planned] == [(OffsetRange(*STAYS, 0, until),)]
        truth.cluster.create_topic("orders-b", 1)
    options = chosen(servers, is_stream=False, subscribe="orders-a,orders-b")
    with pytest.raises(UnknownTopicOrPartitionError, match='no topic "orders-b"'):
        KafkaBatchReader(options, columns).partitions()


class FailingLookup(FakeLookup):
    """Fails as often as a test says before it answers."""

    failures = 0

    def latest(self, partitions: Any) -> dict[TopicPartition, int]:
        """Return ends."""
        if self.failures:
            self.failures -= 1
            raise KafkaConnectionError("no broker")
        return super().latest(partitions)


def test_a_first_batch_whose_plan_failed_is_still_the_first() -> None:
    """Q-09: it ends where it starts, though the log has grown."""
    lookup = FailingLookup(at(0, 0), at(9, 9))
    given = options(is_stream=True, startingOffsets='{"t":{"0":-1,"1":4}}')
    clock = FakeClock()
    run = StreamOffsets(given, lookup, clock)
    start = run.initial()
    assert start == at(9, 4)
    lookup.ends = at(12, 12)
    lookup.failures = 1
    with pytest.raises(KafkaError, match="no broker"):
        run.next_end(start, None)
    assert run.next_end(start, None) == at(9, 12)
    clock.advance(ENDS_MAX_AGE_MS)
    assert run.next_end(at(9, 12), None) == at(12, 12), "only the first batch"


def test_a_batch_is_committed_under_the_ids_that_it_was_read_under(tmp_path: Path) -> None:
    """Q-10: not under that of a topic that was created anew since."""
    lookup = FakeLookup(at(0), at(9))
    lookup.topic_ids = {"t": "former"}
    clock = FakeClock()
    given = options(is_stream=True, startingOffsets="earliest", failOnDataLoss="false")
    run = StreamOffsets(given, lookup, clock, TopicIds(LocalStore(tmp_path)))
    assert run.batch_topic_ids == {}, "not known: committed by name"
    end = run.next_end(run.initial(), None)
    run.ranges(at(0), end)
    assert run.batch_topic_ids == {"t": "former"}
    lookup.topic_ids, lookup.ends = {"t": "anew"}, at(3)
    clock.advance(ENDS_MAX_AGE_MS)
    begin = run.next_end(end, None)
    assert begin == {tp(0): 0}
    assert run.batch_topic_ids == {"t": "former"}, "Spark commits `end` now"
    run.ranges(end, begin)
    assert run.batch_topic_ids == {"t": "anew"}
