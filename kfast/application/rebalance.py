"""RebalanceRunner: runs the steps of a rebalance on the application thread.

Owns the listener and the order of a step's parts (see ``consumer.group.membership``): auto-commit,
listener, assignment. Called by ``poll``, ``unsubscribe`` and ``close`` only, so that the assignment
never changes while the application works on a batch. A step, once begun, always completes: what a
listener raises is kept until the assignment is in place and reported to the network thread.

``wakeup`` does not interrupt a listener or the commit before it; it is raised by the call after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._logging import Logger
from kfast.consumer.group.membership import RebalanceKind, RebalanceStep
from kfast.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kfast.application.commits import ConsumerCommits
    from kfast.application.metrics import ConsumerMetrics
    from kfast.application.rebalance_listener import RebalanceCallbacks
    from kfast.threads.consumer_runtime import ConsumerRuntime
    from kfast.types import TopicPartition

logger = Logger(__name__)


class RebalanceRunner:
    """Revokes, loses and assigns partitions as the group's protocol decided."""

    def __init__(
        self, runtime: ConsumerRuntime, commits: ConsumerCommits, metrics: ConsumerMetrics
    ) -> None:
        self._runtime = runtime
        self._subscriptions = runtime.subscriptions
        self._commits = commits
        self._metrics = metrics
        self.listener: RebalanceCallbacks | None = None
        """Of the current subscription."""
        self._is_running = False

    def run_due(self) -> None:
        """Run the posted step, if there is one; raise what its listener raised, once complete."""
        if self._is_running:  # a listener called poll()
            return
        while (step := self._runtime.steps.take()) is not None:
            error = self._run(step)
            self._report(step, error)
            if error is not None:
                raise self._failure(step.kind, error)

    def revoke_all(self, deadline_ms: int) -> BaseException | None:
        """Revoke all partitions before the group is left; return what the listener raised.

        Offsets are committed already. Without a membership the partitions are lost, not revoked.
        """
        waiting = self._runtime.steps.due  # the membership withdraws it when it is left
        group = self._runtime.group
        is_lost = group is None or group.membership.identity is None
        if waiting is not None and waiting.kind is RebalanceKind.LOSE:
            is_lost = True
        kind = RebalanceKind.LOSE if is_lost else RebalanceKind.REVOKE
        partitions = self._subscriptions.assigned_partitions()
        error = None
        if partitions:
            step = RebalanceStep(kind, partitions, frozenset(), deadline_ms)
            error = self._run(step, is_committing=False)
        return None if error is None else self._failure(kind, error, is_leaving=True)

    def _report(self, step: RebalanceStep, error: BaseException | None) -> None:
        group = self._runtime.group
        if group is not None:
            membership = group.membership
            self._runtime.submit(
                "a rebalance", lambda now_ms: membership.step_done(step, error, now_ms)
            )

    def _run(self, step: RebalanceStep, *, is_committing: bool = True) -> BaseException | None:
        logger.debug("%s %s", step.kind.value, sorted(step.partitions))
        self._is_running = True
        try:
            with self._runtime.uninterrupted():
                if step.kind is RebalanceKind.ASSIGN:
                    return self._on_partitions_assigned(step)
                if step.kind is RebalanceKind.REVOKE:
                    return self._on_partitions_revoked(step, is_committing=is_committing)
                return self._on_partitions_lost(step)
        finally:
            self._is_running = False

    def _on_partitions_assigned(self, step: RebalanceStep) -> BaseException | None:
        self._subscriptions.assign_from_group(
            sorted(step.assignment), pending_callback=step.partitions
        )
        self._runtime.changed()  # positions are looked up while the listener runs
        self._commits.assignment_changed()
        logger.info("Assigned %d partitions (%d added)", len(step.assignment), len(step.partitions))
        error = self._call_listener("on_partitions_assigned", step.partitions)
        self._subscriptions.clear_pending_callback(step.partitions)
        self._runtime.changed()
        return error

    def _on_partitions_revoked(
        self, step: RebalanceStep, *, is_committing: bool
    ) -> BaseException | None:
        error = raised = None
        if is_committing:
            error = _attempt(self._commits.auto_commit_now, step.deadline_ms)
        if step.partitions:
            raised = self._call_listener("on_partitions_revoked", step.partitions)
        self._unassign(step)
        return error or raised

    def _on_partitions_lost(self, step: RebalanceStep) -> BaseException | None:
        logger.warning("Lost %d partitions: %s", len(step.partitions), _names(step.partitions))
        name = "on_partitions_lost"
        if not hasattr(self.listener, name):
            name = "on_partitions_revoked"
        raised = self._call_listener(name, step.partitions) if step.partitions else None
        self._unassign(step)
        return raised

    def _unassign(self, step: RebalanceStep) -> None:
        self._subscriptions.assign_from_group(sorted(step.assignment))
        self._commits.forget(step.partitions)
        self._metrics.unassigned(step.partitions)
        self._runtime.changed()

    def _call_listener(
        self, name: str, partitions: Collection[TopicPartition]
    ) -> BaseException | None:
        if self.listener is None:
            return None
        return _attempt(getattr(self.listener, name), sorted(partitions))

    def _failure(
        self, kind: RebalanceKind, error: BaseException, *, is_leaving: bool = False
    ) -> BaseException:
        """Return what to raise: Kafka's errors and interruptions as they are."""
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


def _attempt(call: Callable[..., object], *args: object) -> BaseException | None:
    try:
        call(*args)
    except BaseException as error:  # an interruption must not leave a step half done
        return error
    return None


def _names(partitions: Collection[TopicPartition]) -> str:
    shown = ", ".join(map(str, sorted(partitions)[:10]))
    return shown if len(partitions) <= 10 else f"{shown}, ..."
