"""Becoming a member: the order of things, every answer to JoinGroup."""

from __future__ import annotations

import logging
import re

import pytest

from kfast.client.request import Channel
from kfast.consumer.group.membership import MemberIdentity, RebalanceKind
from kfast.errors import (
    AuthenticationError,
    DisconnectError,
    GroupAuthorizationError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
)
from kfast.protocol.messages.find_coordinator import FindCoordinatorRequest
from kfast.protocol.messages.heartbeat import HeartbeatRequest
from kfast.protocol.messages.join_group import JoinGroupRequest
from kfast.protocol.messages.sync_group import SyncGroupRequest
from kfast.types import TopicPartition
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.group.classic.harness import ME, ClassicHarness, joining, rejoining
from tests.unit.consumer.group.coordinator_harness import COORDINATOR, GROUP

U0 = TopicPartition("u", 0)


# --- the order ------------------------------------------------------------------------------------


def test_the_order_of_a_first_join() -> None:
    """G-01: coordinator, join, sync, assigned; nothing before its turn."""
    member = ClassicHarness()
    assert member.state == "unjoined"
    assert not member.sends(JoinGroupRequest)
    member.find()
    (join,) = member.waiting(JoinGroupRequest)
    assert member.state == "preparing_rebalance"
    assert member.is_rebalancing()
    assert (join.node_id, join.channel) == (COORDINATOR, Channel.COORDINATOR)
    assert not member.sends(SyncGroupRequest)
    member.reply_join(4)
    assert member.state == "completing_rebalance"
    assert member.is_rebalancing()
    assert member.owned == set()
    member.reply_sync([T0, T1])
    assert member.state == "stable"
    assert not member.is_rebalancing()
    assert member.owned == set(), "an assignment only changes inside poll"
    member.app_polls()
    assert member.calls == [("assigned", {T0, T1})]
    assert member.owned == {T0, T1}
    assert member.held == set()
    assert member.member.identity == MemberIdentity(GROUP, 4, ME)
    assert member.member.rebalances.latency_ms.count == 1
    assert member.member.rebalances.failures.count == 0
    assert len(member.subscriptions.assigned_partitions()) == 2


def test_what_a_first_join_says() -> None:
    """G-01: group, times, assignors in order of preference, subscription, no member id."""
    member = joining(session_timeout_ms=20_000, max_poll_interval_ms=60_000, client_rack="r1")
    message = member.joining()
    assert (message.group_id, message.member_id, message.protocol_type) == (GROUP, "", "consumer")
    assert (message.session_timeout_ms, message.rebalance_timeout_ms) == (20_000, 60_000)
    assert [one.name for one in message.protocols] == ["range", "cooperative-sticky"]
    subscription = member.subscription(message)
    assert subscription.topics == ["t"]
    assert subscription.owned_partitions == []
    assert (subscription.generation_id, subscription.rack_id) == (-1, "r1")
    assert message.reason is None


def test_nothing_happens_without_a_subscription_to_topics() -> None:
    """G-06: partitions assigned by hand have no group to leave, and nothing is joined."""
    member = ClassicHarness(topics=())
    member.subscriptions.assign_from_user([T0])
    member.stops_polling()
    member.advance(member.config.max_poll_interval_ms + 1)
    assert member.outbox == []
    assert member.port.posted == []
    assert member.state == "unjoined"


def test_no_join_before_the_application_polls() -> None:
    member = ClassicHarness(topics=())
    member.port.polled_ms = member.now - member.config.max_poll_interval_ms
    member.subscriptions.subscribe(["t"])
    member.find()
    member.advance(1_000)
    assert not member.sends(JoinGroupRequest)
    assert member.next_poll_ms <= 100
    member.app_polls()
    assert member.sends(JoinGroupRequest)


def test_a_pattern_is_joined_with_fresh_metadata() -> None:
    """G-01: metadata of all topics is renewed before each join with a pattern."""
    member = ClassicHarness(topics=())
    member.subscriptions.subscribe_pattern(re.compile("t|u"))
    member.find()
    assert not member.sends(JoinGroupRequest), "the topics are not known yet"
    assert member.metadata.topics is None
    assert member.metadata.is_update_needed
    member.refresh_metadata({T0: (1, 5), U0: (1, 5)})
    assert member.subscription(member.joining()).topics == ["t", "u"]
    member.reply_join()
    member.reply_sync([T0])
    member.app_polls()
    member.beat(27)
    member.app_polls()
    assert member.metadata.is_update_needed, "asked again for the next rebalance"
    assert not member.sends(JoinGroupRequest)
    assert member.calls == [("assigned", {T0})], "nothing is revoked before the topics are known"
    member.refresh_metadata({T0: (1, 5)})
    member.app_polls()
    assert member.calls[1:] == [("revoked", {T0})]
    assert member.subscription(member.joining()).topics == ["t"]


def test_callbacks_run_once_per_rebalance() -> None:
    """G-01: a JoinGroup that is retried revokes nothing again."""
    member = ClassicHarness(enable_auto_commit=True)
    member.join()
    member.beat(27)
    member.app_polls()
    posted = len(member.port.posted)
    member.reply_join(error=14)
    member.advance(1_000)
    member.reply_join(error=15)
    member.advance(1_000)
    member.find()
    member.reply_join(2)
    member.reply_sync(error=27)
    member.reply_join(3)
    assert len(member.port.posted) == posted
    member.reply_sync([T0])
    member.app_polls()
    assert member.calls == [
        ("assigned", {T0, T1}),
        ("revoked", {T0, T1}),
        ("assigned", {T0}),
    ]
    rebalances = member.member.rebalances
    assert (rebalances.latency_ms.count, rebalances.failures.count) == (2, 3)


def test_the_coordinator_comes_before_anything_is_revoked() -> None:
    """G-01: without coordinator the application keeps what it has."""
    member = ClassicHarness()
    member.join()
    member.finder.mark_unknown("test", member.now)
    member.member.request_rejoin("test")
    member.app_polls()
    assert member.owned == {T0, T1}
    member.advance(1_000)
    member.find()
    member.app_polls()
    assert member.owned == set()


# --- the time a join may take ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_timeout", "max_poll", "expected"),
    [(30_000, 300_000, 305_000), (30_000, 10_000, 30_000), (30_000, 25_001, 30_001)],
)
def test_how_long_a_join_may_take(request_timeout: int, max_poll: int, expected: int) -> None:
    """G-07: max(request timeout, rebalance timeout + 5 s)."""
    member = joining(request_timeout_ms=request_timeout, max_poll_interval_ms=max_poll)
    (request,) = member.waiting(JoinGroupRequest)
    assert request.timeout_ms == expected


def test_a_slow_join_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """O-02: a wait for a member that died, or that does not poll, is explained after 3 s."""
    member = joining()
    caplog.set_level(logging.INFO, "kfast.consumer")
    member.advance(3_400)
    assert "waiting" not in caplog.text
    member.advance(100)
    member.advance(60_000)
    assert [record.getMessage() for record in caplog.records] == [
        'waiting for group "g": another member has not joined again; up to its session.timeout.ms '
        "(here 45 s) if it died, up to its max.poll.interval.ms (here 300 s) if it is processing "
        "records"
    ]
    assert caplog.records[0].levelno == logging.INFO


def test_a_join_answered_in_time_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    member = joining()
    caplog.set_level(logging.INFO, "kfast.consumer")
    member.advance(3_000)
    member.reply_join()
    member.advance(3_000)
    assert "waiting" not in caplog.text


# --- errors of JoinGroup --------------------------------------------------------------------------


def test_79_join_again_at_once_with_the_id_given() -> None:
    """G-02: MEMBER_ID_REQUIRED is no failure."""
    member = joining()
    member.reply_join(error=79, member_id="given")
    assert member.joining().member_id == "given"
    assert member.member.rebalances.failures.count == 0
    member.reply_join(1, member_id="given")
    member.reply_sync([T0])
    assert member.member_id == "given"


def test_79_again_and_again_is_no_busy_loop() -> None:
    member = joining()
    member.reply_join(error=79, member_id="given")
    member.reply_join(error=79, member_id="other")
    assert not member.sends(JoinGroupRequest)
    member.advance(200)
    assert member.joining().member_id == "given"


@pytest.mark.parametrize(("code", "member_id"), [(25, ""), (22, ME)])
def test_a_membership_lost_in_a_join(code: int, member_id: str) -> None:
    """G-02, G-12: 25 drops the member id, 22 keeps it; both lose the partitions, then join."""
    member = rejoining()
    member.reply_join(error=code)
    assert member.held == {T0, T1}, "nothing is delivered of what is lost"
    assert not member.sends(JoinGroupRequest), "not before the application has given it up"
    assert member.member.identity is None
    member.app_polls()
    assert member.calls == [("lost", {T0, T1})]
    message = member.joining()
    assert message.member_id == member_id
    subscription = member.subscription(message)
    assert (subscription.owned_partitions, subscription.generation_id) == ([], -1)


def test_25_of_a_member_without_partitions_joins_at_once() -> None:
    """G-02: at once, but a coordinator that goes on saying so is given time."""
    member = joining()
    member.reply_join(error=25)
    assert member.sends(JoinGroupRequest)
    member.reply_join(error=25)
    assert not member.sends(JoinGroupRequest)
    member.advance(200)
    assert member.sends(JoinGroupRequest)


def test_27_join_again_at_once() -> None:
    member = rejoining()
    member.reply_join(error=27)
    assert member.joining().member_id == ME
    assert member.owned == {T0, T1}
    assert member.held == set()


@pytest.mark.parametrize("code", [15, 16])
def test_the_coordinator_moved_while_joining(code: int) -> None:
    """G-04, G-11: found anew, then joined as the same member; nothing is lost."""
    member = rejoining()
    member.reply_join(error=code)
    assert member.coordinator() is None
    member.advance(1_000)
    member.find(3)
    (request,) = member.waiting(JoinGroupRequest)
    assert (request.node_id, member.joining().member_id) == (3, ME)
    assert member.owned == {T0, T1}
    assert member.held == set()


@pytest.mark.parametrize("code", [14, 7, 89])
def test_codes_to_wait_for_while_joining(code: int) -> None:
    """G-04: the same coordinator is asked again after a pause that grows."""
    member = rejoining()
    for pause_ms in (100, 200, 400):
        member.reply_join(error=code)
        assert member.coordinator() == COORDINATOR
        member.advance(pause_ms - 1)
        assert not member.sends(JoinGroupRequest)
        assert member.next_poll_ms == 1
        member.advance(1)
    assert member.joining().member_id == ME
    assert member.owned == {T0, T1}
    assert member.held == set()


def test_30_is_raised_and_tried_again() -> None:
    """E-12: a missing permission names the group; usable again once granted."""
    member = joining()
    member.reply_join(error=30)
    error = member.error()
    assert isinstance(error, GroupAuthorizationError)
    assert f'"{GROUP}"' in error.message
    assert member.error() is None, "reported once per try"
    member.advance(1_000)
    member.reply_join(1)
    member.reply_sync([T0])
    member.app_polls()
    assert member.owned == {T0}


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (23, InconsistentGroupProtocolError, "partition_assignment_strategy"),
        (24, InvalidGroupIdError, "group_id"),
        (26, InvalidSessionTimeoutError, "session_timeout_ms=45000"),
        (35, UnsupportedVersionError, "JoinGroup"),
        (42, InvalidRequestError, "JoinGroup"),
        (81, GroupMaxSizeReachedError, "members"),
        (-1, KafkaError, "JoinGroup"),
        (12_345, KafkaError, "JoinGroup"),
    ],
)
def test_join_errors_that_end_it(code: int, kind: type[KafkaError], words: str) -> None:
    """E-12: raised by every poll, with the setting at fault; not tried again."""
    member = joining()
    member.reply_join(error=code)
    for _ in range(3):
        error = member.error()
        assert type(error) is kind or (kind is KafkaError and isinstance(error, kind))
        assert error is not None
        assert words in error.message
        assert error.code == code
        assert error.hint
    member.advance(60_000)
    assert not member.sends(JoinGroupRequest)
    assert member.state == "failed"


def test_another_subscription_tries_again_after_a_failure() -> None:
    member = joining()
    member.reply_join(error=81)
    member.turn()
    member.subscriptions.subscribe(["t", "u"])
    assert member.subscription(member.joining()).topics == ["t", "u"]
    assert member.error() is None


def test_a_failed_member_loses_what_it_kept() -> None:
    """G-12: no partition is read outside the group."""
    member = rejoining()
    member.reply_join(error=23)
    assert member.held == {T0, T1}
    member.app_polls()
    assert member.calls == [("lost", {T0, T1})]


# --- no answer ------------------------------------------------------------------------------------


def test_a_lost_connection_while_joining() -> None:
    """G-04, G-07: the coordinator is looked for, the member stays who it is."""
    member = rejoining()
    member.fail(member.take(JoinGroupRequest))
    assert member.coordinator() is None
    member.advance(1_000)
    member.find()
    assert member.joining().member_id == ME
    assert member.owned == {T0, T1}
    assert member.held == set()


def test_a_refused_log_in_is_raised() -> None:
    member = joining()
    member.fail(member.take(JoinGroupRequest), AuthenticationError("no", node=COORDINATOR))
    assert isinstance(member.error(), AuthenticationError)
    assert member.coordinator() == COORDINATOR, "G-04: it is still the coordinator"
    assert not member.sends(JoinGroupRequest)
    member.advance(1_000)
    assert member.sends(JoinGroupRequest)


def test_a_broker_too_old_for_static_members() -> None:
    """G-20: JoinGroup 5 is needed to have a name."""
    member = joining(group_instance_id="i")
    request = member.take(JoinGroupRequest)
    assert request.min_version == 5
    member.fail(request, UnsupportedVersionError("too old"))
    assert isinstance(member.error(), UnsupportedVersionError)
    assert member.state == "failed"


def test_a_malformed_answer_is_raised_and_tried_again() -> None:
    member = joining()
    member.reply_join(-5)
    assert isinstance(member.error(), ProtocolError)
    member.advance(1_000)
    member.reply_join(1, member_id="")
    assert isinstance(member.error(), ProtocolError)
    member.advance(1_000)
    assert member.sends(JoinGroupRequest)


@pytest.mark.parametrize("fields", [{"protocol": "foreign"}, {"protocol_type": "connect"}])
def test_an_assignor_that_was_not_offered(fields: dict[str, str]) -> None:
    member = joining()
    member.reply_join(1, **fields)  # type: ignore[arg-type]
    assert isinstance(member.error(), InconsistentGroupProtocolError)
    assert member.state == "failed"


# --- SyncGroup ------------------------------------------------------------------------------------


# --- answers that come too late -------------------------------------------------------------------


def test_a_join_answered_after_leaving_is_dropped() -> None:
    """G-07: joined by an answer that is out of date."""
    member = rejoining()
    request = member.take(JoinGroupRequest)
    member.stops_polling()
    member.advance(member.config.max_poll_interval_ms)
    assert member.state == "unjoined"
    member.reply_join(2, request=request)
    assert member.state == "unjoined"
    assert member.member.identity is None
    member.app_polls()
    assert member.calls == [("lost", {T0, T1})]
    assert member.joining().member_id == ""


def test_a_sync_answered_after_leaving_is_dropped() -> None:
    """G-07."""
    member = rejoining()
    member.reply_join(2)
    request = member.take(SyncGroupRequest)
    member.stops_polling()
    member.advance(member.config.max_poll_interval_ms)
    member.reply_sync([T0], request=request)
    assert member.state == "unjoined"
    assert member.port.posted[-1].kind is RebalanceKind.LOSE


def test_a_sync_answered_after_a_heartbeat_lost_the_generation() -> None:
    """G-03: heartbeats run while syncing, and may be the first to know."""
    member = rejoining()
    member.reply_join(2)
    request = member.take(SyncGroupRequest)
    member.beat(22)
    member.reply_sync([T0], request=request)
    assert member.state == "unjoined"
    member.app_polls()
    assert member.calls == [("lost", {T0, T1})]


def test_failures_of_requests_that_are_out_of_date() -> None:
    member = rejoining()
    request = member.take(JoinGroupRequest)
    member.stops_polling()
    member.advance(member.config.max_poll_interval_ms)
    member.fail(request, DisconnectError("gone", node=COORDINATOR))
    assert member.state == "unjoined"


def test_the_repr_says_where_it_stands() -> None:
    member = rejoining()
    assert "preparing_rebalance" in repr(member.member)
    assert not member.sends(HeartbeatRequest)
    assert not member.sends(FindCoordinatorRequest)
    assert T2 not in member.owned
