"""ConsumerCommits: when auto-commit is due, in which order callbacks run, what is given up."""

from __future__ import annotations

import pytest

from kfast.application.commits import NEVER_MS
from kfast.errors import CommitFailedError, KafkaTimeoutError, NotCoordinatorError
from kfast.types import ConsumerGroupMetadata
from tests.unit.application.commit_bench import INTERVAL_MS, T0, T1, Bench


def test_auto_commit_is_due_after_its_interval() -> None:
    """A-01: counted from the assignment, then from the last one."""
    bench = Bench()
    assert bench.commits.due_ms == bench.runtime.clock.now_ms() + INTERVAL_MS
    bench.runtime.clock.advance(INTERVAL_MS)
    now_ms = bench.runtime.clock.now_ms()
    bench.commits.auto_commit_due(now_ms)
    assert bench.sent.offsets == [{T0: 10, T1: 20}]
    assert bench.sent.made[0][1] is None  # nobody waits for it
    assert bench.commits.due_ms == now_ms + INTERVAL_MS
    bench.commits.run_callbacks()
    assert bench.reported == [{0: 10, 1: 20}]


def test_without_auto_commit_nothing_is_ever_due() -> None:
    """A-05"""
    bench = Bench(enable_auto_commit=False)
    assert bench.commits.due_ms == NEVER_MS
    bench.commits.auto_commit_async()
    bench.commits.auto_commit_now(0)
    bench.commits.assignment_changed()
    assert (bench.sent.made, bench.commits.due_ms) == ([], NEVER_MS)


def test_a_failed_auto_commit_is_tried_again_soon_if_that_may_help() -> None:
    """A-04: a retriable failure after the backoff, another one at the next interval."""
    bench = Bench()
    for error, wait_ms in ((NotCoordinatorError("no"), 100), (CommitFailedError("no"), 5_000)):
        bench.sent.error = error
        now_ms = bench.runtime.clock.now_ms()
        bench.commits.auto_commit_due(now_ms)
        bench.commits.run_callbacks()
        assert bench.commits.due_ms == now_ms + wait_ms
    assert bench.reported == []


def test_auto_commit_waits_for_the_one_before_and_for_a_rebalance() -> None:
    """A-04, C-06: neither piles up nor fails for a reason that passes by itself."""
    bench = Bench()
    bench.sent.answers_at_once = False
    bench.commits.auto_commit_due(0)
    bench.commits.auto_commit_due(INTERVAL_MS)
    assert len(bench.sent.made) == 1
    assert bench.commits.due_ms == INTERVAL_MS + 100
    bench.sent.made[0][2].complete({})
    assert bench.runtime.group is not None
    bench.runtime.group.membership.is_rebalancing = True
    bench.commits.auto_commit_due(INTERVAL_MS)
    assert len(bench.sent.made) == 1
    bench.runtime.group.membership.is_rebalancing = False
    bench.commits.auto_commit_due(INTERVAL_MS)
    assert len(bench.sent.made) == 2


def test_callbacks_of_late_commits_run_once() -> None:
    """C-02: given up at close, and silent when the answer comes all the same."""
    bench = Bench()
    bench.sent.answers_at_once = False
    outcomes: list[object] = []
    bench.commits.commit_async({T0: 1}, lambda _, error: outcomes.append(error))
    bench.commits.finish_async(0)
    assert [type(outcome) for outcome in outcomes] == [KafkaTimeoutError]
    bench.sent.made[0][2].complete({})
    bench.commits.run_callbacks()
    assert len(outcomes) == 1
    assert bench.reported == []


def test_an_exception_of_the_application_takes_no_commit_back() -> None:
    """A-02, C-05: what was committed beyond the last finished poll is left alone."""
    bench = Bench()
    bench.commits.commit({T0: 11}, 1_000)
    bench.commits.auto_commit_now(1_000, is_last_included=False)
    assert bench.sent.offsets == [{T0: 11}, {T1: 20}]
    bench.commits.forget([T0])
    bench.commits.auto_commit_now(1_000, is_last_included=False)
    assert bench.sent.offsets[-1] == {T0: 10, T1: 20}


def test_an_error_of_a_commit_is_raised_after_earlier_callbacks() -> None:
    """C-02, C-07"""
    bench = Bench()
    calls: list[str] = []
    bench.commits.commit_async({T0: 1}, lambda *_: calls.append("callback"))
    bench.sent.error = CommitFailedError("no longer a member")
    with pytest.raises(CommitFailedError):
        bench.commits.commit(None, 1_000)
    assert calls == ["callback"]
    assert bench.reported == [{0: 1}]


def test_the_membership_for_a_producer() -> None:
    """T-11: what the coordinator knows, or that it knows nobody yet."""
    bench = Bench(group_instance_id="me")
    assert bench.runtime.group is not None
    assert bench.commits.group_metadata() == ConsumerGroupMetadata("g", 1, "m", None)
    bench.runtime.group.membership.identity = None
    assert bench.commits.group_metadata() == ConsumerGroupMetadata("g", -1, "", "me")


def test_a_lost_membership_stays_what_a_producer_commits_under() -> None:
    """T-11, A-03: a broker takes offsets without a member from anybody; the old name is refused."""
    bench = Bench()
    bench.runtime.subscriptions.unsubscribe()
    bench.runtime.subscriptions.subscribe(["t"])
    assert bench.runtime.group is not None
    bench.commits.assignment_changed()
    bench.runtime.group.membership.identity = None
    assert bench.commits.group_metadata() == ConsumerGroupMetadata("g", 1, "m", None)
    bench.runtime.subscriptions.unsubscribe()
    bench.runtime.subscriptions.assign_from_user([T0])
    assert bench.commits.group_metadata() == ConsumerGroupMetadata("g", -1, "", None)
