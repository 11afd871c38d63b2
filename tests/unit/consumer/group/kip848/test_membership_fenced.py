"""ConsumerMembership: fenced, or with a coordinator that moves, loads or cannot be reached."""

from __future__ import annotations

import logging

import pytest

from kfast.consumer.group.membership import RebalanceKind
from kfast.errors import GroupAuthorizationError
from kfast.types import TopicPartition
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.group.coordinator_harness import COORDINATOR
from tests.unit.consumer.group.kip848.harness import ALL, Member

# --- fenced ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [25, 110])
def test_a_fenced_member_loses_everything_and_joins_again(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """K-06, state FENCED: delivery stops, on_lost inside poll, then epoch 0, same member id."""
    member = Member().join(T0, T1, epoch=4)
    mine = member.id
    with caplog.at_level(logging.WARNING, "kfast"):
        member.answer(member.next_heartbeat(), error=code)
    assert len(caplog.records) == 1
    assert "fenced" in caplog.text
    assert (member.state, member.identity()) == ("fenced", None)
    assert not member.is_delivered(T0)
    member.advance(60_000)
    assert member.is_silent(), "nothing is sent before on_lost"
    assert member.calls == []
    member.application_polls()
    assert member.calls == [("lost", {T0, T1})]
    assert member.assigned == set()
    sent = member.heartbeat()
    assert (sent.epoch, sent.fields, sent.owned, sent.message.member_id) == (0, ALL, set(), mine)
    member.answer(sent, T1, epoch=6)
    member.application_polls()
    assert member.calls == [("assigned", {T1})]
    assert member.is_delivered(T1)


def test_a_member_fenced_without_partitions_joins_at_once() -> None:
    """K-06: on_lost has nothing to say."""
    member = Member().join()
    member.answer(member.next_heartbeat(), error=110)
    assert (member.heartbeat().epoch, member.calls) == (0, [])


def test_a_join_that_is_fenced_again_and_again_backs_off() -> None:
    """K-06: never at the speed of the network."""
    member = Member()
    for _ in range(5):
        while member.is_silent():
            member.advance(50)
        member.answer(member.heartbeat(), error=25)
    assert member.now - 1_000_000 >= 1_500


def test_fencing_withdraws_a_step_that_was_not_begun() -> None:
    """K-04: the pass is aborted, nothing is committed, everything is lost."""
    member = Member().join(T0, T1)
    member.answer(member.next_heartbeat(), T1)
    member.answer(member.next_heartbeat(), error=110)
    assert [step.kind for step in member.application.withdrawn] == [RebalanceKind.REVOKE]
    member.application_polls()
    assert member.calls == [("lost", {T0, T1})]


@pytest.mark.parametrize(
    ("target", "called", "lost"),
    [((T1,), ("revoked", {T0}), {T1}), ((T0, T1, T2), ("assigned", {T2}), {T0, T1, T2})],
)
def test_fencing_waits_for_a_step_that_runs(
    target: tuple[TopicPartition, ...],
    called: tuple[str, set[TopicPartition]],
    lost: set[TopicPartition],
) -> None:
    """K-04: then what is left is lost; the pass does not go on."""
    member = Member().join(T0, T1)
    member.answer(member.next_heartbeat(), *target)
    member.application.begin()
    member.answer(member.next_heartbeat(), error=25)
    assert not member.is_delivered(T1)
    member.application.end()
    assert not member.is_delivered(T1)
    member.application_polls()
    assert member.calls == [called, ("lost", lost)]
    assert member.heartbeat().epoch == 0


# --- the coordinator ------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [15, 16])
def test_a_coordinator_that_moved_is_found_and_gets_all_fields(code: int) -> None:
    """Errors 15, 16: find the coordinator, send again; no rebalance."""
    member = Member().join(T0, epoch=3)
    member.answer(member.next_heartbeat(), error=code)
    sent = member.heartbeat()
    assert (sent.epoch, sent.fields) == (3, ALL)
    assert [r.kind for r in member.application.posted] == [RebalanceKind.ASSIGN]
    assert member.is_delivered(T0)


@pytest.mark.parametrize("code", [14, 7, 89])
def test_a_coordinator_that_loads_is_given_time(code: int) -> None:
    """Error 14 and other retriable ones: back off, same coordinator."""
    member = Member().join(T0, epoch=3)
    member.answer(member.next_heartbeat(), error=code)
    assert member.finder.node_id == COORDINATOR
    assert member.is_silent()
    assert member.next_poll_ms == 100
    member.advance(100)
    assert member.heartbeat().fields == ALL
    assert member.error() is None


def test_a_lost_connection_makes_the_coordinator_unknown() -> None:
    """A disconnect or timeout: the coordinator is looked for again."""
    member = Member().join(T0)
    member.finds_coordinator = False
    member.fail(member.next_heartbeat())
    member.advance(30_000)
    assert member.finder.node_id is None
    member.application.last_poll_ms = member.now
    member.finds_coordinator = True
    member.turn()
    assert member.heartbeat().fields == ALL
    assert member.is_delivered(T0)


def test_a_coordinator_that_must_not_be_asked_for_is_raised() -> None:
    """30 from FindCoordinator: raised at every poll; usable again once granted."""
    member = Member()
    error = GroupAuthorizationError("no")
    member.finder._failed(error, member.now)
    assert member.error() is error
    assert member.error() is error
    member.advance(1_000)
    member.answer(member.heartbeat(), T0)
    assert member.error() is None
