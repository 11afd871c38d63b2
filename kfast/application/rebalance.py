"""RebalanceRunner: runs the steps of a rebalance on the application thread.

Owns the listener and the order of a step's parts (see ``consumer.group.membership``): auto-commit,
listener, assignment. Called by ``poll``, ``unsubscribe`` and ``close`` only, so that the assignment
never changes while the application works on a batch. A step, once begun, always completes: what a
listener raises is kept until the assignment is in place and reported to the network thread.

Any of it may be interrupted by what a signal handler raises, and goes on in the next call: a step
is outstanding until the network thread has received that it was run, the listener is called once
(`OneTimeCall`), and everything else has the same effect when it is done again. A poll does not wait
for the commit before a revocation longer than its own time; the step goes on when it is answered.

``wakeup`` does not interrupt a listener; it is raised by the call after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kfast._base.logs import get_logger
from kfast._runtime.one_time_call import OneTimeCall
from kfast.consumer.group.membership import RebalanceKind, RebalanceStep
from kfast.errors import KafkaError
from kfast.threads.application_event import LONGEST_WAIT_MS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kfast.application.commits import Commit, ConsumerCommits
    from kfast.application.metrics import ConsumerMetrics
    from kfast.application.rebalance_listener import RebalanceCallbacks
    from kfast.threads.application_event import ApplicationEvent
    from kfast.threads.consumer_runtime import ConsumerRuntime
    from kfast.types import TopicPartition

logger = get_logger(__name__)


_CALLBACKS: Final = {
    RebalanceKind.ASSIGN: ("on_partitions_assigned",),
    RebalanceKind.REVOKE: ("on_partitions_revoked",),
    RebalanceKind.LOSE: ("on_partitions_lost", "on_partitions_revoked"),
}


class _StepRun:
    """How far a step has come."""

    __slots__ = ("commit", "is_committed", "listener", "report", "step")

    def __init__(self, step: RebalanceStep) -> None:
        self.step = step
        self.commit: Commit | None = None
        self.is_committed = False
        self.listener = OneTimeCall()
        self.report: ApplicationEvent[object] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the commit before a revocation is awaited."""
        return self.commit is not None and not self.is_committed and not self.commit.is_done


class RebalanceRunner:
    """Revokes, loses and assigns partitions as the group's protocol decided."""

    def __init__(
        self, runtime: ConsumerRuntime, commits: ConsumerCommits, metrics: ConsumerMetrics
    ) -> None:
        self._runtime = runtime
        self._subscriptions = runtime.subscriptions
        self._commits = commits
        self._metrics = metrics
        self._run: _StepRun | None = None  # of the step that was begun last
        self._leaving: _StepRun | None = None  # while the group is being left

    @property
    def listener(self) -> RebalanceCallbacks | None:
        """That of the current subscription."""
        return cast("RebalanceCallbacks | None", self._subscriptions.listener)

    @property
    def can_run(self) -> bool:
        """Whether there is a step to run, and not one whose commit is awaited."""
        run = self._run
        return self._runtime.steps.due is not None and (run is None or not run.is_waiting)

    def run_due(self) -> None:
        """Run the posted step, if there is one; raise what its listener raised, once complete.

        Returns while a commit is awaited: the application calls it again.
        """
        while (run := self._next_run()) is not None:
            if run.listener.is_running:  # it has called poll()
                return
            if not self._run_step(run):
                return
            self._report(run)
            error = run.listener.error
            if error is not None:
                raise self._failure(run.step.kind, error)

    def _next_run(self) -> _StepRun | None:
        step = self._runtime.steps.begin()
        run = self._run
        if step is None:
            return None
        if run is None or run.step is not step:
            run = self._run = _StepRun(step)
        return run

    def revoke_all(self, deadline_ms: int) -> BaseException | None:
        """Revoke all partitions before the group is left; return what the listener raised.

        Offsets are committed already. Without a membership the partitions are lost, not revoked.
        Partitions of a step that has begun are not announced again. After an exception of a signal
        handler it can be called again.
        """
        run = self._leaving
        if run is None:
            run = self._leaving = _StepRun(self._leaving_step(deadline_ms))
        if run.listener.is_running:  # it has left the group itself
            return None
        if run.step.partitions:
            self._call_listener(run, _CALLBACKS[run.step.kind])
        self._unassign(run.step)
        self._leaving = None
        error = run.listener.error
        return None if error is None else self._failure(run.step.kind, error, is_leaving=True)

    def _leaving_step(self, deadline_ms: int) -> RebalanceStep:
        waiting = self._runtime.steps.due  # it ends when the group is left
        group = self._runtime.group
        is_lost = group is None or group.membership.identity is None
        partitions = self._subscriptions.assigned_partitions()
        if waiting is not None:
            is_lost |= waiting.kind is RebalanceKind.LOSE
            run = self._run
            is_announced = run is not None and run.step is waiting and run.listener.is_begun
            if is_announced is not (waiting.kind is RebalanceKind.ASSIGN):
                partitions -= waiting.partitions
        kind = RebalanceKind.LOSE if is_lost else RebalanceKind.REVOKE
        return RebalanceStep(kind, partitions, frozenset(), deadline_ms)

    # --- one step ---------------------------------------------------------------------------------

    def _run_step(self, run: _StepRun) -> bool:
        """Run a step, or go on with it; False while its commit is awaited."""
        step = run.step
        logger.debug("%s %s", step.kind.value, sorted(step.partitions))
        if step.kind is RebalanceKind.ASSIGN:
            self._assign(run)
            return True
        if step.kind is RebalanceKind.REVOKE:
            if not self._has_committed(run):
                return False
        elif not run.listener.is_begun:
            names = _names(step.partitions)
            logger.warning("Lost %d partitions: %s", len(step.partitions), names)
        if step.partitions:
            self._call_listener(run, _CALLBACKS[step.kind])
        if not self._is_void(step):
            self._unassign(step)
        return True

    def _assign(self, run: _StepRun) -> None:
        step = run.step
        if not run.listener.is_begun:
            self._subscriptions.assign_from_group(
                sorted(step.assignment), pending_callback=step.partitions
            )
            self._runtime.changed()  # positions are looked up while the listener runs
            self._commits.assignment_changed()
            logger.info(
                "Assigned %d partitions (%d added)", len(step.assignment), len(step.partitions)
            )
        self._call_listener(run, _CALLBACKS[step.kind])
        if not self._is_void(step):
            self._subscriptions.clear_pending_callback(step.partitions)
            self._runtime.changed()

    def _has_committed(self, run: _StepRun) -> bool:
        """Auto-commit before a revocation; False while the commit is awaited."""
        if run.listener.is_begun or run.is_committed:
            return True
        deadline_ms = run.step.deadline_ms
        if run.commit is None:
            run.commit = self._commits.begin_auto_commit(deadline_ms)
        if run.is_waiting and self._runtime.clock.now_ms() < deadline_ms:
            return False
        self._commits.run_callbacks()
        run.is_committed = True
        return True

    def _is_void(self, step: RebalanceStep) -> bool:
        """Return whether the listener has left the group: nothing of the step counts."""
        return self._runtime.steps.due is not step

    def _report(self, run: _StepRun) -> None:
        """Report that a step was run, and wait for what the membership makes of it.

        Partitions that were lost while the listener ran must not be read on.
        """
        group = self._runtime.group
        if group is None:
            return
        step, error = run.step, run.listener.error
        steps, membership = self._runtime.steps, group.membership

        def step_done(now_ms: int) -> None:
            steps.end(step)
            membership.step_done(step, error, now_ms)

        if run.report is None:
            run.report = self._runtime.submit("a rebalance", step_done)
        while not run.report.is_done:
            run.report.wait(LONGEST_WAIT_MS / 1000)

    def _unassign(self, step: RebalanceStep) -> None:
        self._subscriptions.assign_from_group(sorted(step.assignment))
        self._commits.forget(step.partitions)
        self._metrics.unassigned(step.partitions)
        self._runtime.changed()

    def _call_listener(self, run: _StepRun, names: Sequence[str]) -> None:
        """Call the first of these methods that the listener has, once for a step."""
        listener = self.listener
        if listener is None:
            return
        method = next(filter(None, (getattr(listener, name, None) for name in names)))
        with self._runtime.uninterrupted:
            run.listener.run(method, sorted(run.step.partitions))

    def _failure(
        self, kind: RebalanceKind, error: BaseException, *, is_leaving: bool = False
    ) -> BaseException:
        """Return the error to raise: Kafka's errors and interruptions as they are."""
        if isinstance(error, KafkaError) or not isinstance(error, Exception):
            return error
        then, hint = _THEN[is_leaving]
        failure = KafkaError(
            f"the rebalance listener failed: {type(error).__name__}: {error}",
            cause=f"{type(self.listener).__name__} raised it while partitions were "
            f"{_PAST[kind]}; {then}",
            hint=hint,
        )
        failure.__cause__ = error
        return failure

    def __repr__(self) -> str:
        return f"<RebalanceRunner listener={type(self.listener).__name__}>"


_THEN = {
    False: ("the rebalance is complete nevertheless", "poll() again to continue"),
    True: ("the group was left nevertheless", "correct the listener; nothing else is needed"),
}

_PAST = {
    RebalanceKind.REVOKE: "revoked",
    RebalanceKind.LOSE: "lost",
    RebalanceKind.ASSIGN: "assigned",
}


def _names(partitions: Collection[TopicPartition]) -> str:
    shown = ", ".join(map(str, sorted(partitions)[:10]))
    return shown if len(partitions) <= 10 else f"{shown}, ..."
