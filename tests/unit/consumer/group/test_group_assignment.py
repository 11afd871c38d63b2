"""SubscriptionState under a group: partitions held, released, assigned and taken away."""

from __future__ import annotations

from collections.abc import Callable

from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.subscription_state import Delivery, SubscriptionState
from kfast.consumer.topic_partition_state import AdvancePosition, FetchState
from kfast.settings.offset_reset import RESET_EARLIEST
from kfast.types import TopicPartition
from tests.unit.consumer.clusters import cluster
from tests.unit.consumer.fakes import T0, T1, T2


def given(*partitions: TopicPartition) -> SubscriptionState:
    """Return a state that reads these from offset 10, as a group assigned them."""
    subscriptions = SubscriptionState(RESET_EARLIEST)
    subscriptions.subscribe(["t"])
    subscriptions.assign_from_group(partitions)
    for tp in partitions:
        subscriptions.seek(tp, FetchPosition(10))
    subscriptions.take_changes()
    return subscriptions


def version(subscriptions: SubscriptionState, tp: TopicPartition) -> int:
    return subscriptions.assigned(tp).version


def test_what_is_held_is_neither_fetched_nor_delivered() -> None:
    """G-08: from the moment a partition is to be revoked nothing of it comes out."""
    subscriptions = given(T0, T1)
    before = version(subscriptions, T0)
    subscriptions.mark_pending_callback([T0, T2])
    assert not subscriptions.is_fetchable(T0)
    assert subscriptions.deliveries([AdvancePosition(T0, before, 0)]) == [Delivery.PAUSED]
    assert not subscriptions.advance_positions([AdvancePosition(T0, before, 20)])
    assert subscriptions.is_fetchable(T1)
    assert set(subscriptions.take_changes()) == {T0}
    position = subscriptions.position(T0)
    assert position is not None
    assert position.offset == 10


def test_release_undoes_hold_and_both_are_idempotent() -> None:
    """G-11: what was held and kept goes on with what is buffered: the version is the same."""
    subscriptions = given(T0)
    before = version(subscriptions, T0)
    for change in (subscriptions.mark_pending_callback, subscriptions.clear_pending_callback):
        change([T0])
        assert set(subscriptions.take_changes()) == {T0}
        change([T0])
        assert not subscriptions.take_changes()
    assert subscriptions.deliveries([AdvancePosition(T0, before, 0)]) == [Delivery.DELIVERABLE]


def test_hold_and_pause_do_not_touch_each_other() -> None:
    """P-11: a pause survives being held, and what is held is not set free by resume."""
    subscriptions = given(T0)
    subscriptions.pause([T0])
    subscriptions.mark_pending_callback([T0])
    assert subscriptions.paused_partitions() == {T0}
    subscriptions.resume([T0])
    assert not subscriptions.is_fetchable(T0)
    subscriptions.pause([T0])
    subscriptions.clear_pending_callback([T0])
    assert subscriptions.paused_partitions() == {T0}
    assert not subscriptions.is_fetchable(T0)


def test_kept_partitions_keep_all_they_have() -> None:
    """G-10, P-11: position, version and pause stay; new ones start unpaused, without position."""
    subscriptions = given(T0, T1)
    subscriptions.pause([T0])
    before = version(subscriptions, T0)
    subscriptions.assign_from_group([T0, T2], pending_callback=[T2])
    assert subscriptions.assigned_partitions() == {T0, T2}
    assert version(subscriptions, T0) == before
    assert subscriptions.paused_partitions() == {T0}
    added = subscriptions.assigned(T2)
    assert (added.fetch_state, added.is_pending_callback) == (FetchState.INITIALIZING, True)
    assert {T1, T2} <= set(subscriptions.take_changes())


def test_every_assignment_sets_free_what_an_earlier_rebalance_held() -> None:
    """G-11: a kept partition is fetchable after every outcome of a rebalance."""
    subscriptions = given(T0, T1)
    subscriptions.mark_pending_callback([T0, T1])
    subscriptions.assign_from_group([T0])
    assert subscriptions.is_fetchable(T0)
    assert subscriptions.state(T1) is None


def test_a_partition_that_was_revoked_and_comes_back_starts_afresh() -> None:
    """G-09, C-08: what was fetched or reached under the earlier assignment is void."""
    subscriptions = given(T0)
    before = version(subscriptions, T0)
    subscriptions.assign_from_group([])
    subscriptions.assign_from_group([T0])
    assert subscriptions.deliveries([AdvancePosition(T0, before, 0)]) == [Delivery.STALE]
    assert subscriptions.position(T0) is None


def test_the_leader_needs_the_metadata_of_all_topics_of_the_group() -> None:
    """G-14: a leader watches the topics of all members, and no more once it unsubscribed."""
    subscriptions = given(T0)
    assert subscriptions.metadata_topics() == {"t"}
    subscriptions.set_group_topics(["t", "u"])
    assert subscriptions.metadata_topics() == {"t", "u"}
    assert subscriptions.subscription() == {"t"}
    subscriptions.unsubscribe()
    assert subscriptions.metadata_topics() == set()


# --- how far records were handed out --------------------------------------------------------------


def advance(subscriptions: SubscriptionState, offsets: dict[TopicPartition, int]) -> None:
    steps = [AdvancePosition(tp, version(subscriptions, tp), at, 3) for tp, at in offsets.items()]
    assert subscriptions.advance_positions(steps)


def consumed(subscriptions: SubscriptionState, **which: bool) -> dict[TopicPartition, int]:
    return {tp: at.offset for tp, at in subscriptions.consumed(**which).items()}


def test_consumed_is_what_was_handed_out() -> None:
    """C-03, P-16: positions with the epoch of the last batch; partitions without one are absent."""
    subscriptions = given(T0, T1)
    subscriptions.assign_from_group([T0, T1, T2])
    advance(subscriptions, {T0: 20})
    assert consumed(subscriptions) == {T0: 20, T1: 10}
    assert subscriptions.consumed()[T0].offset_epoch == 3


def test_the_last_hand_over_can_be_left_out() -> None:
    """A-02: records in work are distinguished from those that are done."""
    subscriptions = given(T0, T1)
    advance(subscriptions, {T0: 20, T1: 11})
    advance(subscriptions, {T0: 30})
    subscriptions.advance_positions([])  # a poll that found nothing advances nothing
    assert consumed(subscriptions, is_last_included=False) == {T0: 20, T1: 11}
    subscriptions.seek(T0, FetchPosition(5))
    assert consumed(subscriptions, is_last_included=False) == {T0: 5, T1: 11}


def test_a_seek_version_changes_when_the_application_seeks_and_not_otherwise() -> None:
    """P-04, P-13, P-10: what was polled before a seek is void; not so what the log has lost."""
    subscriptions = given(T0)
    advance(subscriptions, {T0: 20})
    seek_version, before = subscriptions.assigned(T0).seek_version, subscriptions.changes
    subscriptions.update_leaders(cluster({T0: (2, 9)}))
    assert subscriptions.assigned(T0).fetch_state is FetchState.AWAIT_VALIDATION
    assert subscriptions.complete_validation(T0, version(subscriptions, T0))
    assert subscriptions.assigned(T0).seek_version == seek_version
    assert consumed(subscriptions, is_last_included=False) == {T0: 10}
    assert subscriptions.changes > before
    subscriptions.offset_out_of_range(T0, version(subscriptions, T0), 20)
    assert subscriptions.assigned(T0).seek_version == seek_version
    assert subscriptions.complete_reset(T0, version(subscriptions, T0), FetchPosition(15))
    assert subscriptions.assigned(T0).seek_version == seek_version
    assert consumed(subscriptions, is_last_included=False) == {T0: 15}
    subscriptions.seek(T0, FetchPosition(20))
    sought = subscriptions.assigned(T0).seek_version
    assert sought != seek_version
    subscriptions.request_offset_reset([T0])
    assert subscriptions.assigned(T0).seek_version != sought


def test_changes_counts_what_may_stop_a_batch_and_not_progress() -> None:
    """P-04: whoever hands out rows one by one need only look at one number."""
    subscriptions = given(T0, T1)
    seen = subscriptions.changes
    advance(subscriptions, {T0: 20})
    assert subscriptions.changes == seen
    changes: list[Callable[[], None]] = [
        lambda: subscriptions.pause([T0]),
        lambda: subscriptions.mark_pending_callback([T0]),
        lambda: subscriptions.seek(T0, FetchPosition(1)),
        lambda: subscriptions.request_offset_reset([T1]),
        lambda: subscriptions.assign_from_group([T0]),
        subscriptions.unsubscribe,
    ]
    for change in changes:
        change()
        assert subscriptions.changes > seen
        seen = subscriptions.changes
