"""Leaving a group: late polls, close, unsubscribe, static members."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from kfast.client.request import Channel
from kfast.consumer.group.membership import CloseOperation, RebalanceKind
from kfast.consumer.subscription import SubscriptionType
from kfast.errors import DisconnectError
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.find_coordinator import FindCoordinatorRequest
from kfast.protocol.messages.heartbeat import HeartbeatRequest
from kfast.protocol.messages.join_group import JoinGroupRequest
from kfast.protocol.messages.leave_group import LeaveGroupRequest
from kfast.protocol.messages.sync_group import SyncGroupRequest
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.group.classic.harness import ME, ClassicHarness
from tests.unit.consumer.group.coordinator_harness import COORDINATOR, GROUP

STATIC = {"group_instance_id": "i"}


def stable(**configs: object) -> ClassicHarness:
    member = ClassicHarness(**configs)  # type: ignore[arg-type]
    member.join()
    member.take_calls()
    return member


def beat_until_late(member: ClassicHarness) -> None:
    """Let the application be away for max_poll_interval_ms, with a coordinator that answers."""
    member.stops_polling()
    end = member.now + member.config.max_poll_interval_ms
    while member.now < end:
        member.advance(min(1_000, end - member.now))
        if member.sends(HeartbeatRequest):
            member.reply_heartbeat()


# --- late polls -----------------------------------------------------------------------------------


def test_a_late_poll_costs_the_membership(caplog: pytest.LogCaptureFixture) -> None:
    """G-06, G-12: leave, then on_lost and a new join at the next poll; nothing is committed."""
    member = stable()
    caplog.set_level(logging.WARNING, "kfast")
    beat_until_late(member)
    assert member.state == "unjoined"
    assert member.held == {T0, T1}
    assert member.member.identity is None
    message = member.reply_leave()
    assert [one.member_id for one in message.members] == [ME]
    assert member.take_calls() == []
    assert not member.sends(JoinGroupRequest)
    member.advance(41_000)
    assert not member.sends(HeartbeatRequest)
    assert [step.kind for step in member.port.posted[1:]] == [RebalanceKind.LOSE]
    member.app_polls()
    assert member.take_calls() == [("lost", {T0, T1})]
    assert member.joining().member_id == ""
    assert [record.getMessage() for record in caplog.records] == [
        "Group g: no poll() for 300 s (max.poll.interval.ms): leaving the group until the next"
        " poll()",
        "max.poll.interval.ms 300 s exceeded by 41 s: the member left the group; poll fewer"
        " records (max_poll_records) or raise it",
    ]


def test_a_poll_in_time_keeps_it() -> None:
    """G-06: the timer is reset by poll() alone."""
    member = stable()
    for _ in range(3):
        member.stops_polling()
        member.advance(member.config.max_poll_interval_ms - 1)
        assert member.state == "stable"
        member.app_polls()
    assert not member.sends(LeaveGroupRequest)


def test_a_late_poll_while_a_revocation_waits() -> None:
    """G-06: amid a rebalance; what was to be revoked is lost."""
    member = stable()
    member.stops_polling()
    member.beat(27)
    assert member.port.due is not None
    member.advance(member.config.max_poll_interval_ms)
    assert member.state == "unjoined"
    member.reply_leave()
    member.app_polls()
    assert member.take_calls() == [("lost", {T0, T1})]
    assert member.joining().member_id == ""


def test_a_late_poll_while_an_assignment_waits() -> None:
    """G-06: an assignment that was never taken is dropped."""
    member = ClassicHarness()
    member.find()
    member.reply_join()
    member.stops_polling()
    member.reply_sync([T0])
    assert member.port.due is not None
    member.advance(member.config.max_poll_interval_ms)
    member.reply_leave()
    member.app_polls()
    assert member.calls == []
    assert member.sends(JoinGroupRequest)


def test_a_late_poll_while_joining() -> None:
    """G-06, G-07: LeaveGroup must not wait behind the parked JoinGroup."""
    member = stable(partition_assignment_strategy="cooperative-sticky")
    member.beat(27)
    parked = member.take(JoinGroupRequest)
    member.stops_polling()
    member.advance(member.config.max_poll_interval_ms)
    (leave,) = member.waiting(LeaveGroupRequest)
    assert (leave.node_id, leave.channel) == (COORDINATOR, Channel.DATA)
    member.reply_leave()
    member.reply_join(error=25, request=parked)
    assert member.error() is None
    member.app_polls()
    assert member.take_calls() == [("lost", {T0, T1})]
    assert member.joining().member_id == ""


def test_a_late_poll_of_a_static_member() -> None:
    """G-06, G-20: it only stops its heartbeats; the broker ends the session."""
    member = stable(**STATIC)
    beat_until_late(member)
    member.advance(10_000)
    assert member.outbox == []
    assert member.state == "unjoined"
    member.app_polls()
    assert member.take_calls() == [("lost", {T0, T1})]
    assert member.joining().group_instance_id == "i"


def test_a_late_poll_without_partitions_looks_for_the_next_one() -> None:
    member = ClassicHarness()
    member.join([])
    beat_until_late(member)
    member.reply_leave()
    assert member.next_poll_ms <= 100
    member.app_polls()
    assert member.calls == [("assigned", set())], "nothing owned is nothing lost"
    assert member.sends(JoinGroupRequest)


# --- close and unsubscribe ------------------------------------------------------------------------


def test_close_leaves() -> None:
    """G-22: a dynamic member sends LeaveGroup; done when the broker has answered."""
    member = stable()
    result = member.member.leave(member.now, is_closing=True)
    assert member.member.identity is None
    (request,) = member.waiting(LeaveGroupRequest)
    assert (request.node_id, request.channel) == (COORDINATOR, Channel.COORDINATOR)
    message = member.reply_leave()
    (left,) = message.members
    assert (message.group_id, left.member_id, left.group_instance_id) == (GROUP, ME, None)
    assert left.reason == "the consumer is being closed"
    assert result.is_done
    assert result.error is None
    member.advance(600_000)
    assert member.outbox == [], "never joined again"


@pytest.mark.parametrize(
    ("configs", "operation", "leaves"),
    [
        ({}, "default", True),
        ({}, "leave_group", True),
        ({}, "remain_in_group", False),
        (STATIC, "default", False),
        (STATIC, "leave_group", True),
        (STATIC, "remain_in_group", False),
    ],
)
def test_who_leaves_on_close(configs: dict[str, object], operation: str, leaves: bool) -> None:
    """G-22: by kind of member and by the operation asked for (KIP-1092)."""
    member = stable(**configs)
    result = member.member.leave(
        member.now, is_closing=True, operation=cast("CloseOperation", operation)
    )
    assert member.sends(LeaveGroupRequest) is leaves
    assert result.is_done is not leaves
    if leaves:
        message = member.reply_leave()
        assert message.members[0].group_instance_id == configs.get("group_instance_id")


def test_unsubscribe_leaves_at_once() -> None:
    """G-23: and a new subscription joins as a new member."""
    member = stable()
    member.subscriptions.assign_from_group([])
    result = member.member.leave(member.now, is_closing=False)
    member.subscriptions.unsubscribe()
    member.reply_leave()
    assert result.is_done
    member.advance(60_000)
    assert member.outbox == []
    assert member.subscriptions.subscription_type is SubscriptionType.NONE
    member.subscriptions.subscribe(["t"])
    assert member.joining().member_id == ""
    member.reply_join(5)
    member.reply_sync([T2])
    member.app_polls()
    assert member.owned == {T2}


def test_leaving_before_unsubscribing_does_not_join_in_between() -> None:
    """G-23."""
    member = stable()
    member.member.leave(member.now, is_closing=False)
    member.turn()
    assert not member.sends(JoinGroupRequest)


def test_a_second_leave_is_done_at_once() -> None:
    member = stable()
    member.member.leave(member.now, is_closing=False)
    member.reply_leave()
    assert member.member.leave(member.now, is_closing=True).is_done
    assert not member.sends(LeaveGroupRequest)


def test_leaving_releases_withheld_partitions() -> None:
    """G-11: a step that was not run leaves nothing behind."""
    member = stable()
    member.beat(27)
    assert member.held == {T0, T1}
    member.member.leave(member.now, is_closing=False)
    assert member.held == set()
    assert member.port.due is None


@pytest.mark.parametrize("code", [25, 15, 16, -1])
def test_an_error_of_leaving_is_the_end_as_well(code: int) -> None:
    member = stable()
    result = member.member.leave(member.now, is_closing=True)
    member.reply_leave(code)
    assert result.is_done
    assert not member.sends(LeaveGroupRequest)


def test_leaving_without_an_answer() -> None:
    """L-01: nothing is retried; the session ends by itself."""
    member = stable()
    result = member.member.leave(member.now, is_closing=True)
    member.fail(member.take(LeaveGroupRequest), DisconnectError("gone", node=COORDINATOR))
    assert result.is_done
    assert result.error is None
    assert not member.sends(LeaveGroupRequest)


def test_leaving_without_a_coordinator() -> None:
    """L-01: done at once, no broker to send it to."""
    member = stable()
    member.finder.mark_unknown("test", member.now)
    assert member.member.leave(member.now, is_closing=True).is_done
    assert not member.sends(LeaveGroupRequest)


def test_leaving_before_joining() -> None:
    member = ClassicHarness()
    member.turn()
    assert member.member.leave(member.now, is_closing=True).is_done
    member.find()
    member.advance(60_000)
    assert not member.sends(JoinGroupRequest)
    assert not member.sends(LeaveGroupRequest)


@pytest.mark.parametrize("error", [0, 79])
def test_leaving_while_joining_for_the_first_time(error: int) -> None:
    """G-07, G-22: the answer makes a member that others would wait for: it leaves as well."""
    member = ClassicHarness()
    member.find()
    parked = member.take(JoinGroupRequest)
    result = member.member.leave(member.now, is_closing=True)
    assert not result.is_done
    member.reply_join(1, error=error, member_id="given", request=parked)
    assert member.state == "unjoined"
    message = member.reply_leave()
    assert message.members[0].member_id == "given"
    assert result.is_done


def test_leaving_while_a_first_join_fails() -> None:
    member = ClassicHarness()
    member.find()
    parked = member.take(JoinGroupRequest)
    result = member.member.leave(member.now, is_closing=True)
    member.fail(parked)
    assert result.is_done
    assert not member.sends(LeaveGroupRequest)


def test_an_old_broker_gets_one_member_id() -> None:
    """N-03: LeaveGroup 2 has no list."""
    member = stable()
    member.connections.newest[ApiKey.LEAVE_GROUP] = 2
    member.member.leave(member.now, is_closing=True)
    message = member.reply_leave()
    assert (message.member_id, message.members) == (ME, [])


# --- static members -------------------------------------------------------------------------------


def test_a_static_member_sends_its_instance_id_everywhere() -> None:
    """G-20: in Join, Sync and Heartbeat, in versions that carry it."""
    member = ClassicHarness(**STATIC)  # type: ignore[arg-type]
    member.find()
    assert member.joining().group_instance_id == "i"
    member.reply_join()
    (sync,) = member.waiting(SyncGroupRequest)
    assert cast("SyncGroupRequest", sync.message).group_instance_id == "i"
    assert sync.min_version == 3
    member.reply_sync([T0])
    member.app_polls()
    identity = member.member.identity
    assert identity is not None
    assert identity.group_instance_id == "i"
    member.advance(3_000)
    (heartbeat,) = member.waiting(HeartbeatRequest)
    assert cast("HeartbeatRequest", heartbeat.message).group_instance_id == "i"
    assert heartbeat.min_version == 3


def test_a_static_member_that_comes_back_gets_its_partitions() -> None:
    """G-20: with a new member id, in the same generation."""
    member = ClassicHarness(**STATIC)  # type: ignore[arg-type]
    member.find()
    member.reply_join(5, member_id="new", leader="new", skip_assignment=True)
    (request,) = member.waiting(SyncGroupRequest)
    assert cast("SyncGroupRequest", request.message).assignments == []
    member.reply_sync([T0, T1])
    member.app_polls()
    assert member.owned == {T0, T1}
    assert member.generation == 5
    member.advance(2_000)
    assert not member.sends(JoinGroupRequest)
    assert not member.sends(FindCoordinatorRequest)
