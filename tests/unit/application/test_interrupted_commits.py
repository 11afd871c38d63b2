"""Commits that an exception interrupts: a callback's, or one between two instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kfast.errors import CommitFailedError, KafkaTimeoutError, WakeupError
from kfast.types import OffsetAndMetadata, TopicPartition
from tests.unit.application.commit_bench import INTERVAL_MS, T0, T1, Bench
from tests.unit.threads.interruptions import run_interrupted

MOST_PLACES = 2_000


def leave() -> None:
    raise SystemExit


def interrupted(call: Callable[[], object], at: int) -> bool:
    """Make a call that is left at one of its instructions; return whether there was such a one."""
    try:
        run_interrupted(call, leave, at, raises=True)
    except SystemExit:
        return True
    return False


def test_an_exception_at_any_instruction_loses_no_later_callback_and_runs_none_twice() -> None:
    """R-04: at most the one that it came in front of has not run."""
    for at in range(1, MOST_PLACES):
        bench = Bench()
        calls: list[int] = []

        def callback(offsets: dict[TopicPartition, Any], _: object, calls: Any = calls) -> None:
            calls.append(offsets[T0].offset)

        for offset in (1, 2, 3):
            bench.commits.commit_async({T0: offset}, callback)
        bench.commits.completed.extend(list(bench.commits.completed))  # that came late, too
        was_left = interrupted(bench.commits.run_callbacks, at)
        bench.commits.run_callbacks()
        reported = [each[0] for each in bench.reported]
        for made in (calls, reported):
            assert made == sorted(set(made)), (at, made)
        assert len(calls) + len(reported) >= 6 - was_left, (at, calls, reported)
        assert not bench.commits.completed
        assert repr(bench.commits).endswith("outstanding=0>")
        if not was_left:
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ValueError])
def test_a_callback_that_raises_does_not_stop_auto_commit(kind: type[BaseException]) -> None:
    """R-04: nor the callbacks after it; what it raises comes out, unless it is a mere Exception."""
    bench = Bench()
    calls: list[int] = []

    def broken(*_: object) -> None:
        calls.append(1)
        raise kind

    bench.sent.answers_at_once = False
    bench.commits.commit_async({T0: 1}, broken)
    bench.commits.auto_commit_async()
    bench.commits.commit_async({T0: 2}, lambda *_: calls.append(2))
    bench.sent.answers_at_once = True
    for *_, result in bench.sent.made:
        result.complete({T0: OffsetAndMetadata(1)})
    raised = []
    for now_ms in (0, INTERVAL_MS, 2 * INTERVAL_MS):
        try:
            bench.commits.auto_commit_due(now_ms)
        except BaseException as error:
            raised.append(type(error))
    assert raised == ([] if kind is ValueError else [kind])
    assert calls == [1, 2]
    assert bench.sent.offsets[-1] == {T0: 10, T1: 20}
    assert len(bench.sent.made) == 5 + (kind is ValueError)


def test_an_exception_at_any_instruction_does_not_stop_auto_commit() -> None:
    """R-04: whether one is outstanding is known from its outcome, not from what has run."""
    for at in range(1, MOST_PLACES):
        bench = Bench()
        was_left = interrupted(lambda bench=bench: bench.commits.auto_commit_due(0), at)  # type: ignore[misc]
        sent = len(bench.sent.made)
        bench.commits.auto_commit_due(INTERVAL_MS)
        bench.commits.auto_commit_due(2 * INTERVAL_MS)
        assert len(bench.sent.made) == sent + 2, at
        assert bench.commits.due_ms == 3 * INTERVAL_MS
        if not was_left:
            return
    raise AssertionError("it never ends")


def test_outstanding_commits_count_when_an_exception_leaves() -> None:
    """R-03: also those whose callbacks have not run, and those whose outcome nobody waited for."""
    bench = Bench()
    bench.commits.commit_async({T0: 500}, None)  # stored, and the callback is to come
    bench.commits.auto_commit_now(1_000, is_last_included=False)
    assert bench.sent.offsets == [{T0: 500}, {T1: 20}]

    bench = Bench()
    bench.sent.answers_at_once = False
    bench.commits.commit_async({T0: 500}, None)
    bench.sent.answers_at_once = True
    bench.commits.auto_commit_now(1_000, is_last_included=False)
    assert bench.sent.offsets == [{T0: 500}, {T1: 20}]


@pytest.mark.parametrize("error", [KafkaTimeoutError("late"), WakeupError("woken")])
def test_a_commit_of_unknown_outcome_counts_when_an_exception_leaves(error: Exception) -> None:
    """R-03: it may be stored yet, and nothing may take it back."""
    bench = Bench()
    bench.sent.error = error
    with pytest.raises(type(error)):
        bench.commits.commit({T0: 500}, 1_000)
    bench.sent.error = None
    bench.commits.auto_commit_now(1_000, is_last_included=False)
    assert bench.sent.offsets == [{T0: 500}, {T1: 20}]


def test_the_stored_part_of_a_refused_commit_counts_when_an_exception_leaves() -> None:
    """R-03: some partitions of a commit may be stored although others are refused."""
    bench = Bench()
    bench.sent.error = CommitFailedError("no", committed={T0: OffsetAndMetadata(500)})
    with pytest.raises(CommitFailedError):
        bench.commits.commit({T0: 500, T1: 600}, 1_000)
    bench.sent.error = None
    bench.commits.auto_commit_now(1_000, is_last_included=False)
    assert bench.sent.offsets[-1] == {T1: 20}


def test_a_refused_commit_does_not_count_when_an_exception_leaves() -> None:
    """R-03, A-02"""
    bench = Bench()
    bench.sent.error = CommitFailedError("no")
    bench.commits.commit_async({T0: 500}, None)
    bench.sent.error = None
    bench.commits.auto_commit_now(1_000, is_last_included=False)
    assert bench.sent.offsets[-1] == {T0: 10, T1: 20}
