"""Looking up what a group has committed."""

from __future__ import annotations

import pytest

from kfast.client.request import Channel
from kfast.consumer.group.membership import MemberIdentity
from kfast.errors import (
    CommitFailedError,
    DisconnectError,
    GroupAuthorizationError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    TopicAuthorizationError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.find_coordinator import FindCoordinatorRequest
from kfast.protocol.messages.offset_fetch import OffsetFetchRequest
from kfast.types import OffsetAndMetadata, TopicPartition
from tests.unit.consumer.clusters import cluster, topic_id_of
from tests.unit.consumer.commits.committing import MEMBER, NEXT, assigned, member
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.group.coordinator_harness import COORDINATOR, GROUP, LEADERS
from tests.unit.consumer.group.harness import GroupHarness, refused


def question(harness: GroupHarness) -> OffsetFetchRequest:
    message = harness.waiting(OffsetFetchRequest)[0].message
    assert isinstance(message, OffsetFetchRequest)
    return message


def test_offset_epoch_and_text_come_back() -> None:
    """C-09: None where nothing is committed; a null text is an empty one."""
    harness = GroupHarness()
    result = harness.fetch(T0, T1, T2)
    harness.find()
    request = harness.take(OffsetFetchRequest)
    assert (request.node_id, request.channel) == (COORDINATOR, Channel.COORDINATOR)
    assert harness.asked(request) == [T0, T1, T2]
    harness.reply_fetch(request, {T2: 0, T0: (11, 4), T1: -1}, metadata=None)
    assert result.value == {
        T0: OffsetAndMetadata(11, "", 4),
        T1: None,
        T2: OffsetAndMetadata(0, "", -1),
    }
    assert list(result.value) == [T0, T1, T2]


def test_the_text_comes_back() -> None:
    """C-10."""
    harness = assigned()
    result = harness.fetch(T0)
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: 1}, metadata="é" * 2048)
    assert result.value == {T0: OffsetAndMetadata(1, "é" * 2048, -1)}


def test_nothing_asked_is_nothing_sent() -> None:
    harness = GroupHarness()
    assert harness.fetch().value == {}
    assert harness.nothing_sent(FindCoordinatorRequest)


@pytest.mark.parametrize("newest", [5, 6, 7, 8, 9, 10])
def test_all_shapes_of_the_question(newest: int) -> None:
    """T-12: require_stable is always asked where it exists; one group, names or ids."""
    harness = assigned()
    harness.connections.newest[ApiKey.OFFSET_FETCH] = newest
    result = harness.fetch(T0, T1)
    message = question(harness)
    assert message.require_stable is (newest >= 7)
    if newest < 8:
        assert (message.group_id, message.groups) == (GROUP, [])
    else:
        (group,) = message.groups
        assert (group.group_id, message.group_id, message.topics) == (GROUP, "", [])
        assert (group.member_id, group.member_epoch) == (None, -1)
    request = harness.take(OffsetFetchRequest)
    assert harness.version_of(request) == newest
    harness.reply_fetch(request, {T0: 11, T1: -1})
    assert result.value == {T0: OffsetAndMetadata(11, "", -1), T1: None}


def test_version_10_needs_the_id_of_every_topic() -> None:
    harness = assigned()
    harness.fetch(T0)
    request = harness.take(OffsetFetchRequest)
    assert harness.version_of(request) == 10
    assert isinstance(request.message, OffsetFetchRequest)
    topics = request.message.groups[0].topics
    assert topics is not None
    assert topics[0].topic_id == topic_id_of("t")
    unknown = TopicPartition("unknown", 0)
    result = harness.fetch(T0, unknown)
    request = harness.take(OffsetFetchRequest)
    assert harness.version_of(request) == 9
    harness.reply_fetch(request, {T0: 1, unknown: -1})
    assert result.value[unknown] is None


def test_the_answer_is_read_by_the_ids_of_its_request() -> None:
    harness = assigned()
    result = harness.fetch(T0)
    request = harness.take(OffsetFetchRequest)
    harness.metadata.cluster = cluster(LEADERS, incarnation=1)
    harness.reply_fetch(request, {T0: 3})
    assert result.value == {T0: OffsetAndMetadata(3, "", -1)}


# --- answers that are none ------------------------------------------------------------------------


@pytest.mark.parametrize("newest", [7, 10])
def test_what_an_answer_leaves_out_is_asked_again(newest: int) -> None:
    """P-09: an omission is not "nothing committed"; what is known is not asked again."""
    harness = assigned()
    harness.connections.newest[ApiKey.OFFSET_FETCH] = newest
    result = harness.fetch(T0, T1)
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: 11})
    assert not result.is_done
    assert harness.nothing_sent(OffsetFetchRequest)
    harness.advance(1000)
    request = harness.take(OffsetFetchRequest)
    assert harness.asked(request) == [T1]
    harness.reply_fetch(request, {T1: -1})
    assert result.value == {T0: OffsetAndMetadata(11, "", -1), T1: None}


def test_an_answer_about_another_group_is_none() -> None:
    """P-09."""
    harness = assigned()
    result = harness.fetch(T0)
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: 11}, group="other")
    assert not result.is_done
    harness.advance(1000)
    assert not harness.nothing_sent(OffsetFetchRequest)


def test_impossible_offsets_are_no_answer() -> None:
    """P-09: only -1 says that nothing is committed; -2 says nothing at all."""
    harness = assigned()
    result = harness.fetch(T0, timeout_ms=1_500)
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: -2})
    harness.advance(1_500)
    error = result.error
    assert isinstance(error, KafkaTimeoutError)
    assert (error.topic, error.partition) == ("t", 0)
    assert error.cause == "the answer does not contain it"


def test_partitions_that_were_not_requested_are_ignored() -> None:
    """D-26."""
    harness = assigned()
    result = harness.fetch(T0)
    harness.reply_fetch(
        harness.take(OffsetFetchRequest),
        {T0: 1, T1: refused(29), TopicPartition("x", 7): 3},
    )
    assert set(result.value) == {T0}


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [14, 15, 16, 88, 100, 103, 7])
@pytest.mark.parametrize("is_of_group", [False, True])
def test_retriable_errors_are_retried(code: int, is_of_group: bool) -> None:
    """T-12: 88 too; partitions that are answered are not asked again."""
    harness = assigned()
    result = harness.fetch(T0, T1)
    request = harness.take(OffsetFetchRequest)
    if is_of_group:
        harness.reply_fetch(request, {}, error=code)
    else:
        harness.reply_fetch(request, {T0: 5, T1: refused(code)})
    assert not result.is_done
    assert harness.nothing_sent(OffsetFetchRequest)
    assert (harness.coordinator() is None) is (code in (15, 16))
    harness.advance(1000)
    if code in (15, 16):
        harness.find()
    request = harness.take(OffsetFetchRequest)
    assert harness.asked(request) == ([T0, T1] if is_of_group else [T1])
    harness.reply_fetch(request, {T0: 5, T1: 6})
    assert set(result.value) == {T0, T1}


def test_unstable_offsets_are_waited_for_until_the_deadline() -> None:
    """T-12: without limit but the caller's; the error says why."""
    harness = assigned()
    start = harness.now
    result = harness.fetch(T0, timeout_ms=20_000)
    while not result.is_done:
        harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: refused(88)})
        harness.turn()
        harness.advance(harness.next_poll_ms)
    assert harness.now - start == 20_000
    assert isinstance(result.error, KafkaTimeoutError)
    assert "transaction" in str(result.error)
    assert "t-0" in result.error.message
    assert GROUP in result.error.message


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (3, UnknownTopicOrPartitionError),
        (29, TopicAuthorizationError),
        (30, GroupAuthorizationError),
        (25, UnknownMemberIdError),
    ],
)
def test_errors_that_are_not_retriable_are_raised(code: int, kind: type[KafkaError]) -> None:
    """29 is collected: the error names all partitions it is about."""
    harness = assigned()
    result = harness.fetch(T0, T1, T2)
    harness.reply_fetch(
        harness.take(OffsetFetchRequest), {T0: 5, T1: refused(code), T2: refused(code)}
    )
    error = result.error
    assert isinstance(error, kind)
    assert (error.code, error.topic, error.partition) == (code, "t", 1)
    assert "t-1, t-2" in error.message
    assert GROUP in error.message
    assert harness.membership.reported == []
    harness.advance(5000)
    assert harness.nothing_sent(OffsetFetchRequest)


def test_a_group_that_may_not_be_used() -> None:
    """S-08: at the top of the answer, and by FindCoordinator."""
    harness = assigned()
    result = harness.fetch(T0)
    harness.reply_fetch(harness.take(OffsetFetchRequest), {}, error=30)
    assert isinstance(result.error, GroupAuthorizationError)
    harness = GroupHarness()
    result = harness.fetch(T0)
    harness.answer_coordinator(harness.take(FindCoordinatorRequest), error=30)
    assert isinstance(result.error, GroupAuthorizationError)
    assert f'"{GROUP}"' in result.error.message


def test_no_answer() -> None:
    """G-04: a disconnect is retried at the coordinator found anew; a malformed answer raised."""
    harness = assigned()
    result = harness.fetch(T0)
    harness.lose(harness.take(OffsetFetchRequest), DisconnectError("gone"))
    assert harness.coordinator() is None
    harness.advance(1000)
    harness.find(3)
    request = harness.take(OffsetFetchRequest)
    assert request.node_id == 3
    harness.lose(request, ProtocolError("malformed"))
    assert isinstance(result.error, ProtocolError)
    assert harness.coordinator() == 3


def test_an_answer_after_the_deadline_changes_nothing() -> None:
    harness = assigned()
    result = harness.fetch(T0, timeout_ms=100)
    request = harness.take(OffsetFetchRequest)
    harness.advance(100)
    assert isinstance(result.error, KafkaTimeoutError)
    assert result.error.cause == "the coordinator did not answer"
    harness.reply_fetch(request, {T0: 5})
    assert result.error is not None


def test_without_a_coordinator_the_error_says_so() -> None:
    harness = GroupHarness()
    result = harness.fetch(T0, timeout_ms=500)
    harness.answer_coordinator(harness.take(FindCoordinatorRequest), error=15)
    harness.advance(500)
    assert isinstance(result.error, KafkaTimeoutError)
    assert "cannot be found" in str(result.error.cause)


# --- members --------------------------------------------------------------------------------------


def test_a_classic_member_fetches_offsets_without_a_member_id() -> None:
    harness = member()
    harness.fetch(T0)
    group = question(harness).groups[0]
    assert (group.member_id, group.member_epoch) == (None, -1)


def test_during_a_join_the_fetch_uses_the_data_connection() -> None:
    """G-07: behind a JoinGroup it would run into its timeout, and end the connection."""
    harness = member()
    harness.membership.is_rebalancing = True
    result = harness.fetch(T0)
    request = harness.take(OffsetFetchRequest)
    assert (request.node_id, request.channel) == (COORDINATOR, Channel.DATA)
    harness.reply_fetch(request, {T0: 5})
    assert result.value


def test_a_kip848_member_sends_its_identity() -> None:
    """K-07."""
    harness = member(group_protocol="consumer")
    harness.fetch(T0)
    group = question(harness).groups[0]
    assert (group.member_id, group.member_epoch) == ("m-1", 7)


@pytest.mark.parametrize("newest", [7, 8])
def test_a_kip848_member_at_an_old_broker(newest: int) -> None:
    harness = member(group_protocol="consumer")
    harness.connections.newest[ApiKey.OFFSET_FETCH] = newest
    result = harness.fetch(T0)
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: 5})
    assert result.value


@pytest.mark.parametrize("code", [113, 110, 25])
@pytest.mark.parametrize("is_of_group", [False, True])
def test_an_old_epoch_waits_for_the_next_heartbeat(code: int, is_of_group: bool) -> None:
    """K-07: reported to the membership; requested again under the next epoch."""
    harness = member(group_protocol="consumer")
    result = harness.fetch(T0)
    request = harness.take(OffsetFetchRequest)
    if is_of_group:
        harness.reply_fetch(request, {}, error=code)
    else:
        harness.reply_fetch(request, {T0: refused(code)})
    assert harness.membership.reported == [(code, MEMBER)]
    harness.advance(5_000)
    assert harness.nothing_sent(OffsetFetchRequest)
    assert 0 < harness.next_poll_ms <= 1_200
    harness.membership.identity = NEXT
    harness.advance(1_000)
    assert question(harness).groups[0].member_epoch == 8
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: 5})
    assert result.value


def test_a_fenced_member_fetches_offsets_without_a_member_id_until_it_rejoins() -> None:
    """K-06."""
    harness = member(group_protocol="consumer")
    result = harness.fetch(T0)
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: refused(110)})
    harness.membership.identity = None
    harness.advance(1_000)
    group = question(harness).groups[0]
    assert (group.member_id, group.member_epoch) == (None, -1)
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: 5})
    assert result.value


def test_with_assign_a_member_code_is_an_error() -> None:
    harness = GroupHarness(group_protocol="consumer")
    harness.commits.membership = harness.membership
    harness.membership.identity = MemberIdentity(GROUP, 3, "m")
    harness.subscriptions.assign_from_user([T0])
    result = harness.fetch(T0)
    harness.find()
    harness.reply_fetch(harness.take(OffsetFetchRequest), {T0: refused(113)})
    assert result.error is not None
    assert not isinstance(result.error, CommitFailedError)
    assert result.error.code == 113
