"""RebalanceMetrics: what counts as a rebalance, how long it took, and what counts as a failure."""

from __future__ import annotations

import math

import pytest

from kfast.consumer.group.membership import RebalanceKind
from kfast.consumer.group.rebalance_metrics import RebalanceMetrics
from tests.unit.configs import config
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.group.classic.harness import ClassicHarness, joining, rejoining
from tests.unit.consumer.group.kip848.harness import Member


def ended(rebalances: RebalanceMetrics) -> tuple[int, float]:
    """Return how many ended and how long they took in all."""
    return rebalances.latency_ms.count, rebalances.latency_ms.total


def failed(rebalances: RebalanceMetrics) -> int:
    return rebalances.failures.count


def test_one_is_measured_from_its_first_beginning_to_its_end() -> None:
    """O-03: average and maximum over the last windows, NaN before the first."""
    rebalances = RebalanceMetrics(config(metrics_num_samples=2, metrics_sample_window_ms=1_000))
    assert math.isnan(rebalances.latency_ms.average(0))
    rebalances.ends(0)  # of nothing
    rebalances.begins(100)
    rebalances.begins(200)
    rebalances.ends(400)
    rebalances.begins(500)
    rebalances.ends(600)
    rebalances.ends(700)
    assert (ended(rebalances), rebalances.is_under_way) == ((2, 400), False)
    assert (rebalances.latency_ms.average(600), rebalances.latency_ms.maximum(600)) == (200, 300)
    assert rebalances.latency_ms.last_ms == 600
    rebalances.begins(800)
    rebalances.cancels()
    rebalances.ends(900)
    assert ended(rebalances) == (2, 400)


# --- the classic protocol -------------------------------------------------------------------------


def test_a_join_is_measured_from_joingroup_to_the_assignment() -> None:
    """O-03: waiting for the coordinator, and the listener afterwards, do not count."""
    member = ClassicHarness()
    member.advance(7_000)
    member.find()
    rebalances = member.member.rebalances
    member.advance(250)
    member.reply_join(1)
    member.advance(50)
    member.reply_sync([T0])
    member.advance(9_000)
    member.app_polls()
    assert (ended(rebalances), failed(rebalances)) == ((1, 300), 0)


def test_tries_that_fail_are_counted_and_the_time_goes_on() -> None:
    """O-03: one rebalance of three tries."""
    member = joining()
    rebalances = member.member.rebalances
    for _ in range(2):
        member.advance(1_000)
        member.reply_join(error=14)
    member.advance(2_000)
    member.reply_join(1)
    member.reply_sync([T0])
    assert (ended(rebalances), failed(rebalances)) == ((1, 4_000), 2)


def test_a_member_id_to_join_with_is_no_failure() -> None:
    """O-03, KIP-394: the second JoinGroup belongs to the same try."""
    member = joining()
    member.advance(10)
    member.reply_join(error=79)
    member.advance(10)
    member.reply_join(1)
    member.reply_sync([T0])
    assert (ended(member.member.rebalances), failed(member.member.rebalances)) == ((1, 20), 0)


@pytest.mark.parametrize("ending", ["leaves", "stops polling"])
def test_a_cancelled_join_is_neither(ending: str) -> None:
    """O-03: nor does its beginning count for the next one."""
    member = rejoining()
    rebalances = member.member.rebalances
    before = ended(rebalances)
    if ending == "leaves":
        member.subscriptions.unsubscribe()
        member.member.leave(member.now, is_closing=False)
        member.advance(60_000)
        member.subscriptions.subscribe(["t"])
    else:
        member.stops_polling()
        member.advance(300_000)
        assert member.state == "unjoined"
    member.outbox.clear()
    member.app_polls()
    member.advance(30)
    member.join([T0])
    assert ended(rebalances) == (before[0] + 1, before[1] + 30)
    assert failed(rebalances) == 0


def test_a_failure_for_good_ends_the_measuring() -> None:
    """O-03: what is joined after another subscription is measured by itself."""
    member = joining()
    member.advance(5_000)
    member.reply_join(error=24)
    rebalances = member.member.rebalances
    assert (failed(rebalances), rebalances.is_under_way) == (1, False)


# --- KIP-848 --------------------------------------------------------------------------------------


def test_a_pass_is_measured_from_the_target_to_what_is_owned() -> None:
    """O-03: the application's part is in it; an assignment that changes nothing is none."""
    member = Member()
    member.answer(member.heartbeat(), T0)
    member.advance(400)
    member.application_polls()
    rebalances = member.membership.rebalances
    assert (ended(rebalances), rebalances.is_under_way) == ((1, 400), False)
    member.advance(100)
    member.answer(member.heartbeat(), T0)
    assert member.state == "stable"
    assert (ended(rebalances), rebalances.is_under_way) == ((1, 400), False)


def test_a_target_replaced_on_the_way_is_one_rebalance() -> None:
    """O-03: it began with the first one."""
    member = Member().join(T0)
    rebalances = member.membership.rebalances
    before = ended(rebalances)
    member.answer(member.next_heartbeat(), T0, T1, epoch=2)
    member.advance(100)
    member.answer(member.next_heartbeat(), T0, T2, epoch=3)
    member.advance(50)
    member.application_polls()
    interval_ms = member.membership.heartbeats.timer.interval_ms
    assert ended(rebalances) == (before[0] + 1, before[1] + 100 + interval_ms + 50)
    assert member.assigned == {T0, T2}


@pytest.mark.parametrize(("code", "state"), [(110, "fenced"), (112, "fatal")])
def test_a_pass_that_is_cancelled_by_fencing_has_failed(code: int, state: str) -> None:
    """O-03: once; the time of the next pass is its own."""
    member = Member().join(T0)
    rebalances = member.membership.rebalances
    before = ended(rebalances)
    member.answer(member.next_heartbeat(), T1, epoch=2)
    assert rebalances.is_under_way
    assert member.application.due is not None
    assert member.application.due.kind is RebalanceKind.REVOKE
    member.answer(member.next_heartbeat(), error=code)
    assert member.state == state
    assert (ended(rebalances), failed(rebalances), rebalances.is_under_way) == (before, 1, False)


def test_a_stable_member_that_is_fenced_has_not_failed_to_rebalance() -> None:
    """O-03: there was no rebalance to fail."""
    member = Member().join(T0)
    member.answer(member.next_heartbeat(), error=110)
    assert failed(member.membership.rebalances) == 0


def test_a_pass_cancelled_by_leaving_is_neither() -> None:
    """O-03: unsubscribing is no failure."""
    member = Member().join(T0)
    rebalances = member.membership.rebalances
    before = ended(rebalances)
    member.answer(member.next_heartbeat(), T0, T1, epoch=2)
    member.membership.leave(member.now, is_closing=True)
    assert (ended(rebalances), failed(rebalances), rebalances.is_under_way) == (before, 0, False)
