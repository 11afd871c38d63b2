"""Commits: what is stored, in which order, and the results."""

from __future__ import annotations

import pytest

from kfast.client.request import Channel
from kfast.consumer.commits.offset_commit import MAX_OFFSET
from kfast.consumer.group.membership import MemberIdentity
from kfast.errors import (
    AuthenticationError,
    CommitFailedError,
    CoordinatorLoadInProgressError,
    DisconnectError,
    GroupAuthorizationError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
    ProtocolError,
    RebalanceInProgressError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.find_coordinator import FindCoordinatorRequest
from kfast.protocol.messages.offset_commit import OffsetCommitRequest
from kfast.types import OffsetAndMetadata, TopicPartition
from tests.unit.consumer.clusters import cluster, topic_id_of
from tests.unit.consumer.commits.committing import assigned, member, sent
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.group.coordinator_harness import COORDINATOR, GROUP, LEADERS
from tests.unit.consumer.group.harness import GroupHarness

# --- the request ----------------------------------------------------------------------------------


def test_a_commit_finds_the_coordinator_first() -> None:
    """C-01: the offset goes out as it was given; the result is what was stored."""
    harness = GroupHarness()
    result = harness.commit({T0: 11, T1: 22})
    assert harness.nothing_sent(OffsetCommitRequest)
    harness.find()
    request = harness.take(OffsetCommitRequest)
    assert (request.node_id, request.channel) == (COORDINATOR, Channel.COORDINATOR)
    assert harness.committing(request) == {T0: 11, T1: 22}
    assert not result.is_done
    harness.clock.advance(30)
    harness.reply_commit(request)
    assert result.value == {T0: OffsetAndMetadata(11, "", 5), T1: OffsetAndMetadata(22, "", 5)}
    metrics = harness.commits.metrics
    assert (metrics.commits, metrics.failures) == (1, 0)
    assert (metrics.latency_total_ms, metrics.latency_max_ms) == (30, 30)


def test_by_hand_means_no_generation_and_no_member() -> None:
    """C-11: manual assignment with group_id."""
    harness = assigned(group_instance_id="static")
    harness.commit({T0: 1})
    message = sent(harness)
    assert message.group_id == GROUP
    assert (message.generation_id_or_member_epoch, message.member_id) == (-1, "")
    assert message.group_instance_id is None


def test_a_member_assigning_by_hand_now_commits_without_a_member_id() -> None:
    harness = member()
    harness.subscriptions.unsubscribe()
    harness.subscriptions.assign_from_user([T0])
    harness.commit({T0: 1})
    assert sent(harness).generation_id_or_member_epoch == -1


def test_a_member_commits_under_its_identity() -> None:
    harness = member(MemberIdentity(GROUP, 7, "m-1", "static"))
    harness.commit({T0: 1})
    message = sent(harness)
    assert (message.generation_id_or_member_epoch, message.member_id) == (7, "m-1")
    assert message.group_instance_id == "static"


def test_old_brokers_know_no_static_members() -> None:
    """group_instance_id from version 7 on."""
    harness = member(MemberIdentity(GROUP, 7, "m-1", "static"))
    harness.connections.newest[ApiKey.OFFSET_COMMIT] = 6
    harness.commit({T0: 1})
    assert harness.version_of(harness.waiting(OffsetCommitRequest)[0]) == 6
    assert sent(harness).group_instance_id is None


def test_epoch_and_text_go_along() -> None:
    """C-09, C-10, P-16: leader epoch of the last record, and the text, "" rather than null."""
    harness = assigned()
    harness.commits.commit(
        {T0: OffsetAndMetadata(1, "é" * 2048, 3), T1: OffsetAndMetadata(2, "", -9)},
        harness.now,
        None,
    )
    parts = harness.commit_parts(harness.take(OffsetCommitRequest))
    assert (parts[T0].committed_leader_epoch, parts[T0].committed_metadata) == (3, "é" * 2048)
    assert (parts[T1].committed_leader_epoch, parts[T1].committed_metadata) == (-1, "")


@pytest.mark.parametrize(("has_ids", "version"), [(True, 10), (False, 9)])
def test_version_10_needs_the_id_of_every_topic(has_ids: bool, version: int) -> None:
    harness = assigned(has_topic_ids=has_ids)
    result = harness.commit({T0: 1})
    request = harness.take(OffsetCommitRequest)
    assert harness.version_of(request) == version
    assert sent_ids(request.message) == [topic_id_of("t") if has_ids else bytes(16)]
    harness.reply_commit(request)
    assert result.value


def sent_ids(message: object) -> list[bytes]:
    assert isinstance(message, OffsetCommitRequest)
    return [topic.topic_id for topic in message.topics]


def test_one_topic_without_id_and_all_go_by_name() -> None:
    harness = assigned()
    other = TopicPartition("unknown", 0)
    result = harness.commit({T0: 1, other: 2})
    request = harness.take(OffsetCommitRequest)
    assert harness.version_of(request) == 9
    harness.reply_commit(request)
    assert set(result.value) == {T0, other}


def test_the_answer_is_read_by_the_ids_of_its_request() -> None:
    """The metadata may know other ids by then."""
    harness = assigned()
    result = harness.commit({T0: 1})
    request = harness.take(OffsetCommitRequest)
    harness.metadata.cluster = cluster(LEADERS, incarnation=1)
    harness.reply_commit(request)
    assert result.value


def test_nothing_to_commit_sends_nothing() -> None:
    """C-03: done at once."""
    harness = GroupHarness()
    assert harness.commit({}).value == {}
    assert harness.nothing_sent(FindCoordinatorRequest)


@pytest.mark.parametrize("offset", [-1, -1001, MAX_OFFSET + 1])
def test_impossible_offsets_are_refused_locally(offset: int) -> None:
    """C-10: with the place; nothing is sent."""
    harness = assigned()
    error = harness.commit({T1: offset}).error
    assert isinstance(error, IllegalStateError)
    assert (error.topic, error.partition, error.offset) == ("t", 1, offset)
    assert harness.nothing_sent(OffsetCommitRequest)


# --- order ----------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_commits() -> None:
    """C-02: callbacks of earlier asynchronous commits come before commit_sync returns."""
    harness = assigned()
    order: list[str] = []
    harness.commit({T0: 1}, None).add_callback(lambda _: order.append("a"))
    harness.commit({T0: 1}, None).add_callback(lambda _: order.append("b"))
    harness.commit({T0: 1}).add_callback(lambda _: order.append("sync"))
    harness.commits.flush().add_callback(lambda _: order.append("flush"))
    assert len(harness.waiting(OffsetCommitRequest)) == 2, "asynchronous ones do not wait"
    for _ in range(3):
        harness.reply_commit(harness.take(OffsetCommitRequest))
    assert order == ["a", "b", "sync", "flush"]
    assert harness.commits.flush().is_done


def test_a_commit_that_cannot_be_sent_ends_after_those_before_it() -> None:
    """C-02: also when it fails here."""
    harness = member()
    order: list[str] = []
    harness.commit({T0: 1}, None).add_callback(lambda _: order.append("first"))
    request = harness.take(OffsetCommitRequest)
    harness.commit({T0: 2}, None).add_callback(lambda _: order.append("second"))
    harness.membership.is_rebalancing = True
    harness.commit({T0: 3}).add_callback(lambda _: order.append("third"))
    harness.commit({T0: -3}).add_callback(lambda _: order.append("fourth"))
    harness.turn()
    assert order == []
    harness.reply_commit(request)
    assert order == ["first", "second", "third", "fourth"]
    assert harness.commits.metrics.failures == 3


def test_a_commit_that_is_retried_holds_back_the_next_one() -> None:
    """C-05: an older commit can not rewind a newer one."""
    harness = assigned()
    old = harness.commit({T0: 1})
    new = harness.commit({T0: 2}, None)
    request = harness.take(OffsetCommitRequest)
    assert harness.committing(request) == {T0: 1}
    assert harness.nothing_sent(OffsetCommitRequest)
    harness.reply_commit(request, 14)
    assert harness.nothing_sent(OffsetCommitRequest)
    harness.advance(1000)
    request = harness.take(OffsetCommitRequest)
    assert harness.committing(request) == {T0: 1}
    harness.reply_commit(request)
    assert old.is_done
    harness.reply_commit(harness.take(OffsetCommitRequest))
    assert new.value


def test_a_commit_whose_time_is_up_frees_the_next_one_when_it_was_answered() -> None:
    """C-05: it is not sent again, whatever the answer."""
    harness = assigned()
    old = harness.commit({T0: 1}, 500)
    request = harness.take(OffsetCommitRequest)
    harness.advance(500)
    assert isinstance(old.error, KafkaTimeoutError)
    new = harness.commit({T0: 2})
    harness.turn()
    assert [harness.committing(r) for r in harness.outbox] == [{T0: 2}], "same connection, later"
    harness.reply_commit(request, 14)
    harness.advance(1000)
    harness.reply_commit(harness.take(OffsetCommitRequest))
    assert new.value
    assert harness.nothing_sent(OffsetCommitRequest)
    assert (harness.commits.metrics.commits, harness.commits.metrics.failures) == (1, 1)


def test_the_old_coordinator_answers_before_the_new_one_is_asked() -> None:
    """C-05: two connections have no order."""
    harness = assigned()
    harness.commit({T0: 1}, None)
    first = harness.take(OffsetCommitRequest)
    harness.finder.mark_unknown("moved", harness.now)
    harness.commit({T0: 2}, None)
    harness.advance(1000)
    harness.find(3)
    assert harness.nothing_sent(OffsetCommitRequest)
    harness.reply_commit(first, 16)
    assert harness.coordinator() == 3, "what the old one says is known already"
    assert harness.take(OffsetCommitRequest).node_id == 3


# --- errors that pass -----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [3, 7, 14, 15, 16, 100, 103, 5, 13])
def test_a_synchronous_commit_is_retried(code: int) -> None:
    """C-02: with a pause, until it is stored."""
    harness = assigned()
    result = harness.commit({T0: 1, T1: 2})
    harness.reply_commit(harness.take(OffsetCommitRequest), code)
    assert not result.is_done
    assert harness.nothing_sent(OffsetCommitRequest)
    assert 0 < harness.next_poll_ms <= 1000
    harness.advance(1000)
    if code in (7, 15, 16):
        harness.find()
    request = harness.take(OffsetCommitRequest)
    assert harness.committing(request) == {T0: 1, T1: 2}
    harness.reply_commit(request)
    assert set(result.value) == {T0, T1}


@pytest.mark.parametrize("codes", [[3, 3, 3], [100, 3, 3]])
def test_a_commit_for_a_topic_that_does_not_exist_ends_early(codes: list[int]) -> None:
    """E-13, C-02: when the coordinator has not known it for a second; what it knows is stored."""
    harness = assigned()
    result = harness.commit({T0: 1, T1: 2})
    for code in codes:
        assert not result.is_done
        harness.reply_commit(harness.take(OffsetCommitRequest), {T1: code})
        harness.advance(600)
    error = result.error
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert (error.topic, error.partition, error.offset) == ("t", 1, 2)
    assert error.hint
    harness.advance(5000)
    assert harness.nothing_sent(OffsetCommitRequest)


def test_a_topic_that_the_coordinator_learns_of_is_committed() -> None:
    """E-13, C-02: another error, or an answer, in between begins the second anew."""
    harness = assigned()
    result = harness.commit({T0: 1})
    for code in (3, 3, 14, 3, 3):
        harness.reply_commit(harness.take(OffsetCommitRequest), code)
        harness.advance(1_200)
        assert not result.is_done
    harness.reply_commit(harness.take(OffsetCommitRequest))
    assert result.value


@pytest.mark.parametrize("code", [3, 7, 14, 15, 16, 100, 103])
def test_an_asynchronous_commit_is_never_retried(code: int) -> None:
    """C-02: it fails with a retriable error that names partition and group."""
    harness = assigned()
    result = harness.commit({T1: 2}, None)
    harness.reply_commit(harness.take(OffsetCommitRequest), code)
    error = result.error
    assert error is not None
    assert (error.code, error.retriable) == (code, True)
    assert (error.topic, error.partition, error.offset) == ("t", 1, 2)
    assert GROUP in error.message
    harness.advance(5000)
    assert harness.nothing_sent(OffsetCommitRequest)


@pytest.mark.parametrize(
    ("code", "is_unknown"),
    [(15, True), (16, True), (7, True), (14, False), (3, False), (27, False), (-1, False)],
)
def test_which_errors_make_the_coordinator_unknown(code: int, is_unknown: bool) -> None:
    """G-04."""
    harness = assigned()
    harness.commit({T0: 2}, None)
    harness.reply_commit(harness.take(OffsetCommitRequest), code)
    assert (harness.coordinator() is None) is is_unknown


@pytest.mark.parametrize(
    ("error", "is_unknown"),
    [
        (DisconnectError("gone"), True),
        (KafkaTimeoutError("late"), True),
        (ProtocolError("malformed"), False),
        (UnsupportedVersionError("old"), False),
    ],
)
def test_which_failures_make_the_coordinator_unknown(error: KafkaError, is_unknown: bool) -> None:
    """G-04: disconnects and timeouts."""
    harness = assigned()
    result = harness.commit({T0: 2}, None)
    harness.lose(harness.take(OffsetCommitRequest), error)
    assert (harness.coordinator() is None) is is_unknown
    assert result.error is error


def test_a_lost_answer_is_retried() -> None:
    """C-05: the same offsets again do no harm."""
    harness = assigned()
    result = harness.commit({T0: 2})
    harness.lose(harness.take(OffsetCommitRequest))
    harness.advance(1000)
    harness.find()
    harness.reply_commit(harness.take(OffsetCommitRequest))
    assert result.value


@pytest.mark.parametrize("code", [3, 100, 103])
def test_stale_metadata_is_refreshed(code: int) -> None:
    harness = assigned()
    harness.metadata._is_update_needed = False
    harness.commit({T0: 2})
    harness.reply_commit(harness.take(OffsetCommitRequest), code)
    assert harness.metadata.is_update_needed


def test_the_back_off_grows_and_the_deadline_ends_it() -> None:
    """C-02: the error names partition, offset, group and what was wrong last."""
    harness = assigned()
    start = harness.now
    result = harness.commit({T0: 2}, 10_000)
    pauses = []
    while not result.is_done:
        harness.reply_commit(harness.take(OffsetCommitRequest), 14)
        harness.turn()
        pauses.append(harness.next_poll_ms)
        harness.advance(harness.next_poll_ms)
    assert harness.now - start == 10_000
    assert pauses[0] == 100
    assert max(pauses) == 1000
    error = result.error
    assert isinstance(error, KafkaTimeoutError)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 2)
    assert "t-0" in error.message
    assert "10000 ms" in error.message
    assert "(COORDINATOR_LOAD_IN_PROGRESS)" in str(error.cause)


def test_without_a_coordinator_every_commit_ends() -> None:
    """C-02: the synchronous one at its deadline, others after request_timeout_ms."""
    harness = GroupHarness(request_timeout_ms=7_000)
    later = harness.commit({T0: 2}, 9_000)
    first = harness.commit({T0: 3}, None)
    request = harness.take(FindCoordinatorRequest)
    harness.answer_coordinator(request, error=15)
    harness.advance(6_999)
    assert not first.is_done
    harness.advance(1)
    assert isinstance(first.error, KafkaTimeoutError)
    assert "cannot be found" in str(first.error)
    assert not later.is_done
    harness.advance(2_000)
    assert isinstance(later.error, KafkaTimeoutError)


def test_a_coordinator_that_is_not_ready_is_waited_for() -> None:
    harness = assigned()
    harness.connections.down.add(COORDINATOR)
    harness.commit({T0: 1})
    assert harness.nothing_sent(OffsetCommitRequest)
    assert harness.next_poll_ms == harness.connections.delay_ms
    harness.connections.down.clear()
    assert harness.committing(harness.take(OffsetCommitRequest)) == {T0: 1}


def test_what_an_answer_leaves_out_is_not_stored() -> None:
    """C-12: only the rest is sent again; without retry it is an error."""
    harness = assigned()
    result = harness.commit({T0: 1, T1: 2})
    harness.reply_commit(harness.take(OffsetCommitRequest), {T1: None})
    harness.advance(1000)
    request = harness.take(OffsetCommitRequest)
    assert harness.committing(request) == {T1: 2}
    harness.reply_commit(request)
    assert set(result.value) == {T0, T1}
    result = harness.commit({T0: 1, T1: 2}, None)
    harness.reply_commit(harness.take(OffsetCommitRequest), {T1: None})
    error = result.error
    assert isinstance(error, ProtocolError)
    assert (error.topic, error.partition, error.offset) == ("t", 1, 2)


def test_only_what_failed_is_sent_again() -> None:
    """C-12."""
    harness = assigned()
    result = harness.commit({T0: 1, T1: 2, T2: 3})
    harness.reply_commit(harness.take(OffsetCommitRequest), {T1: 14})
    harness.advance(1000)
    request = harness.take(OffsetCommitRequest)
    assert harness.committing(request) == {T1: 2}
    harness.reply_commit(request)
    assert {tp: committed.offset for tp, committed in result.value.items()} == {T0: 1, T1: 2, T2: 3}


def test_partitions_that_were_not_requested_are_ignored() -> None:
    """D-26."""
    harness = assigned()
    result = harness.commit({T0: 1})
    harness.reply_commit(harness.take(OffsetCommitRequest), {T1: 22, TopicPartition("x", 1): 25})
    assert result.value


# --- errors that do not pass ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (12, "OffsetMetadataTooLargeError"),
        (28, "InvalidCommitOffsetSizeError"),
        (29, "TopicAuthorizationError"),
        (-1, "UnknownServerError"),
        (42, "InvalidRequestError"),
        (4711, "UnknownServerError"),
    ],
)
def test_the_error_of_one_partition_names_it_and_what_was_stored(code: int, name: str) -> None:
    """C-10, C-12: it does not hide the others' success."""
    harness = assigned()
    result = harness.commit({T0: 1, T1: 2})
    harness.reply_commit(harness.take(OffsetCommitRequest), {T1: code})
    error = result.error
    assert error is not None
    assert (type(error).__name__, error.code) == (name, code)
    assert (error.topic, error.partition, error.offset) == ("t", 1, 2)
    assert "t-1" in error.message
    assert "(t-0 were)" in error.message
    assert getattr(error, "committed") == {T0: OffsetAndMetadata(1, "", 5)}  # noqa: B009
    assert harness.nothing_sent(OffsetCommitRequest)


def test_a_group_that_may_not_be_used() -> None:
    """S-08: by the coordinator's answer, and by FindCoordinator's."""
    harness = assigned()
    result = harness.commit({T0: 1})
    harness.reply_commit(harness.take(OffsetCommitRequest), 30)
    assert isinstance(result.error, GroupAuthorizationError)
    assert f'"{GROUP}"' in result.error.message
    harness = GroupHarness()
    results = [harness.commit({T0: 1}), harness.commit({T0: 2}, None)]
    harness.answer_coordinator(harness.take(FindCoordinatorRequest), error=30)
    for result in results:
        assert isinstance(result.error, GroupAuthorizationError)


def test_a_coordinator_that_refuses_the_login() -> None:
    harness = assigned()
    harness.connections.channel_errors[COORDINATOR, Channel.COORDINATOR] = AuthenticationError("no")
    result = harness.commit({T0: 1})
    harness.turn()
    assert isinstance(result.error, AuthenticationError)


def test_a_broker_without_offset_commit() -> None:
    harness = assigned()
    harness.connections.newest[ApiKey.OFFSET_COMMIT] = 2
    result = harness.commit({T0: 1})
    harness.turn()
    assert isinstance(result.error, UnsupportedVersionError)


def test_errors_of_a_retry_are_those_of_kafka() -> None:
    """The class of the error is that of the code."""
    for code, kind in ((14, CoordinatorLoadInProgressError), (16, NotCoordinatorError)):
        harness = assigned()
        result = harness.commit({T0: 1}, None)
        harness.reply_commit(harness.take(OffsetCommitRequest), code)
        assert isinstance(result.error, kind)


def test_by_hand_in_a_group_with_members() -> None:
    """C-11: 25 to generation -1 means that others subscribe; it is reported to no membership."""
    harness = assigned()
    result = harness.commit({T0: 1})
    harness.reply_commit(harness.take(OffsetCommitRequest), 25)
    assert isinstance(result.error, CommitFailedError)
    assert "by hand" in str(result.error)
    assert harness.membership.reported == []


def test_a_commit_says_what_it_is() -> None:
    harness = member()
    harness.commit({T0: 1})
    harness.turn()
    assert "1 commits, 1 in flight" in repr(harness.commits)
    assert harness.commits.group_id == GROUP
    assert harness.commits.membership is harness.membership


def test_rebalance_errors_are_their_users_to_retry() -> None:
    harness = member()
    harness.membership.is_rebalancing = True
    error = harness.commit({T0: 1}).error
    assert isinstance(error, RebalanceInProgressError)
    assert not error.retriable
    assert error.hint is not None
    assert "poll()" in error.hint
