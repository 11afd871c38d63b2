"""Getting the assignment: every answer to SyncGroup, and every kind of assignment in it."""

from __future__ import annotations

import re

import pytest

from kfast.client.request import Channel
from kfast.errors import GroupAuthorizationError, InconsistentGroupProtocolError, ProtocolError
from kfast.protocol.messages.join_group import JoinGroupRequest
from kfast.protocol.messages.sync_group import SyncGroupRequest
from kfast.types import TopicPartition
from tests.unit.consumer.fakes import T0, T1
from tests.unit.consumer.group.classic.harness import (
    ME,
    ClassicHarness,
    joining,
    rejoining,
    syncing,
)
from tests.unit.consumer.group.coordinator_harness import COORDINATOR, GROUP

U0 = TopicPartition("u", 0)


def test_what_a_follower_asks() -> None:
    member = joining()
    member.reply_join(7, member_id="m", protocol="range")
    (request,) = member.waiting(SyncGroupRequest)
    message = request.message
    assert isinstance(message, SyncGroupRequest)
    assert (message.group_id, message.generation_id, message.member_id) == (GROUP, 7, "m")
    assert (message.protocol_type, message.protocol_name) == ("consumer", "range")
    assert message.assignments == []
    assert (request.node_id, request.channel) == (COORDINATOR, Channel.COORDINATOR)


def test_a_zero_length_assignment_is_none() -> None:
    """G-15: nothing assigned; the listener is called nevertheless."""
    member = syncing()
    member.reply_sync(data=b"")
    member.app_polls()
    assert member.calls == [("assigned", set())]
    assert member.state == "stable"


def test_an_assignment_outside_the_subscription_is_ignored() -> None:
    """G-15: and the group joined again; G-11: what is owned stays fetchable."""
    member = rejoining()
    member.reply_join(2)
    member.reply_sync([T0, U0])
    assert member.port.due is None
    assert member.owned == {T0, T1}
    assert member.held == set()
    subscription = member.subscription(member.joining())
    assert subscription.owned_partitions == [T0, T1]
    assert subscription.generation_id == 1, "they were not assigned in generation 2"


def test_wrong_assignments_without_end_are_no_busy_loop() -> None:
    member = syncing()
    member.reply_sync([U0])
    for generation in range(2, 5):
        member.reply_join(generation)
        member.reply_sync([U0])
        assert not member.sends(JoinGroupRequest)
        member.advance(1_000)


def test_a_pattern_takes_topics_that_are_not_in_the_metadata_yet() -> None:
    """G-15: the leader may know more of the topics that match."""
    member = ClassicHarness(topics=())
    member.subscriptions.subscribe_pattern(re.compile("[tu]"))
    member.find()
    member.turn()
    member.refresh_metadata({T0: (1, 5)})
    member.reply_join()
    member.metadata._is_update_needed = False
    member.reply_sync([T0, U0])
    assert member.metadata.is_update_needed
    member.app_polls()
    assert member.owned == {T0, U0}
    assert member.subscriptions.subscription() == {"t", "u"}
    assert not member.sends(JoinGroupRequest)


def test_a_pattern_does_not_take_topics_that_do_not_match() -> None:
    """G-15."""
    member = ClassicHarness(topics=())
    member.subscriptions.subscribe_pattern(re.compile("t"))
    member.find()
    member.turn()
    member.refresh_metadata({T0: (1, 5)})
    member.reply_join()
    member.reply_sync([T0, U0])
    member.app_polls()
    assert member.calls == []
    member.refresh_metadata({T0: (1, 5)})
    assert member.subscription(member.joining()).topics == ["t"]


@pytest.mark.parametrize(("code", "member_id"), [(25, ""), (22, ME)])
def test_a_membership_lost_in_a_sync(code: int, member_id: str) -> None:
    """G-02, G-12."""
    member = rejoining()
    member.reply_join(2)
    member.reply_sync(error=code)
    assert member.held == {T0, T1}
    member.app_polls()
    assert member.calls == [("lost", {T0, T1})]
    assert member.joining().member_id == member_id


def test_27_while_syncing_joins_again_with_everything() -> None:
    """G-11: the generation of the claims is the one they were assigned in."""
    member = rejoining()
    member.reply_join(2)
    member.reply_sync(error=27)
    message = member.joining()
    assert message.member_id == ME
    subscription = member.subscription(message)
    assert subscription.owned_partitions == [T0, T1]
    assert subscription.generation_id == 1
    assert member.held == set()
    assert member.calls == []


@pytest.mark.parametrize("code", [14, 15, 16, 7])
def test_retriable_errors_of_sync_join_again(code: int) -> None:
    """G-04, G-11."""
    member = rejoining()
    member.reply_join(2)
    member.reply_sync(error=code)
    assert member.state == "preparing_rebalance"
    assert (member.coordinator() is None) == (code in (15, 16))
    member.advance(1_000)
    if member.coordinator() is None:
        member.find()
    assert member.joining().member_id == ME
    assert member.owned == {T0, T1}
    assert member.held == set()


def test_30_while_syncing_is_raised() -> None:
    member = syncing()
    member.reply_sync(error=30)
    assert isinstance(member.error(), GroupAuthorizationError)
    member.advance(1_000)
    assert member.sends(JoinGroupRequest)


@pytest.mark.parametrize("code", [23, 42, -1, 999])
def test_sync_errors_that_end_it(code: int) -> None:
    member = syncing()
    member.reply_sync(error=code)
    assert member.error() is not None
    member.advance(60_000)
    assert member.state == "failed"
    assert not member.sends(JoinGroupRequest)


def test_a_lost_connection_while_syncing() -> None:
    """G-04, G-11."""
    member = rejoining()
    member.reply_join(2)
    member.fail(member.take(SyncGroupRequest))
    assert member.coordinator() is None
    member.advance(1_000)
    member.find()
    assert member.joining().member_id == ME
    assert member.held == set()


@pytest.mark.parametrize("fields", [{"protocol_name": "sticky"}, {"protocol_type": "connect"}])
def test_an_assignment_of_another_protocol(fields: dict[str, str]) -> None:
    member = syncing()
    member.reply_sync([T0], **fields)  # type: ignore[arg-type]
    assert isinstance(member.error(), InconsistentGroupProtocolError)


def test_a_malformed_assignment_is_raised_and_the_group_joined_again() -> None:
    """G-11: kept partitions stay as they are."""
    member = rejoining()
    member.reply_join(2)
    member.reply_sync(data=b"\x00\x03\xff")
    assert isinstance(member.error(), ProtocolError)
    assert member.owned == {T0, T1}
    assert member.held == set()
    member.advance(1_000)
    assert member.sends(JoinGroupRequest)
