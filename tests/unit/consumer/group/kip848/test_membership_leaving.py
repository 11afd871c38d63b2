"""ConsumerMembership: leaving, poll timeout, fatal errors, errors of commits."""

from __future__ import annotations

import logging

import pytest

from kfast.consumer.error_actions import ErrorAction
from kfast.consumer.group.kip848.errors import ACTIONS
from kfast.consumer.group.membership import CloseOperation, MemberIdentity, RebalanceKind
from kfast.errors import FencedInstanceIdError, TopicAuthorizationError, error_info
from kfast.types import SubscriptionPattern
from tests.unit.consumer.fakes import T0, T1
from tests.unit.consumer.group.kip848.harness import HEARTBEAT_KEY, U0, Member, is_done

# --- leaving --------------------------------------------------------------------------------------


def test_leaving_follows_the_revocation() -> None:
    """K-08, states PREPARE_LEAVING, LEAVING, UNSUBSCRIBED: once, epoch -1, the answer ignored."""
    member = Member().join(T0)
    member.subscriptions.unsubscribe()
    member.turn()
    assert member.state == "prepare_leaving"
    assert member.identity() is not None, "the revocation may still commit"
    sent = member.next_heartbeat()
    assert (sent.epoch, sent.fields) == (1, set()), "kept alive meanwhile"
    member.answer(sent)
    pending = member.membership.leave(member.now, is_closing=False)
    assert (member.state, member.identity()) == ("leaving", None)
    sent = member.heartbeat()
    assert (sent.epoch, sent.message.member_id, sent.fields) == (-1, member.id, set())
    assert not is_done(pending)
    member.answer(sent, error=25)
    assert is_done(pending)
    member.advance(60_000)
    assert member.is_silent(), "once"
    assert member.state == "unsubscribed"


def test_a_leave_that_fails_is_over_as_well() -> None:
    """K-08: close does not wait for a coordinator that is gone."""
    member = Member().join(T0)
    pending = member.membership.leave(member.now, is_closing=True)
    member.fail(member.heartbeat())
    assert is_done(pending)
    member.advance(60_000)
    assert member.is_silent()


def test_after_closing_nothing_joins_again() -> None:
    """L-02: whatever the subscription says."""
    member = Member().join(T0)
    member.membership.leave(member.now, is_closing=True)
    member.answer(member.heartbeat(), epoch=-1)
    member.application_polls()
    assert member.is_silent()
    assert member.state == "unsubscribed"


def test_leaving_twice_is_one_leave() -> None:
    """L-02: unsubscribe(), interrupted, then close(): both are answered."""
    member = Member().join(T0)
    first = member.membership.leave(member.now, is_closing=False)
    sent = member.heartbeat()
    second = member.membership.leave(member.now, is_closing=True)
    assert member.is_silent()
    member.answer(sent, epoch=-1)
    assert is_done(first)
    assert is_done(second)


def test_after_unsubscribing_a_new_subscription_joins_afresh() -> None:
    """K-08: same member id; the join waits for the leave to be over."""
    member = Member().join(T0, T1)
    member.subscriptions.unsubscribe()
    pending = member.membership.leave(member.now, is_closing=False)
    member.subscriptions.subscribe(["u"])
    sent = member.heartbeat()
    assert sent.epoch == -1
    assert member.is_silent()
    member.answer(sent, epoch=-1)
    assert is_done(pending)
    sent = member.heartbeat()
    assert (sent.epoch, sent.message.subscribed_topic_names) == (0, ["u"])
    member.answer(sent, U0, epoch=9)
    member.application_polls()
    assert member.calls == [("assigned", {U0})]


def test_nothing_joins_again_before_the_subscription_is_gone() -> None:
    """K-08, G-23: unsubscribe() leaves first and then forgets the topics; a leave may be quick."""
    member = Member().join(T0)
    member.subscriptions.assign_from_group(())
    pending = member.membership.leave(member.now, is_closing=False)
    member.answer(member.heartbeat(), epoch=-1)
    assert is_done(pending)
    assert member.is_silent()
    assert member.state == "unsubscribed"
    member.subscriptions.unsubscribe()
    assert member.is_silent()
    member.subscriptions.subscribe(["u"])
    assert member.heartbeat().epoch == 0


@pytest.mark.parametrize(
    ("instance", "operation", "epoch"),
    [
        (None, "default", -1),
        (None, "leave_group", -1),
        (None, "remain_in_group", None),
        ("i", "default", -2),
        ("i", "leave_group", -1),
        ("i", "remain_in_group", -2),
    ],
)
def test_static_members_leave_temporarily(
    instance: str | None, operation: CloseOperation, epoch: int | None
) -> None:
    """K-08, G-22: -2 lets the next consumer take the instance id over; KIP-1092 overrides."""
    member = Member(group_instance_id=instance).join(T0)
    pending = member.membership.leave(member.now, is_closing=True, operation=operation)
    if epoch is None:
        assert is_done(pending)
        assert member.is_silent()
        return
    sent = member.heartbeat()
    assert (sent.epoch, sent.message.instance_id) == (epoch, instance)


def test_leaving_does_not_wait_for_the_heartbeat_in_flight() -> None:
    """L-01: its late answer changes nothing."""
    member = Member().join(T0)
    beat = member.next_heartbeat()
    member.membership.leave(member.now, is_closing=True)
    leave = member.heartbeat()
    member.answer(beat, T0, T1, epoch=7)
    assert (member.state, member.identity()) == ("leaving", None)
    assert member.application.due is None
    member.answer(leave, epoch=-1)
    assert member.state == "unsubscribed"


def test_a_join_under_way_is_left_as_well() -> None:
    """K-08: the coordinator may have counted it in."""
    member = Member()
    member.heartbeat()
    member.membership.leave(member.now, is_closing=True)
    assert member.heartbeat().epoch == -1


def test_without_a_member_id_nothing_leaves() -> None:
    """Version 0: the id was in the answer that never came."""
    member = Member()
    member.connections.newest[HEARTBEAT_KEY] = 0
    member.heartbeat()
    pending = member.membership.leave(member.now, is_closing=True)
    member.turn()
    assert is_done(pending)
    assert member.is_silent()


def test_a_member_that_never_joined_sends_nothing() -> None:
    member = Member(topics=())
    member.turn()
    assert member.membership.leave(member.now, is_closing=True).is_done
    assert member.is_silent()


def test_leaving_withdraws_the_step_that_was_not_begun() -> None:
    """L-02: the application revokes by itself before it leaves."""
    member = Member().join(T0)
    member.answer(member.next_heartbeat(), T0, T1)
    assert len(member.application.posted) == 2
    member.membership.leave(member.now, is_closing=True)
    assert member.application.due is None
    assert member.application.withdrawn == member.application.posted[1:]
    assert member.metadata.unresolved_topic_ids == frozenset()


def test_a_step_that_ends_after_leaving_changes_nothing() -> None:
    """A listener may itself unsubscribe."""
    member = Member().join(T0)
    member.answer(member.next_heartbeat(), T0, T1)
    member.application.begin()
    member.subscriptions.unsubscribe()
    member.membership.leave(member.now, is_closing=False)
    member.subscriptions.subscribe(["t"])
    member.application.end()
    assert member.heartbeat().epoch == -1
    assert member.application.due is None


def test_a_subscription_that_came_and_went_unseen_leaves_first() -> None:
    """Revoked partitions must not be sent as owned."""
    member = Member().join(T0)
    member.subscriptions.unsubscribe()
    member.turn()
    member.subscriptions.subscribe(["u"])
    member.answer(member.heartbeat(), epoch=-1)
    sent = member.heartbeat()
    assert (sent.epoch, sent.owned) == (0, set())


def test_being_fenced_while_leaving_sends_nothing_more() -> None:
    """No on_lost, no rejoin: the application is giving everything up."""
    member = Member().join(T0)
    member.subscriptions.unsubscribe()
    member.answer(member.next_heartbeat(), error=110)
    assert member.state == "prepare_leaving"
    assert member.identity() is None
    member.advance(60_000)
    assert member.is_silent()
    assert member.membership.leave(member.now, is_closing=False).is_done
    assert member.state == "unsubscribed"


# --- poll timeout ---------------------------------------------------------------------------------


def test_a_member_without_poll_leaves_and_rejoins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """K-08, state STALE: leaves by itself; the next poll calls on_lost and joins again."""
    member = Member(max_poll_interval_ms=20_000).join(T0, epoch=3)
    for _ in range(3):
        member.advance(5_000)
        member.answer(member.heartbeat())
    assert member.next_poll_ms == 5_000
    with caplog.at_level(logging.WARNING, "kfast"):
        member.advance(5_000)
    assert "no poll() for 20 s (max.poll.interval.ms)" in caplog.text
    assert (member.state, member.identity()) == ("leaving", None)
    assert not member.is_delivered(T0)
    sent = member.heartbeat()
    assert sent.epoch == -1
    member.answer(sent, epoch=-1)
    assert member.state == "stale"
    member.advance(41_000)
    assert member.is_silent()
    assert member.calls == [], "only inside poll"
    caplog.clear()
    with caplog.at_level(logging.WARNING, "kfast"):
        member.application_polls()
    assert [record.message for record in caplog.records] == [
        "max.poll.interval.ms 20 s exceeded by 41 s: the member left the group; "
        "poll fewer records (max_poll_records) or raise it"
    ]
    assert member.calls == [("lost", {T0})]
    sent = member.heartbeat()
    assert (sent.epoch, sent.owned) == (0, set())


def test_a_static_member_without_poll_leaves_temporarily() -> None:
    """K-08: -2."""
    member = Member(max_poll_interval_ms=10_000, group_instance_id="i").join(T0)
    member.advance(10_000)
    assert member.heartbeat().epoch == -2


def test_the_poll_timeout_amid_a_rebalance_loses_everything() -> None:
    """G-06, K-04: the step is withdrawn, nothing is committed."""
    member = Member(max_poll_interval_ms=10_000).join(T0, T1)
    member.answer(member.next_heartbeat(), T1)
    assert member.application.due is not None
    member.advance(10_000)
    assert [step.kind for step in member.application.withdrawn] == [RebalanceKind.REVOKE]
    member.answer(member.heartbeat(), epoch=-1)
    member.application_polls()
    assert member.calls == [("lost", {T0, T1})]


def test_a_listener_that_takes_too_long_is_a_poll_timeout() -> None:
    """G-06: what it did stands, the rest is lost."""
    member = Member(max_poll_interval_ms=10_000).join(T0, T1)
    member.answer(member.next_heartbeat(), T1)
    member.application.begin()
    member.advance(10_000)
    member.answer(member.heartbeat(), epoch=-1)
    member.application.end()
    member.application_polls()
    assert member.calls == [("revoked", {T0}), ("lost", {T1})]
    assert member.heartbeat().epoch == 0


def test_a_stale_member_without_partitions_rejoins_at_poll() -> None:
    """There is no step whose end would wake it."""
    member = Member(max_poll_interval_ms=10_000).join()
    member.advance(10_000)
    member.answer(member.heartbeat(), epoch=-1)
    assert (member.state, member.next_poll_ms) == ("stale", 100)
    member.application.last_poll_ms = member.now
    member.advance(100)
    assert member.heartbeat().epoch == 0


def test_a_join_that_was_never_sent_needs_no_leave() -> None:
    member = Member(max_poll_interval_ms=10_000)
    member.finds_coordinator = False
    member.turn()
    member.advance(10_000)
    assert member.state == "stale"
    member.finds_coordinator = True
    member.advance(1_000)
    assert member.is_silent()


def test_closing_a_stale_member_sends_nothing_more() -> None:
    """K-08: once."""
    member = Member(max_poll_interval_ms=10_000).join(T0)
    member.advance(10_000)
    leave = member.heartbeat()
    pending = member.membership.leave(member.now, is_closing=True)
    assert not is_done(pending)
    assert member.is_silent()
    member.answer(leave, epoch=-1)
    assert is_done(pending)
    assert member.state == "unsubscribed"
    assert member.membership.leave(member.now, is_closing=True).is_done


# --- errors that end it ---------------------------------------------------------------------------

FATAL_CODES = [30, 35, 42, 69, 81, 82, 111, 112, 128, -1, 54, 9999]


@pytest.mark.parametrize("code", FATAL_CODES)
def test_fatal_errors_are_raised_with_the_brokers_words(code: int) -> None:
    """K-09, state FATAL: raised at every poll, everything lost, nothing more is sent."""
    member = Member().join(T0)
    member.answer(member.next_heartbeat(), error=code, message="the broker's reason")
    assert (member.state, member.identity()) == ("fatal", None)
    assert not member.is_delivered(T0)
    for _ in range(2):
        error = member.error()
        assert isinstance(error, error_info(code).exception)
        assert "the broker's reason" in str(error)
        assert error.hint
        assert error.node == 2
    member.application_polls()
    assert member.calls == [("lost", {T0})]
    member.advance(60_000)
    member.application_polls()
    assert member.is_silent()
    assert member.state == "fatal"
    assert member.membership.leave(member.now, is_closing=True).is_done


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (30, ('group "g"', "grant READ")),
        (35, ('group_protocol="consumer"', "classic")),
        (81, ('group "g"', "group.consumer.max.size")),
        (82, ('group_instance_id "i"', "taken over")),
        (111, ('group_instance_id "i"', "in use")),
        (112, ('"weird"', "uniform")),
        (128, ('"t-("', "RE2")),
    ],
)
def test_fatal_errors_name_what_is_at_fault(code: int, words: tuple[str, ...]) -> None:
    """K-09, K-11."""
    member = Member(topics=(), group_instance_id="i", group_remote_assignor="weird")
    member.subscriptions.subscribe_broker_pattern(SubscriptionPattern("t-("))
    member.answer(member.heartbeat(), error=code)
    text = str(member.error())
    assert all(word in text for word in words), text
    assert len(text.splitlines()) <= 6


def test_a_fatal_error_is_not_raised_after_unsubscribing() -> None:
    """K-09: assign() goes on to work; subscribing again raises again, and never joins."""
    member = Member()
    member.answer(member.heartbeat(), error=82)
    member.subscriptions.unsubscribe()
    assert member.membership.leave(member.now, is_closing=False).is_done
    member.turn()
    assert member.error() is None
    member.subscriptions.subscribe(["t"])
    assert member.is_silent()
    assert isinstance(member.error(), FencedInstanceIdError)


def test_a_topic_that_is_forbidden_is_raised_and_the_member_stays() -> None:
    """29: raised at each poll until it is granted; the interval goes on."""
    member = Member().join(T0)
    member.answer(member.next_heartbeat(), error=29)
    assert member.state == "stable"
    assert member.is_delivered(T0)
    for _ in range(2):
        assert isinstance(member.error(), TopicAuthorizationError)
    member.advance(100)
    member.answer(member.heartbeat())
    assert member.error() is None


def test_a_group_that_is_gone_does_not_matter_while_leaving() -> None:
    """69 while leaving."""
    member = Member().join(T0)
    member.subscriptions.unsubscribe()
    member.answer(member.next_heartbeat(), error=69)
    assert (member.state, member.error()) == ("prepare_leaving", None)


def test_a_late_answer_does_not_revive_a_left_member() -> None:
    member = Member().join(T0)
    sent = member.next_heartbeat()
    identity = member.identity()
    assert identity is not None
    member.membership.commit_failed(82, identity, member.now)
    member.answer(sent, epoch=9)
    assert (member.state, member.identity()) == ("fatal", None)


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (14, ErrorAction.RETRY),
        (15, ErrorAction.FIND_COORDINATOR),
        (16, ErrorAction.FIND_COORDINATOR),
        (25, ErrorAction.FENCE_MEMBER),
        (110, ErrorAction.FENCE_MEMBER),
        (29, ErrorAction.REPORT),
        *((code, ErrorAction.FAIL) for code in FATAL_CODES),
    ],
)
def test_the_table(code: int, action: ErrorAction) -> None:
    """K-09 and the rest of the error table."""
    assert ACTIONS.of(code) is action


# --- errors of commits ----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [113, 110, 25])
def test_a_commit_under_an_old_epoch_makes_the_heartbeat_due(code: int) -> None:
    """K-07: its answer has the epoch to commit under, or fences the member."""
    member = Member().join(T0, epoch=3)
    member.answer(member.next_heartbeat(), epoch=3)
    identity = member.identity()
    assert identity is not None
    member.membership.commit_failed(code, identity, member.now)
    assert member.is_silent(), "not at the speed of the network"
    member.advance(100)
    member.answer(member.heartbeat(), epoch=4)
    assert member.identity() == MemberIdentity("g", 4, member.id)
    member.advance(1_000)
    member.membership.commit_failed(code, identity, member.now)
    assert member.is_silent(), "that was about an epoch that is past"


def test_a_commit_by_a_fenced_instance_is_the_end() -> None:
    """G-21, K-09: 82 wherever it is met."""
    member = Member(group_instance_id="i").join(T0)
    identity = member.identity()
    assert identity is not None
    member.membership.commit_failed(12, identity, member.now)
    assert member.state == "stable"
    member.membership.commit_failed(82, identity, member.now)
    assert member.state == "fatal"
    assert 'group_instance_id "i"' in str(member.error())


def test_a_requested_rebalance_logs_that_the_broker_decides(
    caplog: pytest.LogCaptureFixture,
) -> None:
    member = Member().join(T0)
    with caplog.at_level(logging.WARNING, "kfast"):
        member.membership.request_rejoin("I feel like it")
    assert "I feel like it" in caplog.text
    assert member.is_silent()
    assert not member.membership.is_rebalancing
