"""Staying a member: heartbeats, the session, and coordinators that move, load or die."""

from __future__ import annotations

import pytest

from kfast._base.clock import ExponentialBackoff
from kfast.client.request import Channel
from kfast.consumer.group.heartbeat import Heartbeat
from kfast.consumer.group.membership import MemberIdentity
from kfast.errors import (
    AuthenticationError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    KafkaError,
)
from kfast.protocol.messages.find_coordinator import FindCoordinatorRequest
from kfast.protocol.messages.heartbeat import HeartbeatRequest
from kfast.protocol.messages.join_group import JoinGroupRequest
from tests.fake_clock import FakeClock
from tests.unit.configs import config
from tests.unit.consumer.fakes import T0, T1
from tests.unit.consumer.group.classic.harness import ME, ClassicHarness
from tests.unit.consumer.group.coordinator_harness import COORDINATOR, GROUP


def stable(strategy: str = "cooperative-sticky", **configs: object) -> ClassicHarness:
    """Return a member with two partitions and nothing to do."""
    member = ClassicHarness(partition_assignment_strategy=strategy, **configs)  # type: ignore[arg-type]
    member.join()
    member.take_calls()
    return member


# --- when -----------------------------------------------------------------------------------------


def test_heartbeats_run_in_stable() -> None:
    """G-03: one every heartbeat_interval_ms, one in flight."""
    member = stable()
    member.advance(2_999)
    assert not member.sends(HeartbeatRequest)
    assert member.next_poll_ms == 1
    member.advance(1)
    request = member.take(HeartbeatRequest)
    message = request.message
    assert isinstance(message, HeartbeatRequest)
    assert (message.group_id, message.generation_id, message.member_id) == (GROUP, 1, ME)
    assert (request.node_id, request.channel) == (COORDINATOR, Channel.COORDINATOR)
    member.advance(10_000)
    assert not member.sends(HeartbeatRequest)
    member.reply_heartbeat(request=request)
    member.reply_heartbeat(request=member.take(HeartbeatRequest))
    assert not member.sends(HeartbeatRequest), "two were sent"
    assert member.next_poll_ms == 3_000, "the second one now"


def test_heartbeats_run_while_the_application_is_busy() -> None:
    """G-03: polling has nothing to do with them."""
    member = stable()
    member.stops_polling()
    for _ in range(20):
        member.beat()
    assert member.state == "stable"


def test_heartbeats_run_while_a_step_waits_for_the_application() -> None:
    """G-03: a long on_partitions_revoked does not cost the membership."""
    member = stable("range")
    member.beat(27)
    assert member.port.due is not None
    for _ in range(5):
        member.beat(27)
    assert not member.sends(JoinGroupRequest)
    assert len(member.port.posted) == 2


def test_no_heartbeat_during_a_join() -> None:
    """G-03: the broker keeps the session of a parked member."""
    member = stable()
    member.beat(27)
    assert member.sends(JoinGroupRequest)
    member.advance(40_000)
    assert not member.sends(HeartbeatRequest)


def test_heartbeats_run_while_syncing() -> None:
    """G-03: and their 27 has no effect there."""
    member = stable()
    member.beat(27)
    member.reply_join(2)
    member.turn()
    member.beat(27)
    assert member.state == "completing_rebalance"
    member.reply_sync([T0, T1])
    member.app_polls()
    assert member.state == "stable"
    assert not member.sends(JoinGroupRequest)


# --- answers --------------------------------------------------------------------------------------


def test_27_makes_the_next_poll_rejoin_with_the_same_id() -> None:
    """G-03: member id and generation stay until then."""
    member = stable("range")
    member.beat(27)
    assert member.state == "stable"
    assert member.member.identity == MemberIdentity(GROUP, 1, ME)
    assert not member.sends(JoinGroupRequest)
    member.app_polls()
    assert member.take_calls() == [("revoked", {T0, T1})]
    assert member.joining().member_id == ME


@pytest.mark.parametrize(("code", "member_id"), [(25, ""), (22, ME)])
def test_a_membership_lost(code: int, member_id: str) -> None:
    """G-02, G-12: 25 drops the member id, 22 keeps it; on_lost, then join at once."""
    member = stable("range")
    member.beat(code)
    assert member.held == {T0, T1}
    assert member.member.identity is None
    member.app_polls()
    assert member.take_calls() == [("lost", {T0, T1})]
    assert member.joining().member_id == member_id


def test_a_membership_lost_while_a_revocation_waits() -> None:
    """G-12: what was to be revoked is lost instead."""
    member = stable("range")
    member.beat(27)
    assert member.port.due is not None
    member.beat(25)
    assert len(member.port.withdrawn) == 1
    member.app_polls()
    assert member.take_calls() == [("lost", {T0, T1})]
    assert member.joining().member_id == ""


def test_a_membership_lost_while_a_revocation_runs() -> None:
    """G-12: what the application is giving up already cannot be lost any more."""
    member = stable("range")
    member.beat(27)
    step, member.port.due = member.port.due, None
    assert step is not None
    member.beat(25)
    member.run(step)
    member.member.step_done(step, None, member.now)
    member.app_polls()
    assert member.take_calls() == [("revoked", {T0, T1})]
    assert member.joining().member_id == ""


def test_a_membership_lost_before_its_assignment_is_taken() -> None:
    """G-11, G-12: an assignment the application never saw is nothing to be lost."""
    member = ClassicHarness(partition_assignment_strategy="cooperative-sticky")
    member.find()
    member.reply_join()
    member.reply_sync([T0])
    member.beat(25)
    assert member.port.due is None
    member.app_polls()
    assert member.calls == []
    assert member.joining().member_id == ""


def test_82_is_fatal() -> None:
    """G-21: raised by every poll, never retried, and nothing more is said to the broker."""
    member = stable(group_instance_id="i")
    member.beat(82)
    error = member.error()
    assert isinstance(error, FencedInstanceIdError)
    assert '"i"' in error.message
    assert member.error() is error
    assert member.held == {T0, T1}
    member.app_polls()
    assert member.take_calls() == [("lost", {T0, T1})]
    member.subscriptions.subscribe(["t", "u"])
    member.advance(60_000)
    assert member.outbox == []
    assert member.member.leave(member.now, is_closing=True, operation="leave_group").is_done
    assert member.outbox == []
    assert member.error() is error


@pytest.mark.parametrize("code", [15, 16])
def test_the_coordinator_moves(code: int) -> None:
    """G-04, G-25: found anew, heartbeats go on there, nothing else changes."""
    member = stable()
    member.beat(code)
    assert member.coordinator() is None
    assert member.held == set()
    member.advance(1_000)
    member.find(3)
    member.advance(1_000)
    request = member.take(HeartbeatRequest)
    assert request.node_id == 3
    member.reply_heartbeat(request=request)
    assert member.state == "stable"
    assert member.port.posted == member.port.posted[:1]
    assert member.calls == []


def test_the_coordinator_loads() -> None:
    """G-04, G-25: it is asked again after a pause."""
    member = stable()
    member.beat(14)
    assert member.coordinator() == COORDINATOR
    assert not member.sends(HeartbeatRequest)
    member.advance(100)
    member.reply_heartbeat(14)
    member.advance(199)
    assert not member.sends(HeartbeatRequest)
    member.advance(1)
    member.reply_heartbeat()
    member.advance(2_999)
    assert not member.sends(HeartbeatRequest)
    assert member.held == set()


def test_the_coordinator_dies() -> None:
    """G-04, G-25: a lost connection makes it unknown; fetching goes on."""
    member = stable()
    member.advance(3_000)
    member.fail(member.take(HeartbeatRequest))
    assert member.coordinator() is None
    assert member.sends(FindCoordinatorRequest)
    assert member.owned == {T0, T1}
    assert member.held == set()
    member.find(1)
    member.advance(3_000)
    assert member.take(HeartbeatRequest).node_id == 1


@pytest.mark.parametrize("code", [30, 7])
def test_other_codes_do_not_touch_the_coordinator(code: int) -> None:
    """G-04."""
    member = stable()
    member.beat(code)
    assert member.coordinator() == COORDINATOR
    assert member.state == "stable"


def test_30_is_raised_and_the_membership_goes_on() -> None:
    member = stable()
    member.beat(30)
    assert isinstance(member.error(), GroupAuthorizationError)
    assert member.error() is None
    member.advance(3_000)
    member.reply_heartbeat()
    assert member.state == "stable"


@pytest.mark.parametrize("code", [-1, 42, 1234])
def test_unknown_codes_end_it(code: int) -> None:
    member = stable()
    member.beat(code)
    assert isinstance(member.error(), KafkaError)
    assert member.state == "failed"
    assert member.held == {T0, T1}


def test_a_refused_log_in_is_kept_and_raised() -> None:
    member = stable()
    member.advance(3_000)
    member.fail(member.take(HeartbeatRequest), AuthenticationError("no"))
    assert isinstance(member.error(), AuthenticationError)
    assert member.coordinator() == COORDINATOR


def test_a_stale_answer_is_ignored() -> None:
    """G-03: an answer to a heartbeat of an earlier generation changes nothing."""
    member = stable()
    member.advance(3_000)
    stale = member.take(HeartbeatRequest)
    member.member.request_rejoin("test")
    member.app_polls()
    member.reply_join(2)
    member.reply_sync([T0, T1])
    member.reply_heartbeat(25, request=stale)
    assert member.state == "stable"
    assert member.generation == 2
    member.app_polls()
    assert member.owned == {T0, T1}


def test_a_failure_of_an_old_coordinator_is_ignored() -> None:
    """G-04: the new one is not doubted for what happens to the old one."""
    member = stable()
    member.advance(3_000)
    stale = member.take(HeartbeatRequest)
    member.finder.mark_unknown("moved", member.now)
    member.turn()
    member.advance(100)
    member.find(3)
    member.fail(stale)
    assert member.coordinator() == 3


# --- the session ----------------------------------------------------------------------------------


def test_the_session_ends_without_answers() -> None:
    """G-05: 45 s without a good answer, and the coordinator is looked for."""
    member = stable()
    member.advance(3_000)
    assert member.sends(HeartbeatRequest)
    member.advance(41_999)
    assert member.coordinator() == COORDINATOR
    assert member.next_poll_ms == 1
    member.advance(1)
    assert member.coordinator() is None
    member.outbox.clear()
    member.turn()
    assert member.state == "stable"


def test_the_session_ends_though_no_heartbeat_can_be_sent() -> None:
    """G-05: a connection that never gets ready is no excuse."""
    member = stable()
    member.connections.down.add(COORDINATOR)
    member.advance(44_999)
    assert member.coordinator() == COORDINATOR
    member.advance(1)
    assert member.coordinator() is None


def test_answers_keep_the_session() -> None:
    """G-05: also the answer that the group rebalances."""
    member = stable("range")
    member.stops_polling()
    for code in [0, 27] * 15:
        member.beat(code)
    assert member.coordinator() == COORDINATOR


def test_errors_do_not_keep_the_session() -> None:
    """G-05."""
    member = stable()
    while member.coordinator() is not None:
        member.advance(100)
        if member.sends(HeartbeatRequest):
            member.reply_heartbeat(14)
    assert member.now - 1_000_000 == 45_000


def test_a_found_coordinator_restarts_the_session() -> None:
    """G-05: it has the whole time to answer."""
    member = stable()
    member.advance(44_000)
    member.finder.mark_unknown("test", member.now)
    member.outbox.clear()
    member.turn()
    member.find(3)
    member.advance(40_000)
    assert member.coordinator() == 3
    member.advance(5_000)
    assert member.coordinator() is None


# --- commits are signs of life as well ------------------------------------------------------------


@pytest.mark.parametrize(("code", "member_id"), [(25, ""), (22, ME)])
def test_a_commit_finds_the_membership_lost(code: int, member_id: str) -> None:
    """C-07, G-02: and a rejoin starts at once."""
    member = stable()
    identity = member.member.identity
    assert identity is not None
    member.member.commit_failed(code, identity, member.now)
    member.app_polls()
    assert member.take_calls() == [("lost", {T0, T1})]
    assert member.joining().member_id == member_id


def test_a_commit_finds_a_rebalance() -> None:
    member = stable()
    identity = member.member.identity
    assert identity is not None
    member.member.commit_failed(27, identity, member.now)
    member.app_polls()
    assert member.joining().member_id == ME
    assert member.owned == {T0, T1}


def test_a_commit_finds_another_instance() -> None:
    """G-21."""
    member = stable(group_instance_id="i")
    identity = member.member.identity
    assert identity is not None
    member.member.commit_failed(82, identity, member.now)
    assert isinstance(member.error(), FencedInstanceIdError)


@pytest.mark.parametrize("code", [14, 15, 16, 3, 7, 12, 28, 29, 30, 100])
def test_other_commit_errors_are_not_the_memberships(code: int) -> None:
    member = stable()
    identity = member.member.identity
    assert identity is not None
    member.member.commit_failed(code, identity, member.now)
    member.app_polls()
    assert member.state == "stable"
    assert member.error() is None
    assert not member.sends(JoinGroupRequest)


def test_a_commit_of_an_old_identity_is_ignored() -> None:
    member = stable()
    member.member.commit_failed(25, MemberIdentity(GROUP, 0, ME), member.now)
    assert member.generation == 1
    member.beat(27)
    identity = member.member.identity
    assert identity is not None
    assert member.sends(JoinGroupRequest)
    member.member.commit_failed(22, identity, member.now)
    assert member.joining().member_id == ME
    assert member.held == set()


# --- the timers by themselves ---------------------------------------------------------------------


def test_the_timers() -> None:
    clock = FakeClock()
    timers = Heartbeat(config(), clock)
    timers.start(0)
    assert (timers.ms_to_next(0), timers.ms_to_session_end(0)) == (3_000, 45_000)
    timers.sent(3_000)
    assert timers.ms_to_next(3_001) == 2_999
    timers.failed(4_000)
    assert timers.ms_to_next(4_000) == ExponentialBackoff(100, 1_000).backoff_ms(0, clock)
    timers.failed(4_000)
    assert timers.ms_to_next(4_000) == 200
    assert timers.ms_to_session_end(4_000) == 41_000
    timers.succeeded(5_000)
    assert timers.ms_to_session_end(5_000) == 45_000
    assert timers.ms_to_session_end(60_000) == 0
    assert "every=3000" in repr(timers)
