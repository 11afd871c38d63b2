"""LeaveGroup: leaves the group, on ``close`` and on ``unsubscribe``.

Owns the order (protocol section 24): delivery stops, auto-commit, callbacks of commits,
``on_partitions_revoked`` or ``on_partitions_lost``, LeaveGroup. Each step has what the ones before
it have left of the time, ``wakeup`` interrupts none, and none is left out because another one
failed; the LeaveGroup is sent even without time to wait for its response. What a signal handler has
interrupted is completed by the next call. Application thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._base.logs import get_logger
from kfast.consumer.group.membership import CloseOperation
from kfast.consumer.subscription import SubscriptionType
from kfast.errors import KafkaError
from kfast.threads.application_event import LONGEST_WAIT_MS

if TYPE_CHECKING:
    from kfast.application.commits import ConsumerCommits
    from kfast.application.iteration import RecordIteration
    from kfast.application.rebalance import RebalanceRunner
    from kfast.consumer.pending_result import PendingResult
    from kfast.threads.consumer_runtime import ConsumerRuntime

logger = get_logger(__name__)


class LeaveGroup:
    """Commits, revokes all partitions and leaves."""

    __slots__ = ("_commits", "_iteration", "_rebalance", "_runtime", "_unsubscribe_until_ms")

    def __init__(
        self,
        runtime: ConsumerRuntime,
        commits: ConsumerCommits,
        rebalance: RebalanceRunner,
        iteration: RecordIteration,
    ) -> None:
        self._runtime = runtime
        self._commits = commits
        self._rebalance = rebalance
        self._iteration = iteration
        self._unsubscribe_until_ms: int | None = None  # while `unsubscribe` is not complete

    def unsubscribe(self, deadline_ms: int) -> None:
        """Leave with the subscription; raise what a listener raised, once it is complete."""
        self._unsubscribe_until_ms = deadline_ms
        error = self._revoke_all(deadline_ms, is_closing=False)
        if self._is_member:
            self._send_leave_group(deadline_ms, is_closing=False)
        self._runtime.subscriptions.unsubscribe()
        self._iteration.clear()
        self._unsubscribe_until_ms = None
        self._runtime.changed()
        if error is not None:
            raise error

    def finish(self) -> None:
        """Complete an `unsubscribe` that was interrupted."""
        if self._unsubscribe_until_ms is not None:
            self.unsubscribe(self._unsubscribe_until_ms)

    def close(
        self,
        deadline_ms: int,
        *,
        is_committing: bool,
        is_last_included: bool,
        operation: CloseOperation,
    ) -> BaseException | None:
        """Leave because the consumer is closed; return what a listener raised.

        ``is_committing`` is whether auto-commit is done, if it is enabled, and
        ``is_last_included`` whether it counts what the last poll returned. ``operation`` decides
        whether the member leaves or remains in the group (KIP-1092).
        """
        if not self._is_member:
            return None
        error = self._revoke_all(
            deadline_ms,
            is_closing=True,
            is_committing=is_committing,
            is_last_included=is_last_included,
        )
        self._send_leave_group(deadline_ms, is_closing=True, operation=operation)
        return error

    @property
    def _is_member(self) -> bool:
        return self._runtime.group is not None and self._runtime.is_started

    def _revoke_all(
        self,
        deadline_ms: int,
        *,
        is_closing: bool,
        is_committing: bool = True,
        is_last_included: bool = True,
    ) -> BaseException | None:
        runtime = self._runtime
        group = runtime.group
        if group is None or not runtime.is_started:
            return None
        subscriptions = runtime.subscriptions
        by_hand = subscriptions.subscription_type is SubscriptionType.USER_ASSIGNED
        is_member = group.membership.identity is not None
        with runtime.uninterrupted:
            if not by_hand:
                subscriptions.mark_pending_callback(subscriptions.assigned_partitions())
            if is_committing and (by_hand or is_member):
                self._commits.auto_commit_now(deadline_ms, is_last_included=is_last_included)
            if is_closing:
                self._commits.finish_async(deadline_ms)
            return None if by_hand else self._rebalance.revoke_all(deadline_ms)

    def _send_leave_group(
        self, deadline_ms: int, *, is_closing: bool, operation: CloseOperation = "default"
    ) -> None:
        """Send a LeaveGroup; closing waits for the response, within its time."""
        group = self._runtime.group
        if group is None:
            return
        runtime, membership = self._runtime, group.membership

        def leave(now_ms: int) -> PendingResult[None] | None:
            response = membership.leave(now_ms, is_closing=is_closing, operation=operation)
            runtime.steps.end()
            return response if is_closing else None

        try:
            event = runtime.submit("leaving the group", leave)
            while not event.is_done:
                left_ms = deadline_ms - runtime.clock.now_ms()
                if left_ms <= 0:
                    logger.info("Leaving the group was not confirmed in time")
                    return
                event.wait(min(left_ms, LONGEST_WAIT_MS) / 1000)
            event.result()
        except KafkaError as failure:
            logger.info("Leaving the group was not confirmed: %s", failure.message)

    def __repr__(self) -> str:
        return f"<LeaveGroup {self._runtime!r}>"
