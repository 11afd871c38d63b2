"""LeaveGroup: leaves the group, on ``close`` and on ``unsubscribe``.

Owns the order (protocol section 24): delivery stops, auto-commit, callbacks of commits,
``on_partitions_revoked`` or ``on_partitions_lost``, LeaveGroup. Each step has what the ones before
it have left of the time, ``wakeup`` interrupts none, and none is left out because another one
failed. Application thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._logging import Logger
from kfast.consumer.group.membership import CloseOperation
from kfast.consumer.subscription import SubscriptionType
from kfast.errors import KafkaError

if TYPE_CHECKING:
    from kfast.application.commits import ConsumerCommits
    from kfast.application.rebalance import RebalanceRunner
    from kfast.threads.consumer_runtime import ConsumerRuntime

logger = Logger(__name__)


class LeaveGroup:
    """Commits, revokes all partitions and leaves."""

    __slots__ = ("_commits", "_rebalance", "_runtime")

    def __init__(
        self, runtime: ConsumerRuntime, commits: ConsumerCommits, rebalance: RebalanceRunner
    ) -> None:
        self._runtime = runtime
        self._commits = commits
        self._rebalance = rebalance

    def unsubscribe(self, deadline_ms: int) -> BaseException | None:
        """Leave with the subscription; return what a listener raised."""
        return self._leave(deadline_ms, is_closing=False, is_committing=True, is_last_included=True)

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
        return self._leave(
            deadline_ms,
            is_closing=True,
            is_committing=is_committing,
            is_last_included=is_last_included,
            operation=operation,
        )

    def _leave(
        self,
        deadline_ms: int,
        *,
        is_closing: bool,
        is_committing: bool,
        is_last_included: bool,
        operation: CloseOperation = "default",
    ) -> BaseException | None:
        runtime = self._runtime
        group = runtime.group
        if group is None or not runtime.is_started:
            return None
        subscriptions = runtime.subscriptions
        by_hand = subscriptions.subscription_type is SubscriptionType.USER_ASSIGNED
        is_member = group.membership.identity is not None
        error = None
        with runtime.uninterrupted():
            if not by_hand:
                subscriptions.mark_pending_callback(subscriptions.assigned_partitions())
            if is_committing and (by_hand or is_member):
                self._commits.auto_commit_now(deadline_ms, is_last_included=is_last_included)
            if is_closing:
                self._commits.finish_async(deadline_ms)
            if not by_hand:
                error = self._rebalance.revoke_all(deadline_ms)
            self._send_leave_group(deadline_ms, is_closing=is_closing, operation=operation)
        return error

    def _send_leave_group(
        self, deadline_ms: int, *, is_closing: bool, operation: CloseOperation
    ) -> None:
        group = self._runtime.group
        if group is None:
            return
        membership = group.membership

        def leave(now_ms: int) -> object:
            response = membership.leave(now_ms, is_closing=is_closing, operation=operation)
            return response if is_closing else None  # unsubscribe() does not wait

        try:
            left_ms = max(0, deadline_ms - self._runtime.clock.now_ms())
            self._runtime.call("leaving the group", leave, left_ms)
        except KafkaError as failure:
            logger.info("Leaving the group was not confirmed: %s", failure.message)

    def __repr__(self) -> str:
        return f"<LeaveGroup {self._runtime!r}>"
