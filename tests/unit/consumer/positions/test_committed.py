"""CommittedPositions: partitions go on where their group left off."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.topic_partition_state import FetchState
from kfast.errors import (
    GroupAuthorizationError,
    NoOffsetForPartitionError,
    TopicAuthorizationError,
)
from kfast.protocol.messages.find_coordinator import FindCoordinatorRequest
from kfast.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kfast.protocol.messages.offset_fetch import OffsetFetchRequest
from kfast.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kfast.types import TopicPartition
from tests.unit.consumer.commits.committing import MEMBER
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.group.harness import GroupHarness, refused


def starting(*partitions: TopicPartition, **configs: Any) -> GroupHarness:
    """Assign partitions by hand, and let the coordinator be found."""
    harness = GroupHarness(**configs)
    harness.subscriptions.assign_from_user(partitions or (T0,))
    harness.find()
    return harness


def position(harness: GroupHarness, tp: TopicPartition = T0) -> int | None:
    found = harness.subscriptions.position(tp)
    return None if found is None else found.offset


def state(harness: GroupHarness, tp: TopicPartition = T0) -> FetchState:
    return harness.subscriptions.assigned(tp).fetch_state


def reset_to(harness: GroupHarness, offset: int) -> list[TopicPartition]:
    """Answer the ListOffsets request; return what it asked about."""
    request = harness.take(ListOffsetsRequest)
    assert isinstance(request.message, ListOffsetsRequest)
    asked = [
        TopicPartition(topic.name, part.partition_index)
        for topic in request.message.topics
        for part in topic.partitions
    ]
    answers = [
        ListOffsetsTopicResponse(
            name=tp.topic,
            partitions=[ListOffsetsPartitionResponse(tp.partition, 0, -1, offset, 5)],
        )
        for tp in asked
    ]
    harness.respond(request, ListOffsetsResponse(topics=answers))
    return asked


def test_the_committed_offset_is_the_position() -> None:
    """P-01: before the policy; nothing else is asked."""
    harness = starting(T0, T1)
    request = harness.take(OffsetFetchRequest)
    assert harness.asked(request) == [T0, T1]
    harness.wakeup.look()
    harness.reply_fetch(request, {T0: 11, T1: 22})
    assert (position(harness), position(harness, T1)) == (11, 22)
    assert harness.wakeup.wait(0), "the application thread is woken up"
    harness.turn()
    assert harness.outbox == []
    assert harness.next_poll_ms > 1_000_000


def test_a_member_starts_the_same_way() -> None:
    """P-01."""
    harness = GroupHarness(subscribes=True, identity=MEMBER)
    harness.subscriptions.assign_from_group([T0], pending_callback=[T0])
    harness.find()
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: 11})
    harness.subscriptions.clear_pending_callback([T0])
    assert position(harness) == 11
    assert harness.subscriptions.is_fetchable(T0)


def test_the_policy_decides_only_where_nothing_is_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """P-01, P-09: and the log says so, for the commits may have expired."""
    harness = starting(T0, T1, T2)
    with caplog.at_level(logging.WARNING, "kfast"):
        harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: 11, T1: -1})
    assert position(harness) == 11
    assert state(harness, T1) is FetchState.AWAIT_RESET
    assert state(harness, T2) is FetchState.INITIALIZING, "left out is not none"
    assert [record.getMessage() for record in caplog.records] == [
        "Group g has no committed offset of t-1 (never committed, or expired): reset to earliest"
    ]
    assert reset_to(harness, 3) == [T1]
    assert position(harness, T1) == 3
    harness.advance(1000)
    request = harness.take(OffsetFetchRequest)
    assert harness.asked(request) == [T2]
    harness.reply_fetch(request, {T2: 33})
    assert position(harness, T2) == 33


def test_without_policy_nothing_committed_is_an_error() -> None:
    """P-02."""
    harness = starting(T0, auto_offset_reset="none")
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: -1})
    harness.turn()
    assert isinstance(harness.collect_error(), NoOffsetForPartitionError)


def test_without_policy_a_committed_offset_will_do() -> None:
    """P-01, P-02."""
    harness = starting(T0, auto_offset_reset="none")
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: 5})
    harness.turn()
    assert harness.collect_error() is None
    assert position(harness) == 5


def test_a_seek_before_the_look_up_needs_none() -> None:
    """P-01: the user's seek comes first."""
    harness = GroupHarness()
    harness.subscriptions.assign_from_user([T0])
    harness.subscriptions.seek(T0, FetchPosition(42))
    assert harness.nothing_sent(FindCoordinatorRequest)
    assert position(harness) == 42


@pytest.mark.parametrize("answer", [7, -1])
def test_a_seek_wins_over_a_look_up_in_progress(answer: int) -> None:
    """P-03: neither the committed offset nor a reset undoes it."""
    harness = starting()
    request = harness.take(OffsetFetchRequest)
    harness.subscriptions.seek(T0, FetchPosition(42))
    harness.reply_fetch(request, {T0: answer})
    assert position(harness) == 42
    assert harness.nothing_sent(ListOffsetsRequest)


def test_a_reassignment_wins_over_a_look_up_in_progress() -> None:
    """P-03, G-09: revoked and assigned again; others may have committed in between."""
    harness = starting()
    request = harness.take(OffsetFetchRequest)
    harness.subscriptions.assign_from_user([T1])
    harness.subscriptions.assign_from_user([T0])
    harness.reply_fetch(request, {T0: 7})
    assert position(harness) is None
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: 9})
    assert position(harness) == 9


def test_a_reassignment_during_a_look_up_starts_another() -> None:
    """P-03: the newer look-up does not wait for the older one."""
    harness = starting()
    first = harness.take(OffsetFetchRequest)
    harness.subscriptions.assign_from_user([])
    harness.turn()
    harness.subscriptions.assign_from_user([T0])
    second = harness.take(OffsetFetchRequest)
    harness.reply_fetch(second, {T0: 9})
    harness.reply_fetch(first, {T0: 7})
    assert position(harness) == 9


def test_an_unassigned_partition_is_forgotten() -> None:
    """P-03."""
    harness = starting(T0, T1)
    request = harness.take(OffsetFetchRequest)
    harness.subscriptions.assign_from_user([T1])
    harness.reply_fetch(request, {T0: 7, T1: -1})
    assert harness.subscriptions.state(T0) is None
    assert reset_to(harness, 1) == [T1]


def test_partitions_added_later_are_looked_up_by_themselves() -> None:
    harness = starting()
    first = harness.take(OffsetFetchRequest)
    harness.subscriptions.assign_from_user([T0, T1])
    second = harness.take(OffsetFetchRequest)
    assert harness.asked(second) == [T1]
    harness.reply_fetch(second, {T1: 2})
    assert (position(harness), position(harness, T1)) == (None, 2)
    harness.reply_fetch(first, {T0: 1})
    assert position(harness) == 1


def test_a_committed_epoch_is_validated_first() -> None:
    """P-16: the epoch of the commit is the position's."""
    harness = starting()
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: (11, 4)})
    assert state(harness) is FetchState.AWAIT_VALIDATION
    found = harness.subscriptions.assigned(T0).position
    assert found is not None
    assert (found.offset, found.offset_epoch, found.leader_epoch) == (11, 4, 5)
    request = harness.take(OffsetForLeaderEpochRequest)
    assert isinstance(request.message, OffsetForLeaderEpochRequest)
    assert request.message.topics[0].partitions[0].leader_epoch == 4


@pytest.mark.parametrize(("epoch", "is_refreshed"), [(5, False), (6, True), (-1, False)])
def test_an_epoch_newer_than_the_metadata_refreshes_it(epoch: int, is_refreshed: bool) -> None:
    """P-16: KIP-320."""
    harness = starting()
    harness.metadata._is_update_needed = False
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: (11, epoch)})
    assert harness.metadata.is_update_needed is is_refreshed


def test_one_unstable_partition_does_not_hold_up_the_others() -> None:
    """T-12, P-08."""
    harness = starting(T0, T1)
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: refused(88), T1: 2})
    assert (position(harness), position(harness, T1)) == (None, 2)
    harness.advance(1000)
    request = harness.take(OffsetFetchRequest)
    assert harness.asked(request) == [T0]
    harness.reply_fetch(request, {T0: 1})
    assert position(harness) == 1


def test_a_topic_that_may_not_be_read_is_raised_until_granted() -> None:
    """S-08: again and again, while others go on."""
    harness = starting(T0, T1)
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: refused(29), T1: 2})
    assert position(harness, T1) == 2
    for _ in range(2):
        error = harness.collect_error()
        assert isinstance(error, TopicAuthorizationError)
        assert "t-0" in error.message
    assert harness.nothing_sent(OffsetFetchRequest)
    assert harness.next_poll_ms <= 1000
    harness.advance(1000)
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: 1})
    assert harness.collect_error() is None
    assert position(harness) == 1


def test_a_group_that_may_not_be_used_is_raised_until_granted() -> None:
    """S-08."""
    harness = GroupHarness()
    harness.subscriptions.assign_from_user([T0])
    for _ in range(3):
        harness.answer_coordinator(harness.take(FindCoordinatorRequest), error=30)
        assert isinstance(harness.collect_error(), GroupAuthorizationError)
        assert harness.nothing_sent(FindCoordinatorRequest)
        harness.advance(1000)
    harness.find()
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: 1})
    assert harness.collect_error() is None
    assert position(harness) == 1


def test_an_error_about_partitions_that_are_gone_is_not_raised() -> None:
    harness = starting()
    request = harness.take(OffsetFetchRequest)
    harness.subscriptions.assign_from_user([])
    harness.reply_fetch(request, {T0: refused(29)})
    assert harness.collect_error() is None


def test_a_coordinator_that_never_responds_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """O-01: one warning, not one per attempt; it goes on asking and raises nothing."""
    harness = starting(default_api_timeout_ms=30_000)
    with caplog.at_level(logging.WARNING, "kfast"):
        for _ in range(4):
            harness.lose(harness.take(OffsetFetchRequest))
            harness.advance(1_000)
            harness.find()
            harness.advance(29_000)
            harness.advance(1_000)
    assert harness.collect_error() is None
    warnings = [r for r in caplog.records if r.name.endswith("consumer.retried_errors")]
    assert len(warnings) == 1
    assert "the committed offsets of group" in warnings[0].getMessage()
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: 1})
    assert position(harness) == 1
    assert "CommittedPositions 0 in flight" in repr(harness.offsets._committed)
