"""ApplicationSteps: one step at a time crosses from the network to the application thread."""

from __future__ import annotations

import threading

import pytest

from kfast.consumer.group.membership import RebalanceKind, RebalanceStep, StepPort
from kfast.errors import IllegalStateError
from kfast.threads.application_steps import ApplicationSteps


def step(kind: RebalanceKind = RebalanceKind.ASSIGN) -> RebalanceStep:
    return RebalanceStep(kind, frozenset(), frozenset(), 0)


def test_a_step_that_has_begun_is_due_until_it_has_ended() -> None:
    """G-13: the application runs it, and it is not withdrawn meanwhile."""
    told: list[str] = []
    steps = ApplicationSteps(5, lambda: told.append("told"))
    port: StepPort = steps
    assert port.last_poll_ms == 5
    first = step()
    port.post(first)
    assert (steps.due, told) == (first, ["told"])
    assert steps.begin() is first
    assert not port.withdraw()
    assert steps.begin() is first, "an interrupted application thread finds it again"
    steps.end(step())
    assert steps.due is first, "another one has ended"
    steps.end(first)
    assert steps.begin() is None
    assert not port.withdraw()


def test_a_withdrawn_step_is_gone() -> None:
    """K-04: a step that was not begun can be replaced by another one."""
    steps = ApplicationSteps(0, lambda: None)
    steps.post(step())
    assert steps.withdraw()
    assert steps.begin() is None
    second = step(RebalanceKind.LOSE)
    steps.post(second)
    assert steps.begin() is second
    steps.end()
    assert steps.due is None


def test_there_is_never_a_second_step() -> None:
    steps = ApplicationSteps(0, lambda: None)
    first = step()
    steps.post(first)
    with pytest.raises(IllegalStateError, match="waits"):
        steps.post(step(RebalanceKind.REVOKE))
    assert steps.due is first
    assert "ASSIGN" in repr(steps)


def test_either_it_is_withdrawn_or_it_is_run() -> None:
    """L-06: with both threads at it, exactly one of them gets the step."""
    steps = ApplicationSteps(0, lambda: None)
    rounds = 500
    start = threading.Barrier(2)
    withdrawn: list[bool] = []

    def network() -> None:
        for _ in range(rounds):
            steps.post(step())
            start.wait(10)
            withdrawn.append(steps.withdraw())
            start.wait(10)
            start.wait(10)

    thread = threading.Thread(target=network)
    thread.start()
    taken = []
    for _ in range(rounds):
        start.wait(10)
        taken.append(steps.begin() is not None)
        start.wait(10)
        steps.end()
        start.wait(10)
    thread.join(10)
    assert all(mine is not theirs for mine, theirs in zip(taken, withdrawn, strict=True))
