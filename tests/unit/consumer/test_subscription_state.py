"""SubscriptionState: subscription, assignment, positions and their versions."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from kfast.client.cluster import Cluster
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.subscription import SubscriptionType
from kfast.consumer.subscription_state import Delivery, SubscriptionState
from kfast.consumer.topic_partition_state import (
    VALID_TRANSITIONS,
    AdvancePosition,
    FetchState,
    TopicPartitionState,
)
from kfast.errors import IllegalStateError
from kfast.settings.offset_reset import RESET_EARLIEST, RESET_LATEST, RESET_NONE
from kfast.types import SubscriptionPattern, TopicPartition
from tests.unit.consumer.clusters import cluster
from tests.unit.consumer.fakes import T0, T1, T2

PATTERN = SubscriptionPattern("t-.*")


def assigned(*partitions: TopicPartition, view: Cluster | None = None) -> SubscriptionState:
    subscriptions = SubscriptionState(RESET_EARLIEST)
    if view is not None:
        subscriptions.update_leaders(view)
    subscriptions.assign_from_user(partitions or (T0,))
    return subscriptions


def version(subscriptions: SubscriptionState, tp: TopicPartition = T0) -> int:
    return subscriptions.assigned(tp).version


def sought(offset: int = 100, epoch: int | None = None) -> SubscriptionState:
    subscriptions = assigned(T0, view=cluster({T0: (1, 5)}))
    subscriptions.seek(T0, FetchPosition(offset))
    if epoch is not None:
        subscriptions.advance_positions(
            [AdvancePosition(T0, version(subscriptions), offset, epoch)]
        )
    return subscriptions


# --- subscription ---------------------------------------------------------------------------------


def test_the_ways_to_subscribe_exclude_each_other() -> None:
    """G-24: mixing topics, a pattern and manual assignment raises, until unsubscribe."""
    calls: dict[SubscriptionType, Callable[[SubscriptionState], None]] = {
        SubscriptionType.AUTO_TOPICS: lambda s: s.subscribe({"t"}),
        SubscriptionType.AUTO_PATTERN: lambda s: s.subscribe_pattern(re.compile("t")),
        SubscriptionType.BROKER_PATTERN: lambda s: s.subscribe_broker_pattern(PATTERN),
        SubscriptionType.USER_ASSIGNED: lambda s: s.assign_from_user([T0]),
    }
    for first, call in calls.items():
        subscriptions = SubscriptionState(RESET_EARLIEST)
        call(subscriptions)
        assert subscriptions.subscription_type is first
        for second, other in calls.items():
            if second is first:
                other(subscriptions)
            else:
                with pytest.raises(IllegalStateError, match="unsubscribe"):
                    other(subscriptions)
        subscriptions.unsubscribe()
        assert not subscriptions.has_subscription()
        calls[SubscriptionType.AUTO_TOPICS](subscriptions)


def test_a_new_subscription_replaces_the_old() -> None:
    """G-24: subscribe() replaces the topics before."""
    subscriptions = SubscriptionState(RESET_EARLIEST)
    subscriptions.subscribe({"a", "b"})
    before = subscriptions.subscription_version
    subscriptions.subscribe({"c"})
    assert subscriptions.subscription() == {"c"}
    assert subscriptions.subscription_version == before + 1


def test_a_pattern_for_the_brokers_is_kept_as_it_is() -> None:
    """K-10: nothing is matched here; the group assigns."""
    subscriptions = SubscriptionState(RESET_EARLIEST)
    subscriptions.subscribe_broker_pattern(PATTERN)
    assert (subscriptions.broker_pattern, subscriptions.pattern) == (PATTERN, None)
    assert subscriptions.subscription() == frozenset()
    assert "t-.*" in repr(subscriptions)
    subscriptions.unsubscribe()
    assert subscriptions.broker_pattern is None


def test_assign_keeps_positions_of_partitions_that_stay() -> None:
    """G-24: assign() again keeps the positions and pauses of partitions in both."""
    subscriptions = assigned(T0, T1)
    subscriptions.seek(T0, FetchPosition(7))
    subscriptions.pause([T0])
    before = version(subscriptions)
    subscriptions.assign_from_user([T0, T2])
    assert subscriptions.assigned_partitions() == {T0, T2}
    position = subscriptions.position(T0)
    assert position is not None
    assert position.offset == 7
    assert subscriptions.paused_partitions() == {T0}
    assert version(subscriptions) == before


def test_a_partition_assigned_again_is_another_one() -> None:
    """F-03: the version after unassign and assign is new."""
    subscriptions = assigned(T0, T1)
    before = version(subscriptions)
    subscriptions.assign_from_user([T1])
    assert not subscriptions.is_current(T0, before)
    subscriptions.assign_from_user([T0, T1])
    assert not subscriptions.is_current(T0, before)
    assert version(subscriptions) > before


def test_unsubscribe_drops_everything() -> None:
    subscriptions = assigned(T0)
    subscriptions.unsubscribe()
    assert subscriptions.assigned_partitions() == frozenset()
    assert subscriptions.take_changes() == {T0}
    assert subscriptions.partitions_in(FetchState.INITIALIZING) == []


def test_a_partition_that_comes_back_goes_on_where_it_was() -> None:
    """M-09: a topic that vanishes for a moment is not reset."""
    subscriptions = SubscriptionState(RESET_LATEST)
    view = cluster({T0: (1, 5)})
    subscriptions.update_leaders(view)
    subscriptions.subscribe({"t"})
    subscriptions.assign_from_subscribed([T0], keeps_positions=True)
    subscriptions.seek(T0, FetchPosition(42))
    subscriptions.assign_from_subscribed([], keeps_positions=True)
    assert subscriptions.state(T0) is None
    subscriptions.assign_from_subscribed([T0], keeps_positions=True)
    position = subscriptions.position(T0)
    assert position is not None
    assert position.offset == 42


def test_a_partition_of_a_topic_created_again_does_not_get_the_old_position() -> None:
    """M-02: another topic id is another topic."""
    subscriptions = SubscriptionState(RESET_LATEST)
    subscriptions.update_leaders(cluster({T0: (1, 5)}))
    subscriptions.subscribe({"t"})
    subscriptions.assign_from_subscribed([T0], keeps_positions=True)
    subscriptions.seek(T0, FetchPosition(42))
    subscriptions.assign_from_subscribed([], keeps_positions=True)
    subscriptions.update_leaders(cluster({T0: (1, 0)}, incarnation=1))
    subscriptions.assign_from_subscribed([T0], keeps_positions=True)
    assert subscriptions.position(T0) is None


def test_assigning_for_a_subscription_needs_one() -> None:
    with pytest.raises(IllegalStateError):
        assigned(T0).assign_from_subscribed([T1])


# --- positions ------------------------------------------------------------------------------------


def test_every_transition_of_the_table_and_no_other_is_possible() -> None:
    for start, allowed in VALID_TRANSITIONS.items():
        for to in FetchState:
            state = TopicPartitionState(T0, 1)
            state.fetch_state = start
            if to in allowed:
                state.transition(to)
                assert state.fetch_state is to
            else:
                with pytest.raises(IllegalStateError, match="no transition"):
                    state.transition(to)


def test_a_new_partition_is_reset_by_policy() -> None:
    """P-01: without seek or committed offset the policy decides."""
    subscriptions = assigned(T0)
    assert subscriptions.position(T0) is None
    assert not subscriptions.is_fetchable(T0)
    assert subscriptions.reset_initializing_positions()
    assert subscriptions.partitions_in(FetchState.AWAIT_RESET) == [T0]
    assert subscriptions.assigned(T0).reset_strategy == RESET_EARLIEST
    assert not subscriptions.reset_initializing_positions()


def test_a_seek_comes_before_the_policy() -> None:
    """P-01: the user's seek wins over the reset."""
    subscriptions = assigned(T0)
    subscriptions.seek(T0, FetchPosition(3))
    assert not subscriptions.reset_initializing_positions()
    assert subscriptions.is_fetchable(T0)


def test_a_reset_that_ends_after_a_seek_is_dropped() -> None:
    """P-03: the answer to an older question does not move the position."""
    subscriptions = assigned(T0)
    subscriptions.request_offset_reset([T0])
    asked = version(subscriptions)
    subscriptions.seek(T0, FetchPosition(3))
    assert not subscriptions.complete_reset(T0, asked, FetchPosition(0))
    position = subscriptions.position(T0)
    assert position is not None
    assert position.offset == 3


def test_a_reset_that_ends_after_another_reset_is_dropped() -> None:
    """P-03: seek_to_end after seek_to_beginning takes the answer about the end only."""
    subscriptions = assigned(T0)
    subscriptions.request_offset_reset([T0], RESET_EARLIEST)
    first = version(subscriptions)
    subscriptions.request_offset_reset([T0], RESET_LATEST)
    second = version(subscriptions)
    assert not subscriptions.complete_reset(T0, first, FetchPosition(0))
    assert subscriptions.complete_reset(T0, second, FetchPosition(99))


def test_seek_raises_at_once_when_it_cannot_work() -> None:
    """P-04: unassigned partitions and negative offsets are refused."""
    subscriptions = assigned(T0)
    with pytest.raises(IllegalStateError, match="t-1 is not assigned"):
        subscriptions.seek(T1, FetchPosition(0))
    with pytest.raises(IllegalStateError, match="offset -1 of t-0"):
        subscriptions.seek(T0, FetchPosition(-1))
    with pytest.raises(IllegalStateError):
        subscriptions.request_offset_reset([T0, T1])
    assert subscriptions.partitions_in(FetchState.INITIALIZING) == [T0]


def test_a_seek_concerns_its_partition_only() -> None:
    """P-04: the other partitions keep their version and so their buffered data."""
    subscriptions = assigned(T0, T1)
    subscriptions.seek(T0, FetchPosition(1))
    subscriptions.seek(T1, FetchPosition(1))
    before = version(subscriptions, T1)
    subscriptions.seek(T0, FetchPosition(2))
    assert version(subscriptions, T1) == before


def test_a_seek_without_epoch_clears_it_and_needs_no_validation() -> None:
    """P-16: the position has no epoch any more, so nothing is validated."""
    subscriptions = sought(100, epoch=5)
    subscriptions.seek(T0, FetchPosition(50))
    position = subscriptions.position(T0)
    assert position is not None
    assert position.offset_epoch is None


def test_a_seek_with_epoch_is_validated_first() -> None:
    subscriptions = sought()
    subscriptions.seek(T0, FetchPosition(50, offset_epoch=4))
    assert subscriptions.position(T0) is None
    assert subscriptions.partitions_in(FetchState.AWAIT_VALIDATION) == [T0]


def test_hand_over_moves_position_and_epoch() -> None:
    """P-16: the position carries the epoch of the last batch handed out."""
    subscriptions = sought(100)
    steps = [AdvancePosition(T0, version(subscriptions), 110, 5)]
    assert subscriptions.advance_positions(steps)
    assert subscriptions.position(T0) == FetchPosition(110, 5, 1, 5)
    subscriptions.advance_positions([AdvancePosition(T0, version(subscriptions), 120, None)])
    assert subscriptions.position(T0) == FetchPosition(120, 5, 1, 5)


def test_hand_over_is_refused_for_other_versions_and_paused_partitions() -> None:
    """F-02: nothing fetched before a seek moves the position after it."""
    subscriptions = sought(100)
    old = version(subscriptions)
    subscriptions.seek(T0, FetchPosition(7))
    assert not subscriptions.advance_positions([AdvancePosition(T0, old, 110)])
    assert not subscriptions.advance_positions([AdvancePosition(T1, old, 9)])
    subscriptions.pause([T0])
    now = version(subscriptions)
    assert not subscriptions.advance_positions([AdvancePosition(T0, now, 8)])
    position = subscriptions.position(T0)
    assert position is not None
    assert position.offset == 7


def test_positions_advance_all_together_or_not_at_all() -> None:
    """F-02, F-10: what a poll returns is one step."""
    subscriptions = sought(100)
    subscriptions.assign_from_user([T0, T1])
    subscriptions.seek(T1, FetchPosition(3))
    good = AdvancePosition(T0, version(subscriptions), 110)
    stale = AdvancePosition(T1, version(subscriptions), 9)
    assert not subscriptions.advance_positions([good, stale])
    assert {tp: at.offset for tp, at in subscriptions.consumed().items()} == {T0: 100, T1: 3}
    current = AdvancePosition(T1, subscriptions.assigned(T1).version, 9)
    assert subscriptions.advance_positions([good, current])
    assert {tp: at.offset for tp, at in subscriptions.consumed().items()} == {T0: 110, T1: 9}


def test_delivery_distinguishes_stale_from_paused() -> None:
    subscriptions = sought()
    now = version(subscriptions)
    assert subscriptions.deliveries([AdvancePosition(T0, now, 0)]) == [Delivery.DELIVERABLE]
    subscriptions.pause([T0])
    assert subscriptions.deliveries([AdvancePosition(T0, now, 0)]) == [Delivery.PAUSED]
    assert subscriptions.deliveries([AdvancePosition(T0, now - 1, 0)]) == [Delivery.STALE]
    assert subscriptions.deliveries([AdvancePosition(T1, now, 0)]) == [Delivery.STALE]


def test_pause_and_resume_are_idempotent_and_keep_the_version() -> None:
    """P-11, F-21: pausing does not make what is buffered stale."""
    subscriptions = sought()
    before = version(subscriptions)
    for _ in range(2):
        subscriptions.pause([T0])
        assert subscriptions.paused_partitions() == {T0}
        assert not subscriptions.is_fetchable(T0)
    for _ in range(2):
        subscriptions.resume([T0])
        assert subscriptions.paused_partitions() == frozenset()
        assert subscriptions.is_fetchable(T0)
    assert version(subscriptions) == before


def test_the_default_policy_none_leaves_an_out_of_range_position_where_it_is() -> None:
    """P-10, P-17: without a policy the position does not move."""
    subscriptions = SubscriptionState(RESET_NONE)
    subscriptions.assign_from_user([T0])
    subscriptions.seek(T0, FetchPosition(12))
    subscriptions.offset_out_of_range(T0, version(subscriptions), 12)
    position = subscriptions.position(T0)
    assert position is not None
    assert position.offset == 12
    assert not subscriptions.is_fetchable(T0)


def test_out_of_range_of_an_older_version_is_ignored() -> None:
    """F-19: only the current fetch position can be out of range."""
    subscriptions = sought(100)
    old = version(subscriptions)
    subscriptions.seek(T0, FetchPosition(5))
    subscriptions.offset_out_of_range(T0, old, 100)
    assert subscriptions.is_fetchable(T0)


# --- lag ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_read_committed", "lag"), [(False, 20), (True, 10)])
def test_lag_counts_to_the_end_a_reader_can_see(is_read_committed: bool, lag: int) -> None:
    """P-12, T-10: to the high watermark, under read_committed to the last stable offset."""
    subscriptions = SubscriptionState(RESET_EARLIEST, is_read_committed=is_read_committed)
    subscriptions.assign_from_user([T0])
    assert subscriptions.current_lag(T0) is None
    subscriptions.seek(T0, FetchPosition(100))
    assert subscriptions.current_lag(T0) is None
    state = subscriptions.assigned(T0)
    state.high_watermark, state.last_stable_offset = 120, 110
    assert subscriptions.current_lag(T0) == lag
    assert subscriptions.high_watermark(T0) == 120
    subscriptions.request_offset_reset([T0])
    assert subscriptions.current_lag(T0) is None
    with pytest.raises(IllegalStateError):
        subscriptions.current_lag(T1)


# --- leaders --------------------------------------------------------------------------------------


def test_a_new_leader_epoch_puts_a_known_position_in_doubt() -> None:
    """P-13: with known epochs nothing is fetched, and what is under way is dropped."""
    subscriptions = sought(100, epoch=5)
    before = version(subscriptions)
    subscriptions.update_leaders(cluster({T0: (2, 6)}))
    assert subscriptions.partitions_in(FetchState.AWAIT_VALIDATION) == [T0]
    assert not subscriptions.is_fetchable(T0)
    assert not subscriptions.is_current(T0, before)
    state = subscriptions.assigned(T0)
    assert state.position == FetchPosition(100, 5, 2, 6)
    assert state.fetch_offset == 100


def test_the_same_leader_changes_nothing() -> None:
    subscriptions = sought(100, epoch=5)
    before = version(subscriptions)
    subscriptions.take_changes()
    subscriptions.update_leaders(cluster({T0: (1, 5)}))
    assert version(subscriptions) == before
    assert subscriptions.take_changes() == set()


def test_a_position_without_epoch_follows_the_leader_unvalidated() -> None:
    """P-13: an unknown epoch cannot be validated; fetching goes on at the new leader."""
    subscriptions = sought(100)
    before = version(subscriptions)
    subscriptions.update_leaders(cluster({T0: (2, 6)}))
    assert subscriptions.is_fetchable(T0)
    assert version(subscriptions) == before
    assert subscriptions.position(T0) == FetchPosition(100, None, 2, 6)


def test_metadata_that_loses_the_epochs_ends_a_validation() -> None:
    subscriptions = sought(100, epoch=5)
    subscriptions.update_leaders(cluster({T0: (2, 6)}))
    subscriptions.update_leaders(cluster({T0: (3, -1)}))
    assert subscriptions.is_fetchable(T0)


def test_a_second_leader_change_starts_another_validation() -> None:
    """P-15: the answer to the first one does not count any more."""
    subscriptions = sought(100, epoch=5)
    subscriptions.update_leaders(cluster({T0: (2, 6)}))
    first = version(subscriptions)
    subscriptions.update_leaders(cluster({T0: (3, 7)}))
    assert not subscriptions.complete_validation(T0, first)
    assert subscriptions.complete_validation(T0, version(subscriptions))
    assert subscriptions.position(T0) == FetchPosition(100, 5, 3, 7)


def test_a_leader_change_drops_the_preferred_replica() -> None:
    """F-18: the leader that named the follower is gone."""
    subscriptions = sought(100)
    subscriptions.assigned(T0).preferred_read_replica = 3
    subscriptions.update_leaders(cluster({T0: (2, 6)}))
    assert subscriptions.assigned(T0).preferred_read_replica is None


def test_a_partition_without_leader_keeps_its_state() -> None:
    """M-04: leaderless metadata changes nothing."""
    subscriptions = sought(100, epoch=5)
    subscriptions.update_leaders(cluster({T0: (-1, 5)}))
    assert subscriptions.is_fetchable(T0)


def test_a_topic_created_again_is_reset_by_the_strategy() -> None:
    """M-02: the old position does not count in the new topic."""
    subscriptions = sought(100, epoch=5)
    subscriptions.pause([T0])
    before = version(subscriptions)
    subscriptions.update_leaders(cluster({T0: (1, 0)}, incarnation=1))
    assert not subscriptions.is_current(T0, before)
    assert subscriptions.paused_partitions() == {T0}
    assert subscriptions.reset_initializing_positions()
    assert subscriptions.partitions_in(FetchState.AWAIT_RESET) == [T0]


# --- changes --------------------------------------------------------------------------------------


def test_changes_are_taken_once() -> None:
    """F-23: the fetcher learns what changed and need not look at the rest."""
    subscriptions = assigned(T0, T1)
    assert subscriptions.take_changes() == {T0, T1}
    assert subscriptions.take_changes() == set()
    subscriptions.seek(T0, FetchPosition(0))
    subscriptions.pause([T1])
    assert subscriptions.take_changes() == {T0, T1}
    subscriptions.pause([T1])
    assert subscriptions.take_changes() == set()


def test_repr_of_state_objects() -> None:
    subscriptions = sought()
    assert "USER_ASSIGNED" in repr(subscriptions)
    subscriptions.pause([T0])
    text = repr(subscriptions.assigned(T0))
    assert "t-0 FETCHING" in text
    assert "paused" in text
    assert str(FetchPosition(3, 7)) == "offset 3 (leader epoch 7)"
