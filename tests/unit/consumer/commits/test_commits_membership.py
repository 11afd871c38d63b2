"""Commits of members: under which identity, and the errors of a lost membership."""

from __future__ import annotations

import pytest

from kfast.consumer.commits.errors import COMMIT_ACTIONS, FETCH_ACTIONS, RETRIED
from kfast.consumer.error_actions import ErrorAction
from kfast.consumer.group.membership import MemberIdentity
from kfast.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    UnsupportedVersionError,
    error_info,
)
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.offset_commit import OffsetCommitRequest
from tests.unit.consumer.commits.committing import MEMBER, NEXT, member, sent
from tests.unit.consumer.fakes import T0, T1
from tests.unit.consumer.group.coordinator_harness import GROUP
from tests.unit.consumer.group.harness import GroupHarness

LOST_PLACE = [
    (22, CommitFailedError),
    (25, CommitFailedError),
    (110, CommitFailedError),
    (113, CommitFailedError),
    (69, CommitFailedError),
    (27, RebalanceInProgressError),
    (82, FencedInstanceIdError),
]


def kip848(identity: MemberIdentity = MEMBER) -> GroupHarness:
    harness = member(identity, group_protocol="consumer")
    harness.subscriptions.assign_from_group([T0, T1])
    return harness


@pytest.mark.parametrize(("code", "kind"), LOST_PLACE)
@pytest.mark.parametrize("timeout_ms", [None, 60_000])
def test_a_lost_membership_is_reported_to_the_member_and_to_the_caller(
    code: int, kind: type[KafkaError], timeout_ms: int | None
) -> None:
    """C-07: never retried; the membership learns the identity that was sent, and rejoins."""
    harness = member()
    result = harness.commit({T0: 1, T1: 2}, timeout_ms)
    harness.reply_commit(harness.take(OffsetCommitRequest), code)
    error = result.error
    assert type(error) is kind
    assert (error.code, error.topic, error.partition, error.offset) == (code, "t", 0, 1)
    assert f"(error {code})" in str(error)
    assert harness.membership.reported == [(code, MEMBER)], "once, not per partition"
    harness.advance(5_000)
    assert harness.nothing_sent(OffsetCommitRequest)


@pytest.mark.parametrize("code", [22, 25])
def test_the_remedy_is_named(code: int) -> None:
    """C-07: which settings to look at."""
    harness = member(max_poll_interval_ms=123_000)
    result = harness.commit({T0: 1})
    harness.reply_commit(harness.take(OffsetCommitRequest), code)
    text = str(result.error)
    assert "max_poll_interval_ms (123000 ms)" in text
    assert "max_poll_records" in text
    assert len(text.splitlines()) <= 6
    assert text.splitlines()[-1].startswith("try: ")


@pytest.mark.parametrize("code", [22, 25, 110])
def test_a_stale_failure_becomes_rebalance_in_progress(code: int) -> None:
    """The member has rejoined since: nothing is wrong with where it stands now."""
    harness = member()
    result = harness.commit({T0: 1})
    request = harness.take(OffsetCommitRequest)
    harness.membership.identity = NEXT
    harness.reply_commit(request, code)
    assert isinstance(result.error, RebalanceInProgressError)
    assert harness.membership.reported == [(code, MEMBER)], "it compares for itself"


@pytest.mark.parametrize("code", [22, 25, 110])
def test_a_membership_lost_while_the_commit_was_in_flight(code: int) -> None:
    """C-07: a heartbeat was answered first; there is nothing to commit again after that."""
    harness = kip848(MEMBER) if code == 110 else member()
    result = harness.commit({T0: 1})
    request = harness.take(OffsetCommitRequest)
    harness.membership.identity = None
    harness.reply_commit(request, code)
    assert isinstance(result.error, CommitFailedError)
    assert result.error.code == code


def test_the_most_severe_of_several_errors_is_raised() -> None:
    harness = member()
    result = harness.commit({T0: 1, T1: 2})
    harness.reply_commit(harness.take(OffsetCommitRequest), {T0: 14, T1: 25})
    assert isinstance(result.error, CommitFailedError)
    assert result.error.partition == 1


# --- between JoinGroup and SyncGroup --------------------------------------------------------------


def test_no_commit_goes_out_while_the_group_rebalances() -> None:
    """C-06: the caller gets the error at once."""
    harness = member()
    harness.membership.is_rebalancing = True
    result = harness.commit({T0: 1})
    assert isinstance(result.error, RebalanceInProgressError)
    assert "t-0" in result.error.message
    assert harness.nothing_sent(OffsetCommitRequest)


def test_a_waiting_commit_ends_when_a_rebalance_begins() -> None:
    """C-06: also one that waits for its next attempt."""
    harness = member()
    result = harness.commit({T0: 1})
    harness.reply_commit(harness.take(OffsetCommitRequest), 14)
    harness.membership.is_rebalancing = True
    harness.advance(1000)
    assert isinstance(result.error, RebalanceInProgressError)
    assert harness.nothing_sent(OffsetCommitRequest)


def test_the_commit_before_a_rebalance_goes_out() -> None:
    """A-03: revoking comes before the join, and is_rebalancing with the join."""
    harness = member()
    harness.membership.state_name = "preparing_rebalance"
    result = harness.commit({T0: 1}, 1_000, is_auto_commit=True)
    harness.reply_commit(harness.take(OffsetCommitRequest))
    assert result.value


def test_not_being_a_member_fails_at_once() -> None:
    """C-07: before the first join, and after the member left."""
    for identity in (None, MemberIdentity(GROUP, -1, "m-1")):
        harness = member()
        harness.membership.identity = identity
        result = harness.commit({T0: 1})
        assert isinstance(result.error, CommitFailedError)
        assert "not a member" in result.error.message
        assert "max_poll_interval_ms" in str(result.error)
        assert harness.nothing_sent(OffsetCommitRequest)


# --- offsets of an earlier assignment -------------------------------------------------------------


def test_offsets_of_an_earlier_generation_are_not_sent() -> None:
    """C-08: whether they waited for a pause, the coordinator or the application thread."""
    harness = member()
    waiting = harness.commit({T0: 1})
    harness.reply_commit(harness.take(OffsetCommitRequest), 14)
    harness.membership.identity = NEXT
    late = harness.commit({T0: 1}, identity=MEMBER)
    harness.advance(1000)
    for result in (waiting, late):
        assert isinstance(result.error, RebalanceInProgressError)
        assert "since they were read" in str(result.error)
    assert harness.nothing_sent(OffsetCommitRequest)
    harness.commit({T0: 1})
    assert sent(harness).generation_id_or_member_epoch == 8


def test_offsets_read_by_hand_are_not_committed_by_a_member() -> None:
    """C-08: subscribed meanwhile."""
    harness = GroupHarness()
    harness.commits.membership = harness.membership
    result = harness.commit({T0: 1})
    harness.subscriptions.subscribe(["t"])
    harness.membership.identity = MEMBER
    harness.turn()
    assert isinstance(result.error, RebalanceInProgressError)


def test_another_member_id_is_another_member() -> None:
    """C-08: the same epoch of a member that joined anew."""
    harness = kip848()
    result = harness.commit({T0: 1}, identity=MEMBER)
    harness.membership.identity = MemberIdentity(GROUP, 7, "m-2")
    harness.turn()
    assert isinstance(result.error, RebalanceInProgressError)


# --- KIP-848 --------------------------------------------------------------------------------------


def test_an_advanced_epoch_without_a_revocation() -> None:
    """K-07: the newest epoch is used while the assignment is that of the offsets."""
    harness = kip848()
    harness.commit({T0: 1}, identity=MEMBER)
    harness.membership.identity = NEXT
    message = sent(harness)
    assert (message.generation_id_or_member_epoch, message.member_id) == (8, "m-1")


def test_an_advanced_epoch_with_another_assignment() -> None:
    """C-08: a revoked partition may be assigned to another member by now."""
    harness = kip848()
    result = harness.commit({T0: 1, T1: 1})
    harness.subscriptions.assign_from_group([T0])
    harness.membership.identity = NEXT
    harness.turn()
    assert isinstance(result.error, RebalanceInProgressError)
    assert harness.nothing_sent(OffsetCommitRequest)


def test_a_stale_epoch_ends_a_commit_of_the_user() -> None:
    """K-07: commit_sync raises CommitFailed."""
    harness = kip848()
    result = harness.commit({T0: 1})
    harness.reply_commit(harness.take(OffsetCommitRequest), 113)
    assert isinstance(result.error, CommitFailedError)


def test_a_stale_epoch_is_retried_for_an_auto_commit() -> None:
    """K-07: after the heartbeat that brings the next epoch, and under that one."""
    harness = kip848()
    result = harness.commit({T0: 1}, is_auto_commit=True)
    harness.reply_commit(harness.take(OffsetCommitRequest), 113)
    assert harness.membership.reported == [(113, MEMBER)]
    harness.advance(5_000)
    assert harness.nothing_sent(OffsetCommitRequest), "the old epoch would be refused again"
    harness.membership.identity = NEXT
    harness.advance(1_000)
    request = harness.take(OffsetCommitRequest)
    harness.reply_commit(request)
    assert result.value


def test_a_stale_epoch_is_retried_until_the_deadline() -> None:
    """K-07: no heartbeat, no commit."""
    harness = kip848()
    result = harness.commit({T0: 1}, 5_000, is_auto_commit=True)
    harness.reply_commit(harness.take(OffsetCommitRequest), 113)
    harness.advance(5_000)
    assert isinstance(result.error, KafkaTimeoutError)
    assert "(STALE_MEMBER_EPOCH)" in str(result.error.cause)


def test_an_asynchronous_auto_commit_is_not_retried() -> None:
    """K-07: the next interval commits again."""
    harness = kip848()
    result = harness.commit({T0: 1}, None, is_auto_commit=True)
    harness.reply_commit(harness.take(OffsetCommitRequest), 113)
    assert isinstance(result.error, CommitFailedError)


def test_members_need_version_9() -> None:
    harness = kip848()
    harness.connections.newest[ApiKey.OFFSET_COMMIT] = 8
    result = harness.commit({T0: 1})
    harness.turn()
    assert isinstance(result.error, UnsupportedVersionError)
    assert "group_protocol" in str(result.error)


# --- the tables -----------------------------------------------------------------------------------


def test_the_tables_agree_with_kafkas_flags() -> None:
    """A code that asks for another coordinator in Kafka's table does so in ours."""
    for table in (COMMIT_ACTIONS, FETCH_ACTIONS):
        for code, action in table.rows.items():
            info = error_info(code)
            assert info.code == code
            if info.rediscover_coordinator:
                assert action is ErrorAction.FIND_COORDINATOR
            if action in RETRIED:
                assert info.retriable, info
            if not info.retriable:
                assert action not in RETRIED, info
