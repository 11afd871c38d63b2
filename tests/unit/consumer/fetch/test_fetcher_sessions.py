"""Fetcher and fetch sessions (KIP-227): what goes over the wire, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kfast._runtime.memory_account import ExpectedResponse
from kfast.consumer.fetch.completed_fetch import CompletedFetch
from kfast.consumer.fetch_position import FetchPosition
from kfast.protocol.messages.fetch import FetchRequest
from kfast.types import TopicPartition
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.harness import Harness, Part, batch, reading


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


def test_a_session_response_about_an_unlisted_partition_counts() -> None:
    harness = reading({T0: 0, T1: 0})
    harness.reply(harness.fetch(), session_id=9)
    request = harness.fetch()
    assert harness.offsets_of(request) == {}
    harness.reply(request, {T1: Part(batch(0, 5))}, session_id=9)
    assert harness.collect() == {T1: list(range(5))}
    assert harness.offsets_of(harness.fetch()) == {T1: 5}


def test_a_dropped_response_of_a_session_is_requested_again() -> None:
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


def test_a_broker_without_topic_ids_is_sent_names() -> None:
    """F-16: an old broker's versions decide."""
    harness = reading()
    harness.connections.newest[1] = 11
    request = harness.fetch()
    assert request.max_version == 11
    harness.reply(request, {T0: Part(batch(0, 3))})
    assert harness.collect() == {T0: [0, 1, 2]}


def test_closing_ends_every_session_once() -> None:
    harness = Harness({T0: (1, 5), T1: (2, 5)})
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


def test_a_response_is_buffered_before_the_next_request_is_planned() -> None:
    """An application thread that waits for records does not wait for the plan."""
    harness = reading({T0: 0})
    request = harness.fetch()
    (node,) = harness.fetcher._planner.nodes.values()
    fetch_answered = harness.buffer.fetch_answered
    seen: list[tuple[object, int]] = []

    def spy(
        expected: ExpectedResponse,
        frame_bytes: int,
        fetches: Sequence[CompletedFetch],
        memory_bytes: int = 0,
    ) -> None:
        seen.append((node.in_flight, len(fetches)))
        assert harness.state(T0).fetch_offset == 5, (
            "the state that the application reads is updated"
        )
        assert not node.active
        fetch_answered(expected, frame_bytes, fetches, memory_bytes)

    harness.buffer.fetch_answered = spy  # type: ignore[method-assign]
    harness.reply(request, {T0: Part(batch(0, 5))}, session_id=9)
    assert seen == [(request.context, 1)]
    assert node.in_flight is None
    assert list(node.active) == [T0]


def test_log_offsets_of_a_dropped_response_count() -> None:
    """U-07: the broker has said them, and does not again until they change (KIP-227)."""
    harness = reading({T0: 0, T1: 0})
    request = harness.fetch()
    harness.subscriptions.seek(T0, FetchPosition(1_000_000))
    harness.reply(request, {T0: Part(batch(0, 5))}, session_id=9)
    assert harness.subscriptions.current_lag(T0) == 0
    assert harness.offsets_of(harness.fetch()) == {T0: 1_000_000}


def test_log_offsets_outlive_the_assignment_as_long_as_the_session_has_the_partition() -> None:
    """U-07: assigned anew before the next request, which has nothing to say to the broker."""
    harness = reading({T0: 0, T1: 0})
    harness.reply(harness.fetch(), session_id=9)
    request = harness.fetch()
    harness.assign({})
    harness.assign({T0: 0, T1: 10})
    harness.reply(request, session_id=9)
    request = harness.fetch()
    assert harness.offsets_of(request) == {T1: 10}
    assert harness.subscriptions.current_lag(T0) == 1_000_000
    assert harness.subscriptions.current_lag(T1) == 999_990


def test_log_offsets_of_a_forgotten_partition_are_those_of_its_next_response() -> None:
    """U-07: the broker lists it again, as one that is new to the session."""
    harness = reading({T0: 0, T1: 0})
    harness.reply(harness.fetch(), session_id=9)
    harness.assign({T1: 0})
    request = harness.fetch()
    assert harness.forgotten(request) == [T0]
    harness.assign({T0: 0, T1: 0})
    harness.reply(request, session_id=9)
    assert harness.subscriptions.current_lag(T0) is None
    request = harness.fetch()
    assert harness.offsets_of(request)[T0] == 0
    harness.reply(request, {T0: Part(high_watermark=7)}, session_id=9)
    assert harness.subscriptions.current_lag(T0) == 7
