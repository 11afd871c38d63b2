"""RebalanceRunner: the parts of a step and their order, whatever a listener does."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kfast import ConsumerRebalanceListener
from kfast.application.commits import Commit
from kfast.application.rebalance import RebalanceRunner
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.group.membership import RebalanceKind, RebalanceStep
from kfast.errors import KafkaError
from kfast.types import TopicPartition
from tests.unit.application.fake_runtime import FakeRuntime

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Bench(ConsumerRebalanceListener):
    """A runner whose surroundings note what happens, in order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.error: BaseException | None = None
        self.commit = Commit({}, is_done=True)
        self.ended_commits = 0
        self.until_ms = 99
        self.runtime = FakeRuntime()
        self.subscriptions = self.runtime.subscriptions
        self.subscriptions.subscribe(["t"], self)
        self.runner = RebalanceRunner(
            cast("Any", self.runtime), cast("Any", self), cast("Any", self)
        )

    def give(self, *partitions: TopicPartition) -> None:
        self.subscriptions.assign_from_group(partitions)
        for tp in partitions:
            self.subscriptions.seek(tp, FetchPosition(10))

    def post(self, kind: RebalanceKind, *partitions: TopicPartition, left: Any = ()) -> None:
        step = RebalanceStep(kind, frozenset(partitions), frozenset(left), self.until_ms)
        self.runtime.steps.post(step)

    def note(self, what: str) -> None:
        assigned = ",".join(map(str, sorted(self.subscriptions.assigned_partitions())))
        self.order.append(f"{what} with {assigned}")
        assert self.runtime.uninterrupted.depth == what.startswith("called")
        if self.error is not None and what.startswith("called"):
            raise self.error

    # the listener
    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.note(f"called revoked {len(revoked)}")

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        for tp in assigned:
            assert not self.subscriptions.is_fetchable(tp)
        self.note(f"called assigned {len(assigned)}")

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self.note(f"called lost {len(lost)}")

    # the commits and the metrics
    def begin_auto_commit(self, deadline_ms: int) -> Commit:
        self.note(f"commit until {deadline_ms}")
        return self.commit

    def run_callbacks(self) -> None:
        self.ended_commits += 1

    def assignment_changed(self) -> None: ...

    def forget(self, partitions: Any) -> None: ...

    def rebalanced(self) -> None: ...

    def unassigned(self, partitions: Any) -> None: ...

    @property
    def done(self) -> list[tuple[RebalanceKind, BaseException | None]]:
        assert self.runtime.group is not None
        return [(step.kind, error) for step, error in self.runtime.group.membership.done]


def test_revoking_commits_calls_the_listener_and_unassigns() -> None:
    """G-08, A-03: in this order; the listener still has what it is about to lose."""
    bench = Bench()
    bench.give(T0, T1)
    bench.post(RebalanceKind.REVOKE, T0, left=[T1])
    bench.runner.run_due()
    assert bench.order == ["commit until 99 with t-0,t-1", "called revoked 1 with t-0,t-1"]
    assert bench.subscriptions.assigned_partitions() == {T1}
    assert bench.done == [(RebalanceKind.REVOKE, None)]
    bench.runner.run_due()
    assert len(bench.done) == 1


def test_losing_commits_nothing() -> None:
    """A-03, G-12"""
    bench = Bench()
    bench.give(T0, T1)
    bench.post(RebalanceKind.LOSE, T0, T1)
    bench.runner.run_due()
    assert bench.order == ["called lost 2 with t-0,t-1"]
    assert bench.subscriptions.assigned_partitions() == set()


def test_assigning_holds_until_the_listener_was_called() -> None:
    """G-13, G-10: also of none; a seek in the listener comes before the first record."""
    bench = Bench()
    bench.give(T0)
    bench.post(RebalanceKind.ASSIGN, T1, left=[T0, T1])
    bench.runner.run_due()
    assert bench.order == ["called assigned 1 with t-0,t-1"]
    assert not bench.subscriptions.assigned(T1).is_pending_callback
    assert bench.subscriptions.is_fetchable(T0)
    bench.post(RebalanceKind.ASSIGN, left=[T0, T1])
    bench.runner.run_due()
    assert bench.order[-1] == "called assigned 0 with t-0,t-1"


def test_revoking_nothing_is_an_occasion_to_commit() -> None:
    """A-01, G-10: on_revoked only when something is revoked."""
    bench = Bench()
    bench.give(T0)
    bench.post(RebalanceKind.REVOKE, left=[T0])
    bench.runner.run_due()
    assert bench.order == ["commit until 99 with t-0"]
    assert bench.subscriptions.is_fetchable(T0)


@pytest.mark.parametrize("kind", RebalanceKind)
@pytest.mark.parametrize("error", [ValueError("mine"), KafkaError("theirs"), KeyboardInterrupt()])
def test_a_step_ends_whatever_its_listener_raises(
    kind: RebalanceKind, error: BaseException
) -> None:
    """G-13, G-11: assignment and membership are in order before anything is raised."""
    bench = Bench()
    bench.give(T0, T1)
    bench.error = error
    left = [T0, T1] if kind is RebalanceKind.ASSIGN else []
    bench.post(kind, T0, T1, left=left)
    with pytest.raises((KafkaError, KeyboardInterrupt)) as caught:
        bench.runner.run_due()
    assert caught.value is error or caught.value.__cause__ is error
    assert (caught.value is error) is not isinstance(error, ValueError)
    assert bench.done == [(kind, error)]
    assert bench.subscriptions.assigned_partitions() == set(left)
    assert not any(bench.subscriptions.assigned(tp).is_pending_callback for tp in left)
    assert bench.runtime.uninterrupted.depth == 0


def test_a_listener_that_polls_starts_no_other_step() -> None:
    """G-13: the step that follows is run when this one is over."""
    bench = Bench()
    bench.give(T0)
    second = RebalanceStep(RebalanceKind.LOSE, frozenset(), frozenset(), 0)
    assert bench.runtime.group is not None
    bench.runtime.group.membership.on_done = lambda step: (
        bench.runtime.steps.post(second) if step is not second else None
    )

    class Polling(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            bench.runner.run_due()
            assert bench.done == []

    bench.subscriptions.subscribe(["t"], Polling())
    bench.post(RebalanceKind.REVOKE, T0)
    bench.runner.run_due()
    assert [kind for kind, _ in bench.done] == [RebalanceKind.REVOKE, RebalanceKind.LOSE]


def test_a_step_whose_commit_is_awaited_goes_on_when_it_is_answered() -> None:
    """X-01, A-03: a poll does not wait for it; the listener is called behind it."""
    bench = Bench()
    bench.give(T0)
    bench.commit = Commit({})
    bench.until_ms = bench.runtime.clock.now_ms() + 99
    bench.post(RebalanceKind.REVOKE, T0)
    bench.runner.run_due()
    bench.runner.run_due()
    assert len(bench.order) == 1
    can_run = [bench.runner.can_run]
    bench.commit.is_done = True
    assert [*can_run, bench.runner.can_run] == [False, True]
    bench.runner.run_due()
    assert bench.order[1:] == ["called revoked 1 with t-0"]
    assert bench.ended_commits == 1
    assert [kind for kind, _ in bench.done] == [RebalanceKind.REVOKE]


def test_a_commit_that_is_never_answered_ends_with_the_rebalance() -> None:
    """X-01: at the deadline of the step."""
    bench = Bench()
    bench.give(T0)
    bench.commit = Commit({})
    bench.until_ms = bench.runtime.clock.now_ms() + 99
    bench.post(RebalanceKind.REVOKE, T0)
    bench.runner.run_due()
    bench.runtime.clock.advance(99)
    bench.runner.run_due()
    assert bench.subscriptions.assigned_partitions() == set()


@pytest.mark.parametrize("kind", RebalanceKind)
def test_a_listener_that_leaves_the_group_ends_the_step(kind: RebalanceKind) -> None:
    """X-02: nothing of it counts any more, and partitions are announced once."""
    bench = Bench()
    bench.give(T0, T1)
    calls: list[str] = []

    def leave() -> None:
        assert bench.runner.revoke_all(5) is None
        bench.runtime.steps.end()
        bench.subscriptions.unsubscribe()

    class Leaving(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            calls.append("assigned")
            leave()

        def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            calls.append(f"revoked {len(revoked)}")
            if kind is RebalanceKind.REVOKE:
                leave()

        def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
            calls.append("lost")
            leave()

    bench.subscriptions.subscribe(["t"], Leaving())
    bench.post(kind, T0, T1, left=[T0, T1] if kind is RebalanceKind.ASSIGN else [])
    bench.runner.run_due()
    assert bench.subscriptions.assigned_partitions() == set()
    assert (
        calls
        == {
            RebalanceKind.ASSIGN: ["assigned", "revoked 2"],
            RebalanceKind.REVOKE: ["revoked 2"],
            RebalanceKind.LOSE: ["lost"],
        }[kind]
    )


def test_revoking_all_is_losing_without_a_membership() -> None:
    """L-02: on_revoked or on_lost, before leaving; nothing for nothing."""
    bench = Bench()
    bench.give(T0)
    assert bench.runner.revoke_all(5) is None
    assert bench.order == ["called revoked 1 with t-0"]
    assert bench.runner.revoke_all(5) is None
    assert len(bench.order) == 1
    bench.give(T0)
    assert bench.runtime.group is not None
    bench.runtime.group.membership.identity = None
    bench.error = ValueError("mine")
    assert isinstance(bench.runner.revoke_all(5), KafkaError)
    assert bench.order[-1] == "called lost 1 with t-0"
    assert bench.subscriptions.assigned_partitions() == set()
