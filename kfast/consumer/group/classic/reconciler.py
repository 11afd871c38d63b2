"""ClassicReconciler: rebalance steps of the classic protocol.

Owns the order in which partitions are revoked, lost and assigned, and the one step outstanding at
the `StepPort`; sends nothing. Network thread only; the steps themselves run on the application
thread, inside poll().

| event | EAGER | COOPERATIVE (KIP-429) |
|---|---|---|
| `prepare`, before joining | REVOKE all | REVOKE those of topics no longer subscribed to |
| `apply`, a new assignment | ASSIGN all | REVOKE owned - assigned, then ASSIGN assigned - owned |
| `lose`, the membership is void | LOSE all | LOSE all |

Without partitions to revoke or lose there is no step, but ASSIGN always comes. With auto-commit a
rebalance that revokes nothing still has a REVOKE of no partitions, in order to commit. Partitions
are withheld from poll() before the step that revokes or loses them is posted; those that are kept
are released when the steps are done or abandoned (G-11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._base.logs import get_logger
from kfast.consumer.group.assignors.assignor import RebalanceProtocol
from kfast.consumer.group.membership import RebalanceKind, RebalanceStep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfast.config import ConsumerConfig
    from kfast.consumer.group.membership import StepPort
    from kfast.consumer.subscription_state import SubscriptionState
    from kfast.types import TopicPartition

logger = get_logger(__name__)


class ClassicReconciler:
    """The steps of one member, one after the other."""

    def __init__(
        self,
        config: ConsumerConfig,
        port: StepPort,
        subscriptions: SubscriptionState,
        protocol: RebalanceProtocol,
    ) -> None:
        self._timeout_ms = config.max_poll_interval_ms
        self._has_auto_commit = config.enable_auto_commit
        self._port = port
        self._subscriptions = subscriptions
        self._is_eager = protocol is RebalanceProtocol.EAGER
        self._outstanding: RebalanceStep | None = None
        self._is_preparing = False
        self._is_lost = False
        self._assigned: frozenset[TopicPartition] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no step is outstanding or to be posted."""
        return (
            self._outstanding is None
            and not self._is_preparing
            and not self._is_lost
            and self._assigned is None
        )

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions assigned at the moment."""
        return self._subscriptions.assigned_partitions()

    # --- events -----------------------------------------------------------------------------------

    def prepare(self, now_ms: int) -> None:
        """Begin a rebalance: revoke what has to be revoked before joining."""
        self._is_preparing = True
        self.poll(now_ms)

    def apply(self, assigned: Iterable[TopicPartition], now_ms: int) -> frozenset[TopicPartition]:
        """Take a new assignment; return what it revokes: then the member has to rejoin."""
        self._assigned = frozenset(assigned)
        revoked = self.owned - self._assigned
        self.poll(now_ms)
        return revoked

    def lose(self, now_ms: int) -> None:
        """Lose all partitions at once: the membership under which they were owned is void."""
        self._is_preparing = False
        self._assigned = None
        self._is_lost = True
        self._subscriptions.mark_pending_callback(self.owned)
        self._withdraw()
        self.poll(now_ms)

    def abandon(self) -> None:
        """Drop all steps: the application has revoked its partitions itself."""
        self._is_preparing = self._is_lost = False
        self._assigned = None
        self._withdraw()
        self._outstanding = None
        self._subscriptions.clear_pending_callback(self.owned)

    def done(self, step: RebalanceStep, now_ms: int) -> bool:
        """Note that the application ran a step; False for one that is not outstanding any more."""
        if step is not self._outstanding:
            return False
        self._outstanding = None
        if step.kind is RebalanceKind.ASSIGN:
            self._assigned = None
        elif step.kind is RebalanceKind.LOSE:
            self._is_lost = False
        elif self._assigned is None:
            self._is_preparing = False
        self.poll(now_ms)
        return True

    def _withdraw(self) -> None:
        if self._outstanding is not None and self._port.withdraw():
            self._outstanding = None

    # --- the next step ----------------------------------------------------------------------------

    def poll(self, now_ms: int) -> None:
        """Post the step that is due, if none is outstanding."""
        if self._outstanding is not None:
            return
        owned = self.owned
        if self._is_lost:
            if owned:
                self._post(RebalanceKind.LOSE, owned, frozenset(), now_ms)
            else:
                self._is_lost = False
        elif self._assigned is not None:
            revoked = owned - self._assigned
            if revoked:
                self._post(RebalanceKind.REVOKE, revoked, owned - revoked, now_ms)
            else:
                self._post(RebalanceKind.ASSIGN, self._assigned - owned, self._assigned, now_ms)
        elif self._is_preparing:
            revoked = self._revoked_before_join(owned)
            if revoked or (owned and self._has_auto_commit):
                self._post(RebalanceKind.REVOKE, revoked, owned - revoked, now_ms)
            else:
                self._is_preparing = False

    def _revoked_before_join(self, owned: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        if self._is_eager:
            return owned
        topics = self._subscriptions.subscription()
        return frozenset(tp for tp in owned if tp.topic not in topics)

    def _post(
        self,
        kind: RebalanceKind,
        partitions: frozenset[TopicPartition],
        assignment: frozenset[TopicPartition],
        now_ms: int,
    ) -> None:
        if kind is not RebalanceKind.ASSIGN:
            self._subscriptions.mark_pending_callback(partitions)
        step = RebalanceStep(kind, partitions, assignment, now_ms + self._timeout_ms)
        logger.debug("Posted to poll(): %s %s", kind.value, sorted(partitions))
        self._outstanding = step
        self._port.post(step)

    def __repr__(self) -> str:
        return (
            f"<ClassicReconciler outstanding={self._outstanding} preparing={self._is_preparing}"
            f" lost={self._is_lost} assigned={self._assigned is not None}>"
        )
