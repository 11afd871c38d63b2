"""What a rebalance does to the partitions, eagerly and cooperatively."""

from __future__ import annotations

import pytest

from kfast.consumer.group.membership import RebalanceKind
from kfast.protocol.messages.join_group import JoinGroupRequest
from kfast.types import TopicPartition
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.group.classic.harness import ME, ClassicHarness

U0 = TopicPartition("u", 0)
LEADERS = {T0: (1, 5), T1: (1, 5), T2: (1, 5), U0: (1, 5)}


def eager(**configs: object) -> ClassicHarness:
    member = ClassicHarness(**configs)  # type: ignore[arg-type]
    member.join()
    member.take_calls()
    return member


def cooperative(**configs: object) -> ClassicHarness:
    member = ClassicHarness(
        partition_assignment_strategy="cooperative-sticky",
        **configs,  # type: ignore[arg-type]
    )
    member.join()
    member.take_calls()
    return member


# --- before joining -------------------------------------------------------------------------------


def test_delivery_stops_before_anything_is_revoked() -> None:
    """G-08: held first, then revoked, then joined."""
    member = eager()
    member.beat(27)
    assert member.held == {T0, T1}
    assert member.owned == {T0, T1}
    assert not member.sends(JoinGroupRequest)
    member.app_polls()
    assert member.take_calls() == [("revoked", {T0, T1})]
    assert member.sends(JoinGroupRequest)


def test_the_time_a_revocation_may_take() -> None:
    """G-08: its commit is bounded by the rebalance timeout."""
    member = eager(max_poll_interval_ms=60_000)
    member.beat(27)
    step = member.port.due
    assert step is not None
    assert step.deadline_ms == member.now + 60_000


def test_a_commit_fits_into_the_revocation() -> None:
    """G-08, C-06: the old identity holds until JoinGroup goes out."""
    member = eager()
    member.beat(27)
    assert not member.is_rebalancing()
    assert member.generation == 1
    member.app_polls()
    assert member.sends(JoinGroupRequest)
    assert member.is_rebalancing()


def test_eager_revokes_all_and_drops_everything() -> None:
    """G-09: nothing of the old state is left for the same partition assigned again."""
    member = eager()
    version = member.subscriptions.assigned(T0).version
    member.member.request_rejoin("test")
    member.app_polls()
    assert member.owned == set()
    assert member.subscription(member.joining()).owned_partitions == []
    member.reply_join(2)
    member.reply_sync([T0, T2])
    member.app_polls()
    assert member.take_calls() == [("revoked", {T0, T1}), ("assigned", {T0, T2})]
    assert member.subscriptions.assigned(T0).version > version
    assert member.subscriptions.position(T0) is None


def test_nothing_owned_is_nothing_to_revoke() -> None:
    member = eager(enable_auto_commit=True)
    member.member.request_rejoin("test")
    member.app_polls()
    member.reply_join(2)
    member.reply_sync([])
    member.app_polls()
    member.take_calls()
    member.beat(27)
    assert member.sends(JoinGroupRequest)
    member.app_polls()
    assert member.take_calls() == []


# --- cooperative ----------------------------------------------------------------------------------


def test_cooperative_revokes_nothing_before_joining() -> None:
    """G-10: no step at all without auto-commit; everything is claimed."""
    member = cooperative()
    member.stops_polling()
    member.beat(27)
    assert member.port.due is None
    subscription = member.subscription(member.joining())
    assert subscription.owned_partitions == [T0, T1]
    assert subscription.generation_id == 1
    assert member.held == set()


def test_auto_commit_gets_its_chance_before_joining() -> None:
    """G-08, A-01: a step that revokes nothing."""
    member = cooperative(enable_auto_commit=True)
    member.beat(27)
    step = member.port.due
    assert step is not None
    assert (step.kind, step.partitions) == (RebalanceKind.REVOKE, frozenset())
    assert step.assignment == {T0, T1}
    assert not member.sends(JoinGroupRequest)
    assert member.held == set()
    member.app_polls()
    assert member.take_calls() == []
    assert member.sends(JoinGroupRequest)


def test_cooperative_revokes_unsubscribed_topics_before_joining() -> None:
    """G-10."""
    member = ClassicHarness(
        ["t", "u"], leaders=LEADERS, partition_assignment_strategy="cooperative-sticky"
    )
    member.join([T0, U0])
    member.take_calls()
    member.subscriptions.subscribe(["t"])
    member.turn()
    assert member.held == {U0}
    member.app_polls()
    assert member.take_calls() == [("revoked", {U0})]
    subscription = member.subscription(member.joining())
    assert (subscription.topics, subscription.owned_partitions) == (["t"], [T0])


def test_cooperative_keeps_revokes_and_adds() -> None:
    """G-10: revoked = owned - assigned, added = assigned - owned, and a follow-up join."""
    member = cooperative()
    version = member.subscriptions.assigned(T0).version
    member.beat(27)
    member.reply_join(2)
    member.reply_sync([T0, T2])
    assert member.held == {T1}
    assert not member.sends(JoinGroupRequest)
    member.app_polls()
    assert member.take_calls() == [("revoked", {T1}), ("assigned", {T2})]
    assert member.subscriptions.assigned(T0).version == version, "kept as it was"
    subscription = member.subscription(member.joining())
    assert subscription.owned_partitions == [T0, T2]
    assert subscription.generation_id == 2
    member.reply_join(3)
    member.reply_sync([T0, T2])
    member.app_polls()
    assert member.take_calls() == [("assigned", set())]
    assert not member.sends(JoinGroupRequest)
    assert member.held == set()


def test_cooperative_without_loss_needs_no_second_round() -> None:
    """G-10."""
    member = cooperative()
    member.beat(27)
    member.reply_join(2)
    member.reply_sync([T0, T1, T2])
    member.app_polls()
    assert member.take_calls() == [("assigned", {T2})]
    assert not member.sends(JoinGroupRequest)
    assert member.subscriptions.assigned(T2).is_pending_callback is False


def test_added_partitions_are_held_until_the_listener_is_done() -> None:
    """G-13: it may seek and pause in peace."""
    member = cooperative()
    member.beat(27)
    member.reply_join(2)
    member.reply_sync([T0, T1, T2])
    step = member.port.due
    assert step is not None
    member.subscriptions.assign_from_group(
        sorted(step.assignment), pending_callback=step.partitions
    )
    assert member.held == {T2}


def test_a_listener_that_raises_does_not_stop_the_group() -> None:
    """G-13: classic groups go on."""
    member = cooperative()
    member.beat(27)
    member.reply_join(2)
    member.reply_sync([T0])
    member.app_polls(error=RuntimeError("listener"))
    assert member.take_calls() == [("revoked", {T1}), ("assigned", set())]
    assert member.sends(JoinGroupRequest)
    assert member.held == set()


def test_27_while_an_assignment_waits_for_the_application() -> None:
    """G-10: the assignment is taken first, then the group is joined again."""
    member = cooperative()
    member.stops_polling()
    member.beat(27)
    member.reply_join(2)
    member.reply_sync([T0, T1, T2])
    member.beat(27)
    assert not member.sends(JoinGroupRequest)
    member.app_polls()
    assert member.take_calls() == [("assigned", {T2})]
    assert member.subscription(member.joining()).owned_partitions == [T0, T1, T2]


# --- reasons --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [eager, cooperative])
def test_a_changed_subscription_is_one_rejoin(make: object) -> None:
    """G-14: exactly one, with the topics of the latest subscription."""
    member: ClassicHarness = make(leaders=LEADERS)  # type: ignore[operator]
    member.subscriptions.subscribe(["t", "v"])
    member.subscriptions.subscribe(["t", "u"])
    member.app_polls()
    message = member.joining()
    assert member.subscription(message).topics == ["t", "u"]
    assert message.member_id == ME
    assert "subscription changed" in (message.reason or "")
    member.reply_join(2)
    member.reply_sync([T0, T1, U0])
    member.app_polls()
    member.advance(1_000)
    assert not member.sends(JoinGroupRequest)
    assert member.owned == {T0, T1, U0}


def test_the_same_topics_again_are_no_rejoin() -> None:
    """G-14."""
    member = eager()
    member.subscriptions.subscribe(["t"])
    member.app_polls()
    assert not member.sends(JoinGroupRequest)


def test_a_subscription_changed_during_a_rebalance() -> None:
    """G-14, G-15: the assignment may still be one for it; then one more rejoin."""
    member = cooperative(leaders=LEADERS)
    member.beat(27)
    assert member.sends(JoinGroupRequest)
    member.subscriptions.subscribe(["t", "u"])
    member.reply_join(2)
    member.reply_sync([T0, T1])
    member.app_polls()
    assert member.take_calls() == [("assigned", set())]
    assert member.subscription(member.joining()).topics == ["t", "u"]


def test_enforce_rebalance_is_one_rejoin_with_its_reason() -> None:
    """G-14: KIP-568, KIP-800: at most 255 characters are sent."""
    member = cooperative()
    member.member.request_rejoin("because " + "x" * 300)
    member.member.request_rejoin("another reason")
    member.app_polls()
    message = member.joining()
    assert message.reason == ("because " + "x" * 300)[:255]
    member.member.request_rejoin("while it rebalances")
    member.reply_join(2)
    member.reply_sync([T0, T1])
    member.app_polls()
    assert not member.sends(JoinGroupRequest)


def test_enforce_rebalance_before_joining_is_no_extra_join() -> None:
    """G-14."""
    member = ClassicHarness()
    member.member.request_rejoin("early")
    member.join()
    assert not member.sends(JoinGroupRequest)


# --- kept partitions ------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [14, 15, 16, 27, 30, 7])
@pytest.mark.parametrize("exchange", ["join", "sync"])
def test_kept_partitions_are_fetchable_after_every_failure(exchange: str, code: int) -> None:
    """G-11: whatever a rebalance comes to, what is kept is neither held nor dropped."""
    member = cooperative(enable_auto_commit=True)
    version = member.subscriptions.assigned(T0).version
    member.beat(27)
    member.app_polls()
    if exchange == "join":
        member.reply_join(error=code)
    else:
        member.reply_join(2)
        member.reply_sync(error=code)
    member.app_polls()
    assert member.owned == {T0, T1}
    assert member.held == set()
    assert member.subscriptions.assigned(T0).version == version
    member.advance(1_000)
    if member.coordinator() is None:
        member.find()
    member.reply_join(3)
    member.reply_sync([T0, T1])
    member.app_polls()
    assert member.held == set()
    assert member.subscriptions.assigned(T0).version == version


def test_kept_partitions_stay_paused() -> None:
    """P-11, G-11: over a cooperative rebalance; new ones start unpaused."""
    member = cooperative()
    member.subscriptions.pause([T0])
    member.beat(27)
    member.reply_join(2)
    member.reply_sync([T0, T1, T2])
    member.app_polls()
    assert member.subscriptions.paused_partitions() == {T0}
