"""RebalanceSteps: what a rebalance of the classic protocol asks of the application, step by step.

Owns the order in which partitions are revoked, lost and assigned, and the one step that is
outstanding at the `StepPort`. It knows nothing of brokers: `ClassicMembership` says what happened
to the membership, this says what that means for the partitions. Network thread only; the steps
themselves run on the application thread, inside poll().

| event | EAGER | COOPERATIVE (KIP-429) |
|---|---|---|
| `prepare`, before joining | REVOKE all | REVOKE those of topics no longer subscribed to |
| `apply`, a new assignment | ASSIGN all | REVOKE owned - assigned, then ASSIGN assigned - owned |
| `lose`, the membership is void | LOSE all | LOSE all |

Nothing owned, nothing to revoke or lose: there is no step, except ASSIGN, which always comes. With
auto-commit a rebalance that revokes nothing still has a REVOKE of no partitions, as the occasion to
commit. What a step is about to take away is held before it is posted; whatever is kept is free
again when the steps are done or abandoned (G-11).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kfast.consumer.group.assignors.assignor import RebalanceProtocol
from kfast.consumer.group.membership import RebalanceKind, RebalanceStep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfast.config import ConsumerConfig
    from kfast.consumer.group.membership import StepPort
    from kfast.consumer.subscription_state import SubscriptionState
    from kfast.types import TopicPartition

logger = logging.getLogger(__name__)


class RebalanceSteps:
    """The steps of one member, one after the other.

    Parameters
    ----------
    config : ConsumerConfig
        ``max_poll_interval_ms`` bounds the auto-commit of a REVOKE, ``enable_auto_commit`` makes
        sure of its occasion.
    port : StepPort
        Takes the steps to the application.
    subscriptions : SubscriptionState
        What is owned; told what to hold.
    protocol : RebalanceProtocol
        Which column of the module's table applies.
    """

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
        """Whether the application has done everything that was asked of it."""
        return (
            self._outstanding is None
            and not self._is_preparing
            and not self._is_lost
            and self._assigned is None
        )

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions the application has at the moment."""
        return self._subscriptions.assigned_partitions()

    # --- events -----------------------------------------------------------------------------------

    def prepare(self, now_ms: int) -> None:
        """Begin a rebalance: what has to be given up before joining is revoked."""
        self._is_preparing = True
        self.poll(now_ms)

    def apply(self, assigned: Iterable[TopicPartition], now_ms: int) -> frozenset[TopicPartition]:
        """Take a new assignment.

        Returns
        -------
        frozenset of TopicPartition
            What it takes away: then the group must be joined once more, to have it handed out.
        """
        self._assigned = frozenset(assigned)
        revoked = self.owned - self._assigned
        self.poll(now_ms)
        return revoked

    def lose(self, now_ms: int) -> None:
        """Give up everything at once: the membership under which it was owned is void."""
        self._is_preparing = False
        self._assigned = None
        self._is_lost = True
        self._subscriptions.mark_pending_callback(self.owned)
        self._withdraw()
        self.poll(now_ms)

    def abandon(self) -> None:
        """Forget all steps: the application has given everything up itself."""
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
            revoked = self._to_give_up(owned)
            if revoked or (owned and self._has_auto_commit):
                self._post(RebalanceKind.REVOKE, revoked, owned - revoked, now_ms)
            else:
                self._is_preparing = False

    def _to_give_up(self, owned: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
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
        logger.debug("To do in poll(): %s %s", kind.value, sorted(partitions))
        self._outstanding = step
        self._port.post(step)

    def __repr__(self) -> str:
        return (
            f"<RebalanceSteps outstanding={self._outstanding} preparing={self._is_preparing}"
            f" lost={self._is_lost} assigned={self._assigned is not None}>"
        )
