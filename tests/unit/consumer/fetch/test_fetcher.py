"""Fetcher: what is asked, and what answers count."""

from __future__ import annotations

import pytest

from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.topic_partition_state import FETCH_END_SLACK, FetchState
from kfast.errors import (
    AuthenticationError,
    UnsupportedVersionError,
)
from kfast.protocol.messages.fetch import FetchRequest
from kfast.types import TopicPartition
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.harness import Harness, Part, batch, reading

TWO_NODES = {T0: (1, 5), T1: (2, 5)}


# --- what is asked --------------------------------------------------------------------------------


def test_settings_are_sent_as_given() -> None:
    """B-01, B-02: the byte and time limits go into the request unchanged."""
    harness = reading(
        fetch_min_bytes=7,
        fetch_max_wait_ms=333,
        fetch_max_bytes=1_234_567,
        max_partition_fetch_bytes=77_777,
        isolation_level="read_committed",
        client_rack="r1",
    )
    request = harness.fetch()
    message = request.message
    assert isinstance(message, FetchRequest)
    assert (message.min_bytes, message.max_wait_ms, message.max_bytes) == (7, 333, 1_234_567)
    assert (message.isolation_level, message.rack_id, message.replica_id) == (1, "r1", -1)
    part = harness.listed(request)[T0]
    assert part.partition_max_bytes == 77_777
    assert (part.current_leader_epoch, part.last_fetched_epoch, part.log_start_offset) == (
        5,
        -1,
        -1,
    )


def test_a_fetch_limit_above_the_memory_cap_is_lowered_to_it() -> None:
    """B-05: the hard cap wins over a fetch_max_bytes that contradicts it."""
    harness = reading(fetch_max_bytes=50 << 20, buffer_memory_bytes=8 << 20)
    message = harness.fetch().message
    assert isinstance(message, FetchRequest)
    assert message.max_bytes < 8 << 20


def test_only_fetchable_partitions_are_requested() -> None:
    """F-01: not without position, not paused, not without leader."""
    harness = Harness({T0: (1, 5), T1: (1, 5)})
    unknown = TopicPartition("u", 0)
    harness.subscriptions.assign_from_user([T0, T1, T2, unknown])
    for tp in (T0, T1, T2, unknown):
        harness.subscriptions.seek(tp, FetchPosition(9))
    harness.subscriptions.pause([T1])
    assert harness.offsets_of(harness.fetch()) == {T0: 9}
    assert harness.metadata.is_update_needed


def test_partitions_without_position_are_not_requested() -> None:
    """F-01: a partition that waits for a reset is left out."""
    harness = reading()
    harness.subscriptions.request_offset_reset([T0])
    harness.turn()
    assert harness.waiting(FetchRequest) == []


def test_each_leader_gets_a_request_for_its_partitions() -> None:
    harness = Harness(TWO_NODES)
    harness.assign({T0: 1, T1: 2})
    assert harness.offsets_of(harness.fetch(1)) == {T0: 1}
    assert harness.offsets_of(harness.fetch(2)) == {T1: 2}


def test_one_fetch_is_under_way_per_broker() -> None:
    """F-01: a partition is never in two requests under way."""
    harness = reading()
    harness.fetch()
    assert harness.turn() == []
    harness.subscriptions.seek(T0, FetchPosition(77))
    assert harness.turn() == []


def test_the_next_fetch_goes_out_before_anything_is_decoded() -> None:
    """F-01, F-10: the fetch position runs ahead of the position, decoding has not begun."""
    harness = reading()
    harness.reply(harness.fetch(), {T0: Part(batch(0, 10) + batch(10, 5))})
    request = harness.fetch()
    assert harness.offsets_of(request) == {T0: 15}
    assert harness.position(T0) == 0
    harness.reply(request, {T0: Part(batch(15, 5))})
    assert harness.offsets_of(harness.fetch()) == {T0: 20}
    assert harness.collect() == {T0: list(range(15))}
    assert harness.position(T0) == 15
    assert harness.collect() == {T0: list(range(15, 20))}


def limits_of(harness: Harness) -> dict[TopicPartition, int]:
    listed = harness.listed(harness.fetch())
    return {tp: part.partition_max_bytes for tp, part in listed.items()}


def test_no_more_is_asked_for_than_there_is_up_to_an_end() -> None:
    """B-02: what a range has left, by the bytes per offset of the last response, and a slack."""
    harness = reading(max_partition_fetch_bytes=1 << 20)
    harness.subscriptions.end_fetching_at({T0: 1_000})
    request = harness.fetch()
    asked = harness.listed(request)[T0].partition_max_bytes
    assert FETCH_END_SLACK < asked < FETCH_END_SLACK + 64_000
    data = batch(0, 100, size=1_000)
    harness.reply(request, {T0: Part(data)})
    request = harness.fetch()
    asked = harness.listed(request)[T0].partition_max_bytes
    assert asked == 900 * len(data) // 100 + FETCH_END_SLACK
    harness.reply(request, {T0: Part(batch(100, 890))})
    assert limits_of(harness)[T0] < FETCH_END_SLACK + 10_000


def test_a_limit_is_never_above_that_of_the_configuration() -> None:
    """B-02: whatever the end is."""
    harness = reading(max_partition_fetch_bytes=77_777)
    harness.subscriptions.end_fetching_at({T0: 10})
    assert limits_of(harness) == {T0: 77_777}


@pytest.mark.parametrize("part", [Part(), Part(batch(0, 10)[:40])], ids=["none", "cut"])
def test_a_batch_above_what_was_asked_for_is_asked_for_in_full(part: Part) -> None:
    """B-03: brokers leave out, or cut, a batch above the limit unless it is the first."""
    harness = reading(max_partition_fetch_bytes=1 << 20)
    harness.subscriptions.end_fetching_at({T0: 100})
    request = harness.fetch()
    assert harness.listed(request)[T0].partition_max_bytes < 1 << 20
    harness.reply(request, {T0: part})
    request = harness.fetch()
    assert harness.listed(request)[T0].partition_max_bytes == 1 << 20
    harness.reply(request, {T0: Part(batch(0, 10))})
    assert harness.collect() == {T0: list(range(10))}
    assert limits_of(harness) == {T0: 1 << 20}, "further ones are of that size too"


def test_nothing_is_fetched_from_an_end_on() -> None:
    """F-10: a range is read without what follows it, but for the rest of its last response."""
    harness = reading()
    harness.subscriptions.end_fetching_at({T0: 12})
    harness.reply(harness.fetch(), {T0: Part(batch(0, 10))})
    request = harness.fetch()
    assert harness.offsets_of(request) == {T0: 10}
    harness.reply(request, {T0: Part(batch(10, 5))})
    harness.turn()
    assert harness.waiting(FetchRequest) == []
    assert harness.collect() == {T0: list(range(10))}
    assert harness.collect() == {T0: list(range(10, 15))}
    harness.subscriptions.end_fetching_at({})
    assert harness.offsets_of(harness.fetch()) == {T0: 15}


def test_records_before_the_position_are_not_handed_out() -> None:
    """F-04: a batch that starts earlier delivers only what is at or after the position."""
    harness = reading({T0: 7})
    harness.reply(harness.fetch(), {T0: Part(batch(0, 10))})
    assert harness.collect() == {T0: [7, 8, 9]}


def test_the_next_offset_follows_the_batch_not_the_records() -> None:
    """F-05, F-06: emptied batches and holes are passed, the fetch offset is last offset + 1."""
    harness = reading()
    emptied = batch(10, 0, last_offset_delta=89)
    harness.reply(harness.fetch(), {T0: Part(batch(0, 3) + emptied)})
    assert harness.offsets_of(harness.fetch()) == {T0: 100}
    harness.collect()
    assert harness.position(T0) == 100


def test_a_hole_is_passed_without_fetching_again() -> None:
    """F-06: the next batch that exists comes, however far away."""
    harness = reading()
    harness.reply(harness.fetch(), {T0: Part(batch(5_000_000_000, 2))})
    assert harness.offsets_of(harness.fetch()) == {T0: 5_000_000_002}
    assert harness.collect() == {T0: [5_000_000_000, 5_000_000_001]}


def test_a_response_without_user_records_is_progress() -> None:
    """F-07: the position moves past a batch without records."""
    harness = reading()
    harness.reply(harness.fetch(), {T0: Part(batch(0, 0, last_offset_delta=41))})
    collected = harness.collector.collect()
    assert [len(rows) for rows in collected.values()] == [0]
    assert harness.position(T0) == 42


def test_a_cut_last_batch_is_requested_again() -> None:
    """D-05: a truncated tail is silent and does not move the fetch offset past it."""
    harness = reading()
    harness.reply(harness.fetch(), {T0: Part(batch(0, 3) + batch(3, 3)[:-1])})
    assert harness.offsets_of(harness.fetch()) == {T0: 3}


# --- what counts ----------------------------------------------------------------------------------


def test_a_response_from_before_a_seek_is_dropped() -> None:
    """F-02: also when the seek went to the very offset that was asked for."""
    for target in (0, 55):
        harness = reading()
        request = harness.fetch()
        harness.subscriptions.seek(T0, FetchPosition(target))
        harness.reply(request, {T0: Part(batch(0, 10))})
        assert harness.collect() == {}
        assert harness.position(T0) == target
        assert harness.offsets_of(harness.fetch()) == {T0: target}


def test_a_response_from_before_a_pause_and_a_seek_is_dropped() -> None:
    """F-02: paused, sought, resumed: only the new offset is delivered."""
    harness = reading()
    request = harness.fetch()
    harness.subscriptions.pause([T0])
    harness.subscriptions.seek(T0, FetchPosition(50))
    harness.reply(request, {T0: Part(batch(0, 10))})
    harness.subscriptions.resume([T0])
    assert harness.collect() == {}
    assert harness.offsets_of(harness.fetch()) == {T0: 50}


def test_what_is_buffered_behind_a_seek_is_dropped_with_its_memory() -> None:
    """F-02, P-04, B-07: buffered data of the sought partition goes, the other's stays."""
    harness = reading({T0: 0, T1: 0})
    harness.reply(harness.fetch(), {T0: Part(batch(0, 10)), T1: Part(batch(0, 10))})
    harness.reply(harness.fetch(), {T0: Part(batch(10, 10))})
    harness.subscriptions.seek(T0, FetchPosition(100))
    before = harness.buffer.memory.bytes_used
    harness.turn()
    assert harness.buffer.memory.bytes_used < before
    assert harness.collect() == {T1: list(range(10))}
    assert harness.position(T0) == 100


def test_a_response_for_an_unassigned_partition_is_dropped() -> None:
    """F-03: revoked since the request."""
    harness = reading({T0: 0, T1: 0})
    request = harness.fetch()
    harness.subscriptions.assign_from_user([T1])
    harness.reply(request, {T0: Part(batch(0, 10)), T1: Part(batch(0, 10))})
    assert harness.collect() == {T1: list(range(10))}


def test_a_response_for_a_partition_assigned_again_is_dropped() -> None:
    """F-03: the same partition came back, its old answer does not count."""
    harness = reading()
    request = harness.fetch()
    harness.subscriptions.assign_from_user([T1])
    harness.assign({T0: 0})
    harness.reply(request, {T0: Part(batch(0, 10))})
    assert harness.collect() == {}
    assert harness.offsets_of(harness.fetch()) == {T0: 0}


def test_a_response_after_a_validation_is_dropped() -> None:
    """P-13: fetches answered while the position is in doubt do not count."""
    harness = reading()
    harness.reply(harness.fetch(), {T0: Part(batch(0, 10, epoch=5))})
    harness.collect()
    request = harness.fetch()
    harness.set_leaders({T0: (1, 6)})
    harness.turn()
    harness.reply(request, {T0: Part(batch(10, 10, epoch=5))})
    assert harness.collect() == {}
    harness.turn()
    assert harness.waiting(FetchRequest) == []
    assert harness.subscriptions.partitions_in(FetchState.AWAIT_VALIDATION) == [T0]


def test_duplicate_and_foreign_partitions_do_not_mis_deliver() -> None:
    """D-26: an impossible answer is not used, the session starts anew, nothing is lost."""
    harness = reading()
    foreign = TopicPartition("t", 9)
    harness.reply(
        harness.fetch(), {T0: Part(batch(0, 10)), foreign: Part(batch(0, 10))}, exactly=True
    )
    assert harness.collect() == {}
    request = harness.fetch()
    assert harness.offsets_of(request) == {T0: 0}
    harness.reply(request, {T0: Part(batch(0, 10))})
    assert harness.collect() == {T0: list(range(10))}


def test_offsets_strictly_increase() -> None:
    """F-11: over many answers nothing is repeated and nothing left out."""
    harness = reading()
    delivered: list[int] = []
    for number in range(20):
        harness.reply(harness.fetch(), {T0: Part(batch(number * 7, 7))})
        if number % 3 == 0:
            delivered += harness.collect(max_records=11).get(T0, [])
    while part := harness.collect(max_records=11).get(T0):
        delivered += part
    assert delivered == list(range(140))


def test_records_that_end_before_the_offset_do_not_spin() -> None:
    """F-08: a broker that answers only old records is asked again after a pause."""
    harness = reading({T0: 50})
    harness.reply(harness.fetch(), {T0: Part(batch(0, 10))})
    harness.turn()
    assert harness.waiting(FetchRequest) == []
    assert harness.next_poll_ms > 0
    harness.advance(harness.next_poll_ms)
    assert harness.offsets_of(harness.fetch()) == {T0: 50}


# --- order ----------------------------------------------------------------------------------------


def test_served_and_failed_partitions_are_requested_last() -> None:
    """F-09: the order of a full request rotates, so none starves under byte limits."""
    harness = reading({T0: 0, T1: 0, T2: 0}, enable_incremental_fetch_sessions=False)
    request = harness.fetch()
    assert list(harness.listed(request)) == [T0, T1, T2]
    harness.reply(request, {T0: Part(batch(0, 10))})
    request = harness.fetch()
    assert list(harness.listed(request)) == [T1, T2, T0]
    harness.reply(request, {T1: Part(error=75)})
    harness.advance(200)
    assert list(harness.listed(harness.fetch())) == [T2, T0, T1]


# --- brokers --------------------------------------------------------------------------------------


def test_a_broker_that_cannot_be_used_does_not_delay_the_others() -> None:
    """F-22: down, or silent: the others go on."""
    harness = Harness(TWO_NODES)
    harness.connections.down.add(2)
    harness.assign({T0: 0, T1: 0})
    for number in range(3):
        harness.reply(harness.fetch(), {T0: Part(batch(number * 5, 5))})
    assert harness.next_poll_ms <= harness.connections.delay_ms
    harness.connections.down.clear()
    silent = harness.fetch(2)
    harness.outbox.append(silent)
    for number in range(3, 6):
        harness.reply(harness.fetch(1), {T0: Part(batch(number * 5, 5))})
    assert harness.collect()[T0] == [0, 1, 2, 3, 4]


def test_a_refused_log_in_is_raised() -> None:
    """S-06: authentication errors of a broker surface, once per attempt."""
    harness = reading()
    harness.connections.down.add(1)
    harness.connections.errors[1] = AuthenticationError("wrong password", node=1)
    harness.turn()
    harness.turn()
    with pytest.raises(AuthenticationError, match="wrong password"):
        harness.collect()
    harness.turn()
    assert harness.collect() == {}


def test_a_broker_without_a_usable_fetch_version_is_reported() -> None:
    harness = reading()
    harness.connections.newest[1] = 4
    assert harness.turn() == []
    with pytest.raises(UnsupportedVersionError):
        harness.collect()
    assert 0 < harness.next_poll_ms <= 1000


def test_a_partition_moves_to_the_new_leader() -> None:
    """M-03: the new leader is asked as soon as the old one's answer is there."""
    harness = Harness(TWO_NODES)
    harness.assign({T0: 3})
    old = harness.fetch(1)
    harness.set_leaders({T0: (2, 6), T1: (2, 5)})
    assert harness.turn() == []
    harness.reply(old, {T0: Part(error=6)})
    assert harness.offsets_of(harness.fetch(2)) == {T0: 3}


def test_a_silent_old_leader_does_not_hold_a_partition_for_long() -> None:
    """M-03: an overdue request is abandoned; its late answer does not count."""
    harness = Harness(TWO_NODES, fetch_max_wait_ms=500)
    harness.assign({T0: 3})
    old = harness.fetch(1)
    harness.set_leaders({T0: (2, 6), T1: (2, 5)})
    assert harness.turn() == []
    assert harness.next_poll_ms <= 1500
    harness.advance(harness.next_poll_ms)
    new = harness.fetch(2)
    assert harness.offsets_of(new) == {T0: 3}
    harness.reply(old, {T0: Part(batch(3, 5))})
    assert harness.collect() == {}
    harness.reply(new, {T0: Part(batch(3, 5))})
    assert harness.collect() == {T0: [3, 4, 5, 6, 7]}


def test_throttled_empty_responses_are_waited_out() -> None:
    """F-24: no error, no lost session, no backoff of ours."""
    harness = reading()
    harness.reply(harness.fetch(), throttle_ms=2000, exactly=True)
    assert harness.collect() == {}
    harness.connections.down.add(1)  # what the network client says while it is throttled
    harness.connections.delay_ms = 2000
    assert harness.turn() == []
    assert harness.next_poll_ms == 2000
    harness.connections.down.clear()
    request = harness.advance(2000)[0]
    assert harness.session_of(request) == (0, 0)


# --- watermarks -----------------------------------------------------------------------------------


def test_watermarks_of_error_replies_are_ignored() -> None:
    """P-12: negatives are not stored; the last known values stay."""
    harness = reading()
    harness.reply(
        harness.fetch(), {T0: Part(high_watermark=50, last_stable_offset=40, log_start_offset=3)}
    )
    harness.reply(harness.fetch(), {T0: Part(error=3)})
    state = harness.state(T0)
    assert (state.high_watermark, state.last_stable_offset, state.log_start_offset) == (50, 40, 3)
    assert harness.subscriptions.current_lag(T0) == 50


# --- pause ----------------------------------------------------------------------------------------


def test_a_paused_partition_keeps_what_is_buffered() -> None:
    """F-21: delivered after resume without another fetch."""
    harness = reading()
    harness.reply(harness.fetch(), {T0: Part(batch(0, 5))}, session_id=9)
    request = harness.fetch()
    harness.subscriptions.pause([T0])
    harness.reply(request, {T0: Part(batch(5, 5))}, session_id=9)
    assert harness.collect() == {}
    harness.turn()
    assert harness.waiting(FetchRequest) == []
    harness.subscriptions.resume([T0])
    assert harness.collect() == {T0: [0, 1, 2, 3, 4]}
    assert harness.collect() == {T0: [5, 6, 7, 8, 9]}
    assert harness.offsets_of(harness.fetch()) == {T0: 10}


def test_repr_of_fetcher_and_planner() -> None:
    harness = reading()
    harness.fetch()
    assert "1 requests in flight" in repr(harness.fetcher)
    assert "NodeFetches 1 partitions=1" in repr(harness.fetcher._planner.nodes)
