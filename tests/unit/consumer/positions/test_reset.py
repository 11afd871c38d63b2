"""OffsetReset: positions by policy."""

from __future__ import annotations

import logging

import pytest

from kfast.consumer.fetch_position import FetchPosition
from kfast.errors import AuthenticationError, NoOffsetForPartitionError, TopicAuthorizationError
from kfast.protocol.messages.fetch import FetchRequest
from kfast.protocol.messages.list_offsets import ListOffsetsRequest
from kfast.settings.offset_reset import RESET_EARLIEST, RESET_LATEST
from kfast.types import TopicPartition
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.harness import Harness

ONE_NODE = {T0: (1, 5), T1: (1, 5), T2: (1, 5)}


def starting(*partitions: TopicPartition, reset: str = "earliest", **configs: object) -> Harness:
    harness = Harness(ONE_NODE, auto_offset_reset=reset, **configs)
    harness.subscriptions.assign_from_user(partitions or (T0,))
    return harness


@pytest.mark.parametrize(("reset", "timestamp"), [("earliest", -2), ("latest", -1)])
def test_new_partitions_start_by_policy(reset: str, timestamp: int) -> None:
    """P-01, P-02: earliest is -2, latest -1; all partitions of a leader in one request."""
    harness = starting(T0, T1, reset=reset)
    request = harness.take(ListOffsetsRequest)
    assert harness.asked_times(request) == {T0: timestamp, T1: timestamp}
    message = request.message
    assert isinstance(message, ListOffsetsRequest)
    assert message.replica_id == -1
    assert {part.current_leader_epoch for topic in message.topics for part in topic.partitions} == {
        5
    }
    harness.reply_offsets(request, {T0: 10, T1: 20})
    assert (harness.position(T0), harness.position(T1)) == (10, 20)
    assert harness.offsets_of(harness.fetch()) == {T0: 10, T1: 20}


def test_by_duration_asks_for_a_time() -> None:
    """P-02: the first offset with a timestamp at or after now - duration."""
    harness = starting(reset="by_duration:PT1H")
    request = harness.take(ListOffsetsRequest)
    assert harness.asked_times(request) == {T0: harness.clock.wall_ms() - 3_600_000}
    harness.reply_offsets(request, {T0: 77})
    assert harness.position(T0) == 77


def test_by_duration_falls_back_to_the_end() -> None:
    """P-02, P-09: no record that new: the end is asked for at once; -1 is not a position."""
    harness = starting(reset="by_duration:PT1H")
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: -1})
    assert harness.position(T0) is None
    request = harness.take(ListOffsetsRequest)
    assert harness.asked_times(request) == {T0: -1}
    harness.reply_offsets(request, {T0: 500})
    assert harness.position(T0) == 500


def test_none_raises_until_the_user_seeks() -> None:
    """P-02: NoOffsetForPartition at every poll; nothing is asked of a broker."""
    harness = starting(T0, T1, reset="none")
    assert harness.turn() == []
    for _ in range(2):
        with pytest.raises(NoOffsetForPartitionError, match="no position to start from"):
            harness.collect()
    harness.subscriptions.seek(T0, FetchPosition(0))
    with pytest.raises(NoOffsetForPartitionError, match="t-1"):
        harness.collect()
    harness.subscriptions.seek(T1, FetchPosition(0))
    assert harness.collect() == {}


def test_none_with_a_seek_before_the_poll_raises_nothing() -> None:
    """P-01: assign, then seek, even with a turn of the network thread in between."""
    harness = starting(reset="none")
    harness.turn()
    harness.subscriptions.seek(T0, FetchPosition(5))
    assert harness.collect() == {}
    assert harness.offsets_of(harness.fetch()) == {T0: 5}


def test_seek_to_the_ends() -> None:
    """P-05: lazily, by their own policy, forced by whoever waits for the position."""
    harness = Harness(ONE_NODE)
    harness.assign({T0: 5, T1: 5})
    harness.subscriptions.request_offset_reset([T0], RESET_EARLIEST)
    harness.subscriptions.request_offset_reset([T1], RESET_LATEST)
    assert harness.position(T0) is None
    request = harness.take(ListOffsetsRequest)
    assert harness.asked_times(request) == {T0: -2, T1: -1}
    harness.wakeup.look()
    harness.reply_offsets(request, {T0: 1, T1: 99})
    assert harness.wakeup.wait(0)
    assert (harness.position(T0), harness.position(T1)) == (1, 99)


@pytest.mark.parametrize(("level", "wire"), [("read_committed", 1), ("read_uncommitted", 0)])
def test_the_end_depends_on_the_isolation_level(level: str, wire: int) -> None:
    """P-05, T-10: under read_committed the end is the last stable offset."""
    harness = starting(reset="latest", isolation_level=level)
    message = harness.take(ListOffsetsRequest).message
    assert isinstance(message, ListOffsetsRequest)
    assert message.isolation_level == wire


def test_a_seek_wins_over_a_reset_under_way() -> None:
    """P-03: the answer is dropped."""
    harness = starting()
    request = harness.take(ListOffsetsRequest)
    harness.subscriptions.seek(T0, FetchPosition(42))
    harness.reply_offsets(request, {T0: 0})
    assert harness.position(T0) == 42


def test_a_second_reset_is_requested_while_the_first_is_in_flight() -> None:
    """P-03: seek_to_end after seek_to_beginning: the answer about the beginning is dropped."""
    harness = starting()
    first = harness.take(ListOffsetsRequest)
    harness.subscriptions.request_offset_reset([T0], RESET_LATEST)
    second = harness.take(ListOffsetsRequest)
    assert harness.asked_times(second) == {T0: -1}
    harness.reply_offsets(second, {T0: 900})
    harness.reply_offsets(first, {T0: 3})
    assert harness.position(T0) == 900


def test_an_unassigned_partition_is_forgotten() -> None:
    """P-03: revoked and assigned again: the old answer does not count."""
    harness = starting()
    request = harness.take(ListOffsetsRequest)
    harness.subscriptions.assign_from_user([T1])
    harness.subscriptions.assign_from_user([T0])
    harness.reply_offsets(request, {T0: 0})
    assert harness.position(T0) is None
    assert harness.asked_times(harness.take(ListOffsetsRequest)) == {T0: -2}


@pytest.mark.parametrize("bad", [-1, (3, -1), (6, -1), (74, -1), (75, -1), (78, -1), (-1, -1)])
def test_one_failing_partition_does_not_delay_the_others(bad: int | tuple[int, int]) -> None:
    """P-08, P-09: the others have their position; it is asked again after a pause."""
    harness = starting(T0, T1)
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: bad, T1: 20})
    assert harness.position(T0) is None
    assert harness.offsets_of(harness.fetch()) == {T1: 20}
    assert harness.waiting(ListOffsetsRequest) == []
    assert 0 < harness.next_poll_ms <= 1000
    harness.advance(1000)
    request = harness.take(ListOffsetsRequest)
    assert harness.asked_times(request) == {T0: -2}
    harness.reply_offsets(request, {T0: 10})
    assert harness.position(T0) == 10


def test_an_omitted_partition_is_requested_again() -> None:
    """P-09: what the answer leaves out is not a position."""
    harness = starting(T0, T1)
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T1: 20})
    assert harness.position(T0) is None
    harness.advance(1000)
    assert harness.asked_times(harness.take(ListOffsetsRequest)) == {T0: -2}


def test_stale_leader_errors_refresh_the_metadata() -> None:
    harness = starting()
    harness.turn()
    harness.metadata._is_update_needed = False
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: (6, -1)})
    assert harness.metadata.is_update_needed


def test_pauses_grow() -> None:
    harness = starting()
    pauses = []
    for _ in range(4):
        harness.fail(harness.take(ListOffsetsRequest))
        harness.turn()
        pauses.append(harness.next_poll_ms)
        harness.advance(harness.next_poll_ms)
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1] <= 1000


def test_a_partition_without_leader_waits_for_metadata() -> None:
    """M-05: a topic that does not exist yet is read once it appears; others are unaffected."""
    late = TopicPartition("late", 0)
    harness = starting(T0, late)
    request = harness.take(ListOffsetsRequest)
    assert harness.asked_times(request) == {T0: -2}
    assert harness.metadata.is_update_needed
    assert harness.metadata.topics == frozenset({"t", "late"})
    harness.set_leaders({**ONE_NODE, late: (2, 0)})
    request = harness.take(ListOffsetsRequest)
    assert (request.node_id, harness.asked_times(request)) == (2, {late: -2})


def test_each_leader_gets_its_own_request() -> None:
    """P-08: a broker that is down delays its own partitions only."""
    harness = Harness({T0: (1, 5), T1: (2, 5)})
    harness.connections.down.add(2)
    harness.subscriptions.assign_from_user([T0, T1])
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: 1})
    assert harness.position(T0) == 1
    assert harness.next_poll_ms <= harness.connections.delay_ms
    harness.connections.down.clear()
    assert harness.asked_times(harness.take(ListOffsetsRequest)) == {T1: -2}


def test_missing_permission_is_raised_until_it_is_granted() -> None:
    """S-08: position stays unknown, and is found once allowed."""
    harness = starting()
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: (29, -1)})
    for _ in range(2):
        with pytest.raises(TopicAuthorizationError, match="t-0"):
            harness.collect()
    harness.advance(1000)
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: 4})
    assert harness.collect() == {}
    assert harness.position(T0) == 4


def test_a_refused_log_in_is_raised() -> None:
    harness = starting()
    harness.connections.down.add(1)
    harness.connections.errors[1] = AuthenticationError("wrong password")
    harness.turn()
    with pytest.raises(AuthenticationError):
        harness.collect()
    harness.turn()
    assert harness.collect() == {}


def test_where_a_partition_starts_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """P-18: also for partitions added later."""
    harness = starting()
    with caplog.at_level(logging.INFO, "kfast"):
        harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: 10})
    assert "Reading t-0 from offset 10 (earliest)" in caplog.text


def test_resets_cost_nothing_once_all_positions_are_known() -> None:
    """F-23: no request, no deadline."""
    harness = starting()
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: 10})
    harness.fetch()
    assert harness.turn() == []
    assert harness.next_poll_ms > 1_000_000
    assert harness.waiting(FetchRequest) == []
    assert "OffsetReset" in repr(harness.offsets)
