"""ConsumerReconciler: rebalance steps of a KIP-848 member.

Owns the one step outstanding at the `StepPort` and carries out what `Reconciliation` plans:
partitions are withheld from poll() before the step that takes them is posted, the names of topic
ids are requested from the metadata. Sends nothing. Network thread only; the steps themselves run on
the application thread, inside poll().

A step that has not begun is withdrawn when the plan changes; one that runs has to end first. After
a step whose listener raised, no step is posted before the application polls again: it has the
error then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._base.logs import get_logger
from kfast.consumer.group.kip848.reconciliation import Reconciliation
from kfast.consumer.group.membership import RebalanceKind, RebalanceStep

if TYPE_CHECKING:
    from kfast.client.cluster import Cluster
    from kfast.consumer.group.kip848.reconciliation import PlannedStep, TopicIdPartition
    from kfast.consumer.group.membership import StepPort
    from kfast.consumer.manager_context import ManagerContext

logger = get_logger(__name__)


class ConsumerReconciler:
    """The steps of one member, one after the other."""

    def __init__(self, context: ManagerContext, port: StepPort) -> None:
        config = context.config
        self._group_id = config.group_id
        self._timeout_ms = config.max_poll_interval_ms
        self._port = port
        self._subscriptions = context.subscriptions
        self._metadata = context.metadata
        self._reconciliation = Reconciliation()
        self._step: RebalanceStep | None = None
        self._plan: PlannedStep | None = None
        self._halted_at_poll_ms: int | None = None
        self._seen_cluster: Cluster | None = None

    # --- state ------------------------------------------------------------------------------------

    @property
    def is_halted(self) -> bool:
        """Whether a listener failed and the application has not polled since."""
        return self._halted_at_poll_ms is not None

    @property
    def owns_nothing(self) -> bool:
        """Whether no partition is assigned and no step outstanding."""
        return self._step is None and not self._reconciliation.owned

    @property
    def completed(self) -> frozenset[TopicIdPartition]:
        """Partitions owned at the end of the last reconciliation: those in heartbeats."""
        return self._reconciliation.completed

    @property
    def needs_acknowledgement(self) -> bool:
        """Whether a reconciliation has ended and is not acknowledged yet."""
        return self._reconciliation.needs_acknowledgement

    @property
    def is_settled(self) -> bool:
        """Whether the target is reached."""
        return self._step is None and not self.unresolved

    @property
    def unresolved(self) -> frozenset[bytes]:
        """Ids of the target's topics that have no name in the metadata."""
        return self._reconciliation.unresolved(self._metadata.cluster.topic_names)

    # --- towards the target -----------------------------------------------------------------------

    def take_target(self, target: frozenset[TopicIdPartition]) -> None:
        """Take a new target assignment; the next `advance` reconciles it."""
        self._reconciliation.target = target
        self._request_topics()
        self.withdraw()
        self._seen_cluster = None

    def advance(self, now_ms: int) -> bool:
        """Post the next step; return whether something had changed and no step is left."""
        if self._step is not None:
            return False
        cluster = self._metadata.cluster
        if self._halted_at_poll_ms is not None:
            if self._halted_at_poll_ms == self._port.last_poll_ms:
                return False
            self._halted_at_poll_ms = None
        elif cluster is self._seen_cluster:
            return False
        self._seen_cluster = cluster
        plan = self._reconciliation.next_step(cluster.topic_names)
        if plan is None:
            if self._reconciliation.needs_acknowledgement:
                self._reconciliation.complete()
            return True
        self._subscriptions.update_leaders(cluster)  # new partitions start with its topic ids
        self._post(plan, now_ms)
        return False

    def acknowledged(self) -> None:
        """Note that the owned partitions are sent to the coordinator."""
        self._reconciliation.acknowledged()
        self._seen_cluster = None

    def _post(self, plan: PlannedStep, now_ms: int) -> None:
        if plan.kind is not RebalanceKind.ASSIGN:
            self._subscriptions.mark_pending_callback(plan.partitions)
        self._plan = plan
        self._step = RebalanceStep(
            plan.kind, plan.partitions, plan.assignment, now_ms + self._timeout_ms
        )
        names = ", ".join(map(str, sorted(plan.partitions)))
        logger.info("Group %s: %s [%s]", self._group_id, plan.kind.value, names)
        self._port.post(self._step)

    def done(self, step: RebalanceStep, error: BaseException | None) -> RebalanceKind | None:
        """Note that the application ran a step; return its kind, None if it was withdrawn."""
        if step is not self._step or self._plan is None:
            return None
        plan, self._step, self._plan = self._plan, None, None
        self._reconciliation.ran(plan)
        self._seen_cluster = None
        if error is not None:
            logger.warning(
                "Group %s: a rebalance listener failed at %s: %r",
                self._group_id,
                plan.kind.value,
                error,
            )
            self._halted_at_poll_ms = self._port.last_poll_ms
        return plan.kind

    # --- withdrawing and losing -------------------------------------------------------------------

    def withdraw(self) -> bool:
        """Withdraw the outstanding step; False if the application has begun it."""
        if self._step is None or self._plan is None:
            return True
        if not self._port.withdraw():
            return False
        if self._plan.kind is not RebalanceKind.ASSIGN:
            self._subscriptions.clear_pending_callback(self._plan.partitions)
        self._step = self._plan = None
        return True

    def lose(self, now_ms: int) -> None:
        """Withhold all partitions at once and post LOSE; a step that runs has to end first.

        Call it again when that step is `done`.
        """
        self._halted_at_poll_ms = None
        is_free = self.withdraw()
        self._subscriptions.mark_pending_callback(self._subscriptions.assigned_partitions())
        if is_free and self._reconciliation.owned:
            self._post(self._reconciliation.loss(), now_ms)
        elif is_free:
            self.clear()

    def abandon(self) -> None:
        """Drop all steps: the application has revoked its partitions itself."""
        self.withdraw()
        self._step = self._plan = None
        self.clear()

    def clear(self) -> None:
        """Drop the owned partitions and the target."""
        self._halted_at_poll_ms = None
        self._reconciliation.clear()
        self._request_topics()

    def _request_topics(self) -> None:
        self._metadata.set_topic_ids(self._reconciliation.topic_ids)

    def __repr__(self) -> str:
        step = None if self._step is None else self._step.kind.name
        return f"<ConsumerReconciler outstanding={step} {self._reconciliation!r}>"
