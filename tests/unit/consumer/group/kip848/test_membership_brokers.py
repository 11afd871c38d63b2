"""ConsumerMembership: what depends on the brokers, patterns they match and what they offer."""

from __future__ import annotations

import re

import pytest

from kfast.errors import (
    DisconnectError,
    GroupAuthorizationError,
    KafkaError,
    UnsupportedVersionError,
)
from kfast.types import SubscriptionPattern
from tests.unit.client.frames import metadata, partition, topic
from tests.unit.consumer.clusters import cluster, topic_id_of
from tests.unit.consumer.fakes import T0
from tests.unit.consumer.group.kip848.harness import HEARTBEAT_KEY, LEADERS, Member, is_done

T_ID = topic_id_of("t")


# --- patterns -------------------------------------------------------------------------------------


def test_a_pattern_for_the_brokers_goes_out_as_it_is() -> None:
    """K-10: version 1, no names; topics are known by id only. Removed by ""."""
    member = Member(topics=(), view=cluster({}))
    member.metadata.set_topics(())
    member.subscriptions.subscribe_broker_pattern(SubscriptionPattern("t|u"))
    sent = member.heartbeat()
    assert (sent.message.subscribed_topic_regex, sent.message.subscribed_topic_names) == ("t|u", [])
    member.answer(sent, T0)
    assert member.metadata.scope().topic_ids == {T_ID}
    member.set_leaders(LEADERS)
    member.application_polls()
    assert member.calls == [("assigned", {T0})]
    sent = member.heartbeat()
    assert sent.message.subscribed_topic_regex is None, "unchanged"
    member.answer(sent)
    member.subscriptions.subscribe_broker_pattern(SubscriptionPattern("u.*"))
    sent = member.heartbeat()
    assert (sent.fields, sent.message.subscribed_topic_regex) == ({"subscribed_topic_regex"}, "u.*")
    member.fail(sent)
    member.subscriptions.unsubscribe()
    member.subscriptions.subscribe(["t"])
    member.advance(100)
    sent = member.heartbeat()
    assert sent.message.subscribed_topic_regex == "", "the lost one may have been applied"
    assert sent.message.subscribed_topic_names == ["t"]


def test_no_pattern_is_removed_that_never_was() -> None:
    """K-10: null, but for a static member, which inherits an earlier consumer's subscription."""
    assert Member().heartbeat().message.subscribed_topic_regex is None
    assert Member(group_instance_id="i").heartbeat().message.subscribed_topic_regex == ""
    old = Member(group_instance_id="i")
    old.connections.newest[HEARTBEAT_KEY] = 0
    assert old.heartbeat().message.subscribed_topic_regex is None


def test_a_coordinator_that_cannot_match_patterns_is_named() -> None:
    """K-10: version 0 has no field for it."""
    member = Member(topics=())
    member.connections.newest[HEARTBEAT_KEY] = 0
    member.subscriptions.subscribe_broker_pattern(SubscriptionPattern("t"))
    assert member.is_silent()
    assert member.state == "fatal"
    assert "Python pattern" in str(member.error())


def test_a_python_pattern_is_matched_here_and_goes_out_as_names() -> None:
    """K-10: of the topics the cluster has; a new match goes out as a change."""
    member = Member(topics=(), view=cluster({}))
    member.metadata.set_topics(())
    member.subscriptions.subscribe_pattern(re.compile("[tu]"))
    assert member.is_silent(), "the topics are not known yet"
    assert member.state == "joining"
    answer = metadata(topic("t", partition(0)), topic("x", partition(0), id_number=9))
    member.metadata.update(answer, member.now)
    sent = member.heartbeat()
    assert sent.message.subscribed_topic_names == ["t"]
    assert sent.message.subscribed_topic_regex is None
    member.answer(sent, is_empty=True)
    member.application_polls()
    member.answer(member.heartbeat())
    answer.topics.append(topic("u", partition(0), id_number=8))
    member.metadata.update(answer, member.now)
    sent = member.heartbeat()
    assert (sent.fields, sent.message.subscribed_topic_names) == (
        {"subscribed_topic_names"},
        ["t", "u"],
    )


def test_a_python_pattern_waits_for_the_topics_of_now() -> None:
    """K-10: what an earlier subscription knew is not all there is."""
    member = Member(topics=())
    member.metadata.set_topics({"t"})
    member.metadata.update(metadata(topic("t", partition(0))), member.now)
    member.advance(1_000)
    member.subscriptions.subscribe_pattern(re.compile("[tu]"))
    assert member.is_silent()
    answer = metadata(topic("t", partition(0)), topic("u", partition(0), id_number=8))
    member.metadata.update(answer, member.now)
    assert member.heartbeat().message.subscribed_topic_names == ["t", "u"]


# --- brokers without KIP-848 ----------------------------------------------------------------------


def absent(member: Member) -> None:
    member.connections.newest[HEARTBEAT_KEY] = -1


def early_access(member: Member) -> None:
    member.connections.newest[HEARTBEAT_KEY] = 0
    member.connections.features = {}


def switched_off(member: Member) -> None:
    member.connections.features = {"group.version": 0, "metadata.version": 25}


@pytest.mark.parametrize("broker", [absent, early_access, switched_off])
def test_a_broker_without_the_protocol_is_named(broker: object) -> None:
    """K-11: the API is absent, or its feature is not enabled."""
    member = Member()
    assert callable(broker)
    broker(member)
    assert member.is_silent()
    error = member.error()
    assert isinstance(error, UnsupportedVersionError)
    assert 'group_protocol="consumer"' in str(error)
    assert 'group_protocol="classic"' in str(error)
    assert member.state == "fatal"


def test_a_request_that_cannot_be_sent_ends_it() -> None:
    """K-11: the connection may be another one by then."""
    member = Member()
    member.fail(member.heartbeat(), UnsupportedVersionError("no"))
    assert member.state == "fatal"


def test_leaving_a_coordinator_that_lacks_the_protocol_is_over_at_once() -> None:
    member = Member().join(T0)
    absent(member)
    pending = member.membership.leave(member.now, is_closing=True)
    member.turn()
    assert is_done(pending)


def test_features_that_are_not_known_do_not_stand_in_the_way() -> None:
    """The broker itself says when it does not have the protocol: error 35."""
    member = Member()
    member.connections.features = None
    assert member.heartbeat().epoch == 0


def test_an_error_that_is_not_retriable_is_reported_and_retried() -> None:
    member = Member().join(T0)
    member.fail(member.next_heartbeat(), KafkaError("odd"))
    assert member.state == "stable"
    assert str(member.error()) == "odd"
    member.advance(100)
    member.answer(member.heartbeat())
    assert member.error() is None


def test_a_missing_coordinator_does_not_end_the_membership() -> None:
    """G-25: fetching goes on."""
    member = Member().join(T0)
    member.finds_coordinator = False
    member.fail(member.next_heartbeat(), DisconnectError("gone"))
    for _ in range(20):
        member.application.last_poll_ms = member.now
        member.advance(1_000)
    assert (member.state, member.is_delivered(T0)) == ("stable", True)
    assert member.error() is None


def test_a_failed_search_is_reported_only_to_members() -> None:
    """An error of FindCoordinator concerns who subscribes."""
    member = Member(topics=())
    member.finder._failed(GroupAuthorizationError("no"), member.now)
    assert member.error() is None
