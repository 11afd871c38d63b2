"""Fetcher: what is asked, and what answers count."""

from __future__ import annotations

import pytest

from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.topic_partition_state import FetchState
from kfast.errors import (
    AuthenticationError,
    CorruptRecordError,
    RecordTooLargeError,
    UnsupportedVersionError,
)
from kfast.protocol.messages.fetch import FetchRequest
from kfast.types import TopicPartition
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.harness import Harness, Part, batch

ONE_NODE = {T0: (1, 5), T1: (1, 5), T2: (1, 5)}
TWO_NODES = {T0: (1, 5), T1: (2, 5)}


def reading(offsets: dict[TopicPartition, int] | None = None, **configs: object) -> Harness:
    """Return a consumer of one broker's partitions, from offset 0."""
    harness = Harness(ONE_NODE, **configs)
    harness.assign(offsets or {T0: 0})
    return harness


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


def test_only_fetchable_partitions_are_asked() -> None:
    """F-01: not without position, not paused, not without leader."""
    harness = Harness({T0: (1, 5), T1: (1, 5)})
    unknown = TopicPartition("u", 0)
    harness.subscriptions.assign_from_user([T0, T1, T2, unknown])
    for tp in (T0, T1, T2, unknown):
        harness.subscriptions.seek(tp, FetchPosition(9))
    harness.subscriptions.pause([T1])
    assert harness.offsets_of(harness.fetch()) == {T0: 9}
    assert harness.metadata.is_update_needed


def test_partitions_without_position_are_not_asked() -> None:
    """F-01: a partition that waits for a reset is left out."""
    harness = reading()
    harness.subscriptions.request_offset_reset([T0])
    harness.turn()
    assert harness.waiting(FetchRequest) == []


def test_each_leader_is_asked_for_its_partitions() -> None:
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


def test_an_answer_without_user_records_is_progress() -> None:
    """F-07: the position moves past a batch without records."""
    harness = reading()
    harness.reply(harness.fetch(), {T0: Part(batch(0, 0, last_offset_delta=41))})
    collected = harness.collector.collect()
    assert collected.records == {}
    assert collected.has_progress
    assert harness.position(T0) == 42


def test_a_cut_last_batch_is_asked_again() -> None:
    """D-05: a truncated tail is silent and does not move the fetch offset past it."""
    harness = reading()
    harness.reply(harness.fetch(), {T0: Part(batch(0, 3) + batch(3, 3)[:-1])})
    assert harness.offsets_of(harness.fetch()) == {T0: 3}


# --- what counts ----------------------------------------------------------------------------------


def test_an_answer_from_before_a_seek_is_dropped() -> None:
    """F-02: also when the seek went to the very offset that was asked for."""
    for target in (0, 55):
        harness = reading()
        request = harness.fetch()
        harness.subscriptions.seek(T0, FetchPosition(target))
        harness.reply(request, {T0: Part(batch(0, 10))})
        assert harness.collect() == {}
        assert harness.position(T0) == target
        assert harness.offsets_of(harness.fetch()) == {T0: target}


def test_an_answer_from_before_a_pause_and_a_seek_is_dropped() -> None:
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
    before = harness.buffer.bytes_used
    harness.turn()
    assert harness.buffer.bytes_used < before
    assert harness.collect() == {T1: list(range(10))}
    assert harness.position(T0) == 100


def test_an_answer_for_an_unassigned_partition_is_dropped() -> None:
    """F-03: revoked since the request."""
    harness = reading({T0: 0, T1: 0})
    request = harness.fetch()
    harness.subscriptions.assign_from_user([T1])
    harness.reply(request, {T0: Part(batch(0, 10)), T1: Part(batch(0, 10))})
    assert harness.collect() == {T1: list(range(10))}


def test_an_answer_for_a_partition_assigned_anew_is_dropped() -> None:
    """F-03: the same partition came back, its old answer does not count."""
    harness = reading()
    request = harness.fetch()
    harness.subscriptions.assign_from_user([T1])
    harness.assign({T0: 0})
    harness.reply(request, {T0: Part(batch(0, 10))})
    assert harness.collect() == {}
    assert harness.offsets_of(harness.fetch()) == {T0: 0}


def test_an_answer_met_by_a_validation_is_dropped() -> None:
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


def test_served_and_failed_partitions_are_asked_last() -> None:
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


# --- sessions -------------------------------------------------------------------------------------


def test_a_session_lists_changes_only() -> None:
    """F-13: after the first full request only moved offsets are sent."""
    harness = reading({T0: 0, T1: 0, T2: 0})
    request = harness.fetch()
    assert harness.session_of(request) == (0, 0)
    harness.reply(request, {T1: Part(batch(0, 5))}, session_id=9)
    request = harness.fetch()
    assert harness.session_of(request) == (9, 1)
    assert harness.offsets_of(request) == {T1: 5}
    harness.subscriptions.pause([T0])
    harness.reply(request, session_id=9)
    request = harness.fetch()
    assert harness.session_of(request) == (9, 2)
    assert harness.offsets_of(request) == {}
    assert harness.forgotten(request) == [T0]


def test_a_session_answer_about_an_unlisted_partition_counts() -> None:
    harness = reading({T0: 0, T1: 0})
    harness.reply(harness.fetch(), session_id=9)
    request = harness.fetch()
    assert harness.offsets_of(request) == {}
    harness.reply(request, {T1: Part(batch(0, 5))}, session_id=9)
    assert harness.collect() == {T1: list(range(5))}
    assert harness.offsets_of(harness.fetch()) == {T1: 5}


def test_a_dropped_answer_of_a_session_is_asked_again() -> None:
    """F-02, F-15: the session knows the offset after the seek, not the one answered."""
    harness = reading()
    harness.reply(harness.fetch(), session_id=9)
    request = harness.fetch()
    harness.subscriptions.seek(T0, FetchPosition(500))
    harness.reply(request, {T0: Part(batch(0, 5))}, session_id=9)
    assert harness.offsets_of(harness.fetch()) == {T0: 500}


@pytest.mark.parametrize(("error", "session"), [(70, (0, 0)), (71, (9, 0)), (106, (9, 0))])
def test_session_errors_lose_and_repeat_nothing(error: int, session: tuple[int, int]) -> None:
    """F-15: the same offsets are asked at once in a new session."""
    harness = reading({T0: 0, T1: 0})
    harness.reply(harness.fetch(), {T0: Part(batch(0, 5))}, session_id=9)
    harness.reply(harness.fetch(), error=error)
    request = harness.fetch()
    assert harness.session_of(request) == session
    assert harness.offsets_of(request) == {T0: 5, T1: 0}
    assert harness.collect() == {T0: list(range(5))}


def test_error_106_refreshes_the_metadata() -> None:
    """F-15: FETCH_SESSION_TOPIC_ID_ERROR."""
    harness = reading()
    harness.metadata._is_update_needed = False
    harness.reply(harness.fetch(), error=106)
    assert harness.metadata.is_update_needed


def test_session_errors_in_a_row_are_spaced() -> None:
    """F-15: a broker that refuses every session is not asked in a tight loop."""
    harness = reading()
    harness.reply(harness.fetch(), error=71)
    harness.reply(harness.fetch(), error=71)
    harness.turn()
    assert harness.waiting(FetchRequest) == []
    harness.advance(harness.next_poll_ms)
    assert harness.session_of(harness.fetch()) == (0, 0)


def test_a_disconnect_restarts_the_session() -> None:
    """F-15: nothing is lost or repeated over a lost connection."""
    harness = reading()
    harness.reply(harness.fetch(), {T0: Part(batch(0, 5))}, session_id=9)
    harness.fail(harness.fetch())
    harness.advance(1000)
    request = harness.fetch()
    assert harness.session_of(request) == (9, 0)
    assert harness.offsets_of(request) == {T0: 5}


def test_a_session_is_not_granted() -> None:
    """F-14: session id 0 means full requests for ever, without error or pause."""
    harness = reading({T0: 0, T1: 0})
    for _ in range(3):
        request = harness.fetch()
        assert harness.session_of(request) == (0, 0)
        assert set(harness.listed(request)) == {T0, T1}
        harness.reply(request, session_id=0)


def test_sessions_can_be_switched_off() -> None:
    """F-14: enable_incremental_fetch_sessions=False sends (0, -1)."""
    harness = reading(enable_incremental_fetch_sessions=False)
    for _ in range(2):
        request = harness.fetch()
        assert harness.session_of(request) == (0, -1)
        assert set(harness.listed(request)) == {T0}
        harness.reply(request)
    assert harness.fetcher.close_sessions() == []


def test_topic_ids_are_used_only_if_all_topics_have_one() -> None:
    """F-16: one topic without id caps the request at version 12, and the session restarts."""
    other = TopicPartition("other", 0)
    harness = Harness(has_ids := {T0: (1, 5), other: (1, 5)})
    harness.assign({T0: 0, other: 0})
    request = harness.fetch()
    assert (request.min_version, request.max_version) == (13, 18)
    harness.reply(request, session_id=9)
    harness.set_leaders(has_ids, has_topic_ids=False)
    request = harness.fetch()
    assert (request.min_version, request.max_version) == (None, 12)
    assert harness.session_of(request) == (9, 0)
    assert set(harness.listed(request)) == {T0, other}


def test_a_broker_without_topic_ids_is_asked_by_name() -> None:
    """F-16: an old broker's versions decide."""
    harness = reading()
    harness.connections.newest[1] = 11
    request = harness.fetch()
    assert request.max_version == 11
    harness.reply(request, {T0: Part(batch(0, 3))})
    assert harness.collect() == {T0: [0, 1, 2]}


def test_closing_ends_every_session_once() -> None:
    harness = Harness(TWO_NODES)
    harness.assign({T0: 0, T1: 0})
    harness.reply(harness.fetch(1), session_id=9)
    requests = harness.fetcher.close_sessions()
    assert [(r.node_id, harness.session_of(r)) for r in requests] == [(1, (9, -1))]
    assert harness.listed(requests[0]) == {}
    assert harness.fetcher.poll(harness.clock.now_ms()).requests == ()
    harness.reply(requests[0])
    harness.fail(requests[0])


def test_a_thousand_idle_partitions_cost_nothing() -> None:
    """F-23: no partition is listed, and the plan is not gone through."""
    partitions = {TopicPartition("t", number): (1, 5) for number in range(1000)}
    harness = Harness(partitions)
    harness.assign(dict.fromkeys(partitions, 0))
    harness.reply(harness.fetch(), session_id=9)
    looked_at: list[TopicPartition] = []
    planner = harness.fetcher._planner
    place = planner._place

    def spy(tp: TopicPartition, now_ms: int) -> None:
        looked_at.append(tp)
        place(tp, now_ms)

    planner._place = spy  # type: ignore[method-assign]
    for _ in range(3):
        request = harness.fetch()
        assert harness.listed(request) == {}
        assert harness.forgotten(request) == []
        harness.reply(request, session_id=9)
    assert len(looked_at) <= 1000  # what the first answer touched, once
    looked_at.clear()
    harness.reply(harness.fetch(), {T0: Part(batch(0, 1))}, session_id=9)
    harness.turn()
    assert looked_at == [T0]


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


def test_throttled_empty_answers_are_waited_out() -> None:
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


# --- what cannot be read --------------------------------------------------------------------------


def corrupt(first: int, count: int) -> bytes:
    data = bytearray(batch(first, count))
    data[-1] ^= 1
    return bytes(data)


def test_records_before_a_corrupt_batch_come_first() -> None:
    """F-08: then the error, at every poll, until the user seeks past it."""
    harness = reading({T0: 0, T1: 0})
    harness.reply(
        harness.fetch(),
        {T0: Part(batch(0, 5) + corrupt(5, 5) + batch(10, 5)), T1: Part(batch(0, 3))},
    )
    assert harness.collect() == {T0: [0, 1, 2, 3, 4], T1: [0, 1, 2]}
    for _ in range(3):
        with pytest.raises(CorruptRecordError) as caught:
            harness.collect()
        assert (caught.value.topic, caught.value.partition) == ("t", 0)
        assert (caught.value.offset, caught.value.next_offset) == (5, 10)
        assert harness.position(T0) == 5
    harness.subscriptions.seek(T0, FetchPosition(10))
    harness.outbox.clear()
    harness.turn()
    assert harness.collect() == {}


def test_nothing_is_fetched_behind_a_corrupt_batch() -> None:
    """F-08: the partition waits for a seek, the others go on."""
    harness = reading({T0: 0, T1: 0})
    harness.reply(harness.fetch(), {T0: Part(corrupt(0, 5))}, session_id=9)
    with pytest.raises(CorruptRecordError):
        harness.collect()
    request = harness.fetch()
    assert harness.forgotten(request) == [T0]
    harness.reply(request, {T1: Part(batch(0, 3))}, session_id=9)
    assert harness.collect() == {T1: [0, 1, 2]}
    with pytest.raises(CorruptRecordError):
        harness.collect()
    harness.subscriptions.seek(T0, FetchPosition(5))
    assert harness.offsets_of(harness.fetch()) == {T0: 5, T1: 3}


def test_other_partitions_are_not_held_up_by_an_error() -> None:
    """F-08: records and errors take turns."""
    harness = reading({T0: 0, T1: 0})
    harness.reply(harness.fetch(), {T0: Part(corrupt(0, 5)), T1: Part(batch(0, 2))})
    outcomes: list[object] = []
    for number in range(3):
        for _ in range(2):
            try:
                outcomes.append(harness.collect())
            except CorruptRecordError:
                outcomes.append("error")
        harness.reply(harness.fetch(), {T1: Part(batch(2 + 2 * number, 2))})
    assert outcomes == [{T1: [0, 1]}, "error", {T1: [2, 3]}, "error", {T1: [4, 5]}, "error"]


def test_a_batch_that_does_not_fit_is_an_error() -> None:
    """B-04: not one whole batch: RecordTooLarge names the size, the position stays."""
    harness = reading({T0: 4})
    whole = batch(4, 100)
    harness.reply(harness.fetch(), {T0: Part(whole[:300])})
    for _ in range(2):
        with pytest.raises(RecordTooLargeError) as caught:
            harness.collect()
        assert caught.value.size_needed == len(whole)
        assert caught.value.offset == 4
        assert str(len(whole)) in str(caught.value)
    assert harness.position(T0) == 4
    harness.turn()
    assert harness.waiting(FetchRequest) == []


def test_a_corrupt_header_stops_the_partition() -> None:
    """D-07, F-08: a batch whose header lies is an error, not a truncated tail."""
    harness = reading()
    bad = bytearray(batch(5, 5))
    bad[8:12] = b"\xff\xff\xff\xff"
    harness.reply(harness.fetch(), {T0: Part(batch(0, 5) + bytes(bad))})
    assert harness.state(T0).is_stalled
    harness.turn()
    assert harness.waiting(FetchRequest) == []
    assert harness.collect() == {T0: [0, 1, 2, 3, 4]}


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
    assert "1 requests under way" in repr(harness.fetcher)
    assert "NodeFetches 1 partitions=1" in repr(harness.fetcher._planner.nodes)
