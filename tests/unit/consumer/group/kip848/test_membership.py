"""ConsumerMembership: states, heartbeats and reconciliation of a KIP-848 member."""

from __future__ import annotations

import pytest

from kfast.consumer.group.membership import MemberIdentity, RebalanceKind
from kfast.errors import DisconnectError, IllegalStateError, KafkaTimeoutError, ProtocolError
from kfast.protocol.messages.consumer_group_heartbeat import Assignment, TopicPartitions
from kfast.types import ZERO_UUID
from tests.unit.consumer.clusters import cluster, topic_id_of
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.group.kip848.harness import (
    ALL,
    HEARTBEAT_KEY,
    LEADERS,
    U0,
    Member,
    assignment,
    is_done,
)

T_ID = topic_id_of("t")


# --- joining --------------------------------------------------------------------------------------


def test_without_a_subscription_nothing_happens() -> None:
    """State UNSUBSCRIBED: nothing is sent; nor with partitions assigned by hand."""
    member = Member(topics=())
    assert member.is_silent()
    assert member.state == "unsubscribed"
    assert member.finder.node_id is None
    member.subscriptions.assign_from_user([T0])
    assert member.is_silent()
    assert member.finder.node_id is None, "no manager requires the coordinator"


def test_joining_waits_for_the_application_to_poll() -> None:
    """State UNSUBSCRIBED -> JOINING: subscribe and poll."""
    member = Member(max_poll_interval_ms=10_000)
    member.application.last_poll_ms = member.now - 10_000
    assert member.is_silent()
    assert member.next_poll_ms == 100, "looks whether it polls"
    member.application_polls()
    assert member.state == "joining"
    assert member.heartbeat().epoch == 0


def test_a_join_sends_all_fields() -> None:
    """K-02: epoch 0, all fields, an empty owned list."""
    member = Member(
        topics=["u", "t"],
        client_rack="r1",
        group_remote_assignor="range",
        group_instance_id="i",
        max_poll_interval_ms=7_000,
    )
    message = member.heartbeat().message
    assert (message.group_id, message.member_id, message.member_epoch) == ("g", member.id, 0)
    assert (message.instance_id, message.rack_id, message.server_assignor) == ("i", "r1", "range")
    assert message.rebalance_timeout_ms == 7_000
    assert message.subscribed_topic_names == ["t", "u"]
    assert message.topic_partitions == []
    assert member.identity() is None
    assert member.state == "joining"


def test_a_join_has_the_bytes_of_the_reference() -> None:
    """K-02: what is not configured is null; an empty rack would be an error (42)."""
    member = Member(topics=["t1"])
    member.membership.heartbeats.member_id = "m"
    join = "0267026d000000000000000493e00203743100000100"
    assert member.heartbeat().message.encode(1).hex() == join


def test_a_join_that_is_accepted_makes_a_member() -> None:
    """State JOINING -> RECONCILING, any epoch above 0 (K-03)."""
    member = Member(group_instance_id="i")
    member.answer(member.heartbeat(), T0, T1, epoch=2, interval_ms=3_000)
    assert member.state == "reconciling"
    assert member.identity() == MemberIdentity("g", 2, member.id, "i")
    assert member.membership.heartbeats.timer.interval_ms == 3_000
    assert len(member.history) == 1


def test_a_join_without_an_assignment_is_stable() -> None:
    """State JOINING -> STABLE; the target comes later."""
    member = Member()
    member.answer(member.heartbeat())
    assert member.state == "stable"
    member.answer(member.next_heartbeat(), T0)
    assert member.state == "reconciling"


def test_an_empty_assignment_calls_the_listener_once() -> None:
    """on_assigned comes after a join also with nothing."""
    member = Member()
    member.answer(member.heartbeat(), is_empty=True)
    member.application_polls()
    assert member.calls == [("assigned", set())]
    member.answer(member.heartbeat(), is_empty=True)
    member.answer(member.next_heartbeat(), is_empty=True)
    member.application_polls()
    assert member.calls == []
    assert member.state == "stable"


# --- the member id --------------------------------------------------------------------------------


def test_the_member_id_is_made_once() -> None:
    """K-01: one id for the consumer's life, whatever happens; another consumer has another."""
    member = Member()
    mine = member.id
    assert len(mine) == 22
    assert not mine.startswith("-")
    assert Member().id != mine
    sent = member.heartbeat()
    member.answer(sent, T0, member_id="not-mine")
    member.application_polls()
    member.answer(member.heartbeat(), error=110)
    member.application_polls()
    member.answer(member.heartbeat(), T0, epoch=5)
    pending = member.membership.leave(member.now, is_closing=False)
    member.subscriptions.unsubscribe()
    member.answer(member.heartbeat(), epoch=-1)
    assert is_done(pending)
    member.subscriptions.subscribe(["t"])
    member.heartbeat()
    assert {sent.message.member_id for sent in member.history} == {mine}


def test_an_old_coordinator_gives_the_member_id() -> None:
    """K-01: version 0 sends none and takes the one in the answer."""
    member = Member()
    member.connections.newest[HEARTBEAT_KEY] = 0
    join = member.heartbeat()
    assert join.message.member_id == ""
    assert join.request.max_version == 0
    member.answer(join, T0, member_id="given")
    assert member.identity() == MemberIdentity("g", 1, "given")
    member.application_polls()
    acknowledgement = member.heartbeat()
    assert acknowledgement.message.member_id == "given"
    member.answer(acknowledgement, error=25)
    member.application_polls()
    assert member.heartbeat().message.member_id == "given"


# --- what goes out --------------------------------------------------------------------------------


def test_heartbeats_go_out_at_the_interval_and_say_only_what_changed() -> None:
    """K-02, state STABLE."""
    member = Member().join(T0)
    member.application.last_poll_ms = member.now
    assert member.is_silent()
    assert member.next_poll_ms == 5_000
    member.advance(4_999)
    assert member.is_silent()
    member.advance(1)
    sent = member.heartbeat()
    assert (sent.epoch, sent.fields) == (1, set())
    assert sent.message.encode(1).hex().endswith("000000010000ffffffff0000000000")
    member.answer(sent, epoch=4)
    assert member.next_heartbeat().epoch == 4


def test_a_changed_subscription_goes_out_at_once() -> None:
    """K-02: the new names and nothing else; the coordinator revokes what is no longer wanted."""
    member = Member().join(T0)
    member.subscriptions.subscribe(["t", "u"])
    sent = member.heartbeat()
    assert sent.fields == {"subscribed_topic_names"}
    assert sent.message.subscribed_topic_names == ["t", "u"]
    member.answer(sent, T0, U0, epoch=2)
    member.application_polls()
    assert member.calls == [("assigned", {U0})]


def test_one_heartbeat_is_in_flight() -> None:
    """K-02: neither the interval nor a change sends a second one."""
    member = Member().join(T0)
    sent = member.next_heartbeat()
    member.advance(20_000)
    member.subscriptions.subscribe(["u"])
    assert member.is_silent()
    member.answer(sent)
    assert member.heartbeat().message.subscribed_topic_names == ["u"]


@pytest.mark.parametrize("error", [DisconnectError("gone"), KafkaTimeoutError("late")])
def test_after_a_lost_answer_everything_is_sent_again(
    error: DisconnectError | KafkaTimeoutError,
) -> None:
    """K-02: after a pause, to the coordinator as it is found then, under the same epoch."""
    member = Member().join(T0, epoch=3)
    member.fail(member.next_heartbeat(), error)
    assert member.is_silent()
    member.advance(100)
    sent = member.heartbeat()
    assert (sent.epoch, sent.fields, sent.owned) == (3, ALL, {(T_ID, 0)})
    member.answer(sent, T0, epoch=3)
    assert member.state == "stable"
    assert member.next_heartbeat().fields == set()
    assert member.calls == []


def test_a_join_that_is_not_answered_is_made_again() -> None:
    """K-02: epoch 0 and all fields, with growing pauses."""
    member = Member()
    pauses = []
    for _ in range(4):
        sent = member.heartbeat()
        assert (sent.epoch, sent.fields, sent.owned) == (0, ALL, set())
        member.fail(sent)
        start = member.now
        while member.is_silent():
            member.advance(50)
        pauses.append(member.now - start)
    assert pauses == [100, 200, 400, 800]


# --- hostile answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [0, -1, -2, -(1 << 31)])
def test_an_epoch_that_is_none_is_not_taken(epoch: int) -> None:
    """K-03: epoch and interval of such an answer are ignored."""
    member = Member().join(T0, epoch=3)
    member.answer(member.next_heartbeat(), epoch=epoch, interval_ms=77_777)
    assert member.identity() == MemberIdentity("g", 3, member.id)
    assert member.membership.heartbeats.timer.interval_ms == 5_000
    assert isinstance(member.error(), ProtocolError)
    member.advance(100)
    sent = member.heartbeat()
    assert (sent.epoch, sent.fields) == (3, ALL)
    member.answer(sent, epoch=3)
    assert member.error() is None


@pytest.mark.parametrize(
    ("sent", "used"),
    [(0, 5_000), (-1, 5_000), (1, 50), (700, 700), (2**31 - 1, 60_000)],
)
def test_the_interval_is_accepted_within_limits(sent: int, used: int) -> None:
    """K-03: none at or below 0; absurd ones are brought into limits."""
    member = Member()
    member.answer(member.heartbeat(), interval_ms=sent)
    assert member.membership.heartbeats.timer.interval_ms == used


def test_values_of_an_error_answer_are_not_taken() -> None:
    """K-03: they are 0, and no values."""
    member = Member().join(T0, epoch=3)
    member.answer(member.next_heartbeat(), error=14)
    assert member.identity() == MemberIdentity("g", 3, member.id)
    assert member.membership.heartbeats.timer.interval_ms == 5_000


@pytest.mark.parametrize("topic", [TopicPartitions(T_ID, [0, -1]), TopicPartitions(ZERO_UUID, [0])])
def test_an_impossible_assignment_is_refused(topic: TopicPartitions) -> None:
    """K-03: nothing of the answer is taken; the member goes on with what it has."""
    member = Member().join(T0, epoch=3)
    member.answer(member.next_heartbeat(), epoch=4, target=Assignment([topic]))
    assert isinstance(member.error(), ProtocolError)
    assert member.identity() == MemberIdentity("g", 3, member.id)
    assert (member.state, member.assigned) == ("stable", {T0})


# --- reconciliation -------------------------------------------------------------------------------


def test_a_target_is_reconciled_step_by_step_inside_poll() -> None:
    """K-04, RECONCILING, ACKNOWLEDGING, STABLE: stop, commit, revoke, assign, acknowledge."""
    member = Member().join(T0, T1)
    member.answer(member.next_heartbeat(), T1, T2, epoch=1)
    step = member.application.due
    assert step is not None
    assert step.kind is RebalanceKind.REVOKE
    assert (set(step.partitions), set(step.assignment)) == ({T0}, {T1})
    assert step.deadline_ms == member.now + 300_000, "the commit may take the rebalance timeout"
    assert not member.is_delivered(T0), "stopped before anything else"
    assert member.is_delivered(T1)
    assert member.assigned == {T0, T1}, "nothing changes outside poll"
    member.advance(5_000)
    sent = member.heartbeat()
    assert (member.state, sent.fields) == ("reconciling", set()), "heartbeats go on, without fields"
    member.answer(sent)
    member.application_polls()
    assert member.calls == [("revoked", {T0}), ("assigned", {T2})]
    assert member.assigned == {T1, T2}
    assert member.state == "stable"
    sent = member.heartbeat()
    assert (sent.fields, sent.owned) == ({"topic_partitions"}, {(T_ID, 1), (T_ID, 2)})
    assert member.membership.rebalances.latency_ms.count == 2
    assert all(map(member.is_delivered, (T1, T2)))


def test_acknowledging_waits_for_the_heartbeat_in_flight() -> None:
    """K-02, state ACKNOWLEDGING."""
    member = Member().join(T0)
    member.answer(member.next_heartbeat(), T0, T1)
    sent = member.next_heartbeat()
    member.application_polls()
    assert (member.state, member.is_silent()) == ("acknowledging", True)
    member.answer(sent)
    assert member.heartbeat().owned == {(T_ID, 0), (T_ID, 1)}
    assert member.state == "stable"


def test_a_revocation_alone_also_calls_assigned() -> None:
    """As with cooperative rebalancing, on_assigned ends every pass."""
    member = Member().join(T0, T1)
    member.answer(member.next_heartbeat(), T1)
    member.application_polls()
    assert member.calls == [("revoked", {T0}), ("assigned", set())]
    assert member.heartbeat().owned == {(T_ID, 1)}


def test_the_same_target_again_does_nothing() -> None:
    """A full request is answered with the assignment."""
    member = Member().join(T0)
    member.answer(member.next_heartbeat(), T0)
    assert (member.state, member.application.due) == ("stable", None)
    assert member.is_silent(), "nothing to acknowledge"


def test_a_new_target_replaces_a_step_that_was_not_begun() -> None:
    """K-04: planned anew; what was held for the old step is free again."""
    member = Member().join(T0, T1)
    member.answer(member.next_heartbeat(), T1)
    assert not member.is_delivered(T0)
    member.answer(member.next_heartbeat(), T0, T1, T2, epoch=2)
    assert member.is_delivered(T0)
    member.application_polls()
    assert member.calls == [("assigned", {T2})]
    assert member.heartbeat().owned == {(T_ID, 0), (T_ID, 1), (T_ID, 2)}


def test_a_new_target_follows_a_step_that_runs() -> None:
    """K-04, state ACKNOWLEDGING -> RECONCILING: acknowledged only when all is done."""
    member = Member().join(T0, T1)
    member.answer(member.next_heartbeat(), T1)
    member.application.begin()
    member.answer(member.next_heartbeat(), T0, T2, epoch=2)
    member.application.end()
    assert member.state == "reconciling"
    member.application_polls()
    assert member.calls == [("revoked", {T0}), ("revoked", {T1}), ("assigned", {T0, T2})]
    assert member.heartbeat().owned == {(T_ID, 0), (T_ID, 2)}


def test_a_failing_listener_delays_the_acknowledgement() -> None:
    """K-04: the error is raised; it goes on when the application polls again."""
    member = Member().join(T0, T1)
    member.application.fails_at = RebalanceKind.REVOKE
    member.answer(member.next_heartbeat(), T1, T2)
    member.application_polls()
    assert member.calls == [("revoked", {T0})]
    assert member.next_poll_ms == 100
    member.advance(3_000)
    assert member.is_silent()
    assert (member.state, member.application.due) == ("reconciling", None)
    member.application_polls()
    member.application_polls()
    assert member.calls == [("assigned", {T2})], "not called twice"
    assert member.heartbeat().owned == {(T_ID, 1), (T_ID, 2)}


def test_a_failing_on_assigned_is_not_called_again() -> None:
    """K-04: no acknowledgement before the application polls again."""
    member = Member().join(T0)
    member.application.fails_at = RebalanceKind.ASSIGN
    member.answer(member.next_heartbeat(), T0, T1)
    member.application_polls()
    assert member.is_silent()
    member.advance(1_000)
    member.application_polls()
    assert member.calls == [("assigned", {T1})]
    assert member.heartbeat().owned == {(T_ID, 0), (T_ID, 1)}
    assert member.is_delivered(T1)


# --- topic ids ------------------------------------------------------------------------------------


def test_a_topic_id_that_nothing_names_stays_pending() -> None:
    """K-05: the rest is reconciled and acknowledged; the topic follows when metadata names it."""
    known = {tp: leader for tp, leader in LEADERS.items() if tp.topic == "t"}
    member = Member(topics=["t", "u"], view=cluster(known))
    member.answer(member.heartbeat(), T0, U0)
    assert member.metadata.unresolved_topic_ids == {topic_id_of("u")}
    member.application_polls()
    assert member.calls == [("assigned", {T0})]
    sent = member.heartbeat()
    assert sent.owned == {(T_ID, 0)}
    assert member.state == "reconciling"
    member.answer(sent)
    assert member.is_silent()
    member.set_leaders(LEADERS)
    member.application_polls()
    assert member.calls == [("assigned", {U0})]
    assert member.heartbeat().owned == {(T_ID, 0), (topic_id_of("u"), 0)}
    assert member.state == "stable"


def test_an_assignment_of_which_nothing_is_named_waits() -> None:
    """K-05: on_assigned is not called for it."""
    member = Member(view=cluster({U0: (1, 5)}))
    member.answer(member.heartbeat(), T0)
    assert (member.state, member.application.due) == ("reconciling", None)
    member.set_leaders(LEADERS)
    member.application_polls()
    assert member.calls == [("assigned", {T0})]


def test_a_topic_that_leaves_the_metadata_is_not_revoked() -> None:
    """K-05: only the coordinator takes partitions away."""
    member = Member().join(T0)
    member.set_leaders({U0: (1, 5)})
    member.answer(member.next_heartbeat(), T0)
    assert (member.state, member.assigned, member.application.due) == ("stable", {T0}, None)


def test_a_topic_created_anew_is_revoked_and_assigned() -> None:
    """K-05: partitions are compared by topic id."""
    member = Member().join(T0)
    member.metadata.cluster = cluster(LEADERS, incarnation=1)
    member.answer(member.next_heartbeat(), target=assignment(T0, incarnation=1))
    member.application_polls()
    assert member.calls == [("revoked", {T0}), ("assigned", {T0})]
    assert member.heartbeat().owned == {(topic_id_of("t", 1), 0)}


def test_ids_are_wanted_for_as_long_as_partitions_are() -> None:
    """K-05: metadata keeps what is owned or assigned, and forgets the rest."""
    member = Member().join(T0, U0)
    assert member.metadata.topics == frozenset({"t", "u"})
    member.answer(member.next_heartbeat(), T0)
    member.application_polls()
    member.answer(member.heartbeat(), T0)
    assert member.metadata.topics == frozenset({"t"})


def test_membership_needs_a_group() -> None:
    member = Member()
    member.config._values["group_id"] = None
    with pytest.raises(IllegalStateError):
        type(member.membership)(member.context, member.finder, member.application)


def test_reprs_show_the_state() -> None:
    member = Member().join(T0)
    assert "stable" in repr(member.membership)
    assert member.id in repr(member.membership.heartbeats)
    assert "owned=1" in repr(member.membership._reconciler)
    assert "5000" in repr(member.membership.heartbeats.timer)
