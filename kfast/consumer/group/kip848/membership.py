"""ConsumerMembership: KIP-848 group protocol state machine (``group_protocol="consumer"``).

Owns the member's state. `ConsumerHeartbeats` has the requests, `ConsumerReconciler` the rebalance
steps, ``errors`` the table of actions, `PollTimer` the poll interval. Sans-IO, network thread; the
assignment changes only by steps, which the application runs inside poll().

| state | sends | exits |
|---|---|---|
| UNSUBSCRIBED | nothing | subscribed, poll() called → JOINING |
| JOINING | at once: epoch 0, all fields | response → RECONCILING with an assignment, else STABLE |
| RECONCILING | at the interval | all steps done → ACKNOWLEDGING |
| ACKNOWLEDGING | at once: owned partitions | sent → STABLE, or RECONCILING while a target waits |
| STABLE | at the interval | new target → RECONCILING |
| PREPARE_LEAVING | at the interval | the application revokes its partitions; `leave` → LEAVING |
| LEAVING | once: epoch -1 (static, temporary: -2) | however it ends → UNSUBSCRIBED, or STALE |
| FENCED | nothing; LOSE | lost → JOINING, under the same member id |
| STALE | nothing; LOSE | poll() is called again → JOINING |
| FATAL | nothing; LOSE | none |

Besides: `leave` → LEAVING; no poll() within ``max_poll_interval_ms`` → LEAVING, then STALE; error
25 or 110 → FENCED; an error that is fatal → FATAL. These end a reconciliation in any state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger
from kfast.client.request_manager import NEVER_MS, PollResult
from kfast.consumer.error_actions import ErrorAction
from kfast.consumer.group.group_intent import GroupIntent
from kfast.consumer.group.kip848.errors import (
    ACTIONS,
    LEAVING_ACTIONS,
    heartbeat_error,
)
from kfast.consumer.group.kip848.heartbeat import ConsumerHeartbeats
from kfast.consumer.group.kip848.heartbeat_request import MemberFields
from kfast.consumer.group.kip848.reconciler import ConsumerReconciler
from kfast.consumer.group.member_state import (
    AT_ONCE,
    POLL_REQUIRED,
    REJOINING,
    MemberState,
)
from kfast.consumer.group.membership import MemberIdentity, RebalanceKind
from kfast.consumer.group.poll_timer import CHECK_POLL_MS, PollTimer
from kfast.consumer.group.rebalance_metrics import RebalanceMetrics
from kfast.consumer.pending_result import PendingResult
from kfast.consumer.retried_errors import Stage
from kfast.consumer.subscription import SubscriptionType
from kfast.errors import (
    ErrorCode,
    IllegalStateError,
    KafkaError,
    UnsupportedVersionError,
    error_info,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from kfast.client.request import UnsentRequest
    from kfast.consumer.group.coordinator_finder import CoordinatorFinder
    from kfast.consumer.group.kip848.reconciliation import TopicIdPartition
    from kfast.consumer.group.membership import CloseOperation, RebalanceStep, StepPort
    from kfast.consumer.manager_context import ManagerContext
    from kfast.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

logger = get_logger(__name__)

_AGAIN: Final = frozenset({ErrorAction.RETRY, ErrorAction.FIND_COORDINATOR})

ERROR_KEY: Final = "group"
"""Key of a member's errors in the fetch buffer."""

_SHOWN_IDS: Final = 3


class ConsumerMembership:
    """A member of a KIP-848 group. Implements ``GroupMembership``.

    Any thread may read ``identity``, whose generation is the member epoch, ``state`` and
    ``rebalances``.
    """

    def __init__(self, context: ManagerContext, finder: CoordinatorFinder, port: StepPort) -> None:
        config = context.config
        if config.group_id is None:
            raise IllegalStateError("without group_id there is no group to be a member of")
        self._config = config
        self._group_id = config.group_id
        self._intent = GroupIntent(context.subscriptions)
        self._subscriptions = context.subscriptions
        self._metadata = context.metadata
        self._subscription_version = -1
        self._subscribed_ms = 0
        self._errors = context.errors
        self._retries = finder.retries
        self._poll_timer = PollTimer(config, port)
        self._reconciler = ConsumerReconciler(context, port)
        self.heartbeats = ConsumerHeartbeats(context, finder, self)
        self.identity: MemberIdentity | None = None
        self.state = MemberState.UNSUBSCRIBED
        self.rebalances = RebalanceMetrics(config)
        self._pending_leave: PendingResult[None] | None = None
        self._state_after_leave = MemberState.UNSUBSCRIBED
        self._error: KafkaError | None = None
        self._reported_error: KafkaError | None = None
        finder.add_error_listener(self._coordinator_failed)

    # --- state ------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """The value of the `MemberState`. Any thread."""
        return self.state.value

    @property
    def is_rebalancing(self) -> bool:
        """False: under KIP-848 a member may commit at any time, under its epoch."""
        return False

    # --- poll -------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> PollResult:
        """Return the heartbeat that is due, and the time of the next poll."""
        self._poll_timer.update()
        self._follow_subscription(now_ms)
        self._check_poll_timer(now_ms)
        self._reconcile(now_ms)
        request, wait_ms = self._due(now_ms)
        requests = () if request is None else (request,)
        return PollResult(requests, min(wait_ms, self._ms_to_next_poll(now_ms)))

    def _due(self, now_ms: int) -> tuple[UnsentRequest | None, int]:
        state = self.state
        if state is MemberState.LEAVING:
            return self.heartbeats.leave_due(now_ms)
        fields = None
        if state in POLL_REQUIRED:
            fields = self._fields()
        elif state is not MemberState.PREPARE_LEAVING or self.identity is None:
            return None, NEVER_MS
        if state is MemberState.JOINING and not self._are_topics_known:
            return None, NEVER_MS  # the Metadata response ends the network thread's wait
        is_urgent = state in AT_ONCE or (fields is not None and self.heartbeats.has_changes(fields))
        try:
            due = self.heartbeats.due(
                fields,
                now_ms,
                is_urgent=is_urgent,
                acknowledges=state is MemberState.ACKNOWLEDGING,
            )
        except UnsupportedVersionError as error:
            self._fail(error, now_ms)
            return None, NEVER_MS
        if due[0] is not None and state is MemberState.ACKNOWLEDGING:
            self._reconciler.acknowledged()
            self._begin_reconciling(now_ms)
        return due

    def _ms_to_next_poll(self, now_ms: int) -> int:
        if self.state in POLL_REQUIRED:
            remaining_ms = max(1, self._poll_timer.remaining_ms(now_ms))
            return CHECK_POLL_MS if self._reconciler.is_halted else remaining_ms
        is_waiting = self.state in REJOINING and self._intent.is_wanted
        return CHECK_POLL_MS if is_waiting and self._reconciler.owns_nothing else NEVER_MS

    # --- the subscription -------------------------------------------------------------------------

    def _follow_subscription(self, now_ms: int) -> None:
        version = self._subscriptions.subscription_version
        if version != self._subscription_version:
            self._subscription_version = version
            self._subscribed_ms = now_ms
        if not self._intent.is_wanted:
            if self.state in POLL_REQUIRED and self._reconciler.withdraw():
                self.state = MemberState.PREPARE_LEAVING
        elif self.state is MemberState.PREPARE_LEAVING:
            self._leave_group(now_ms, "default")  # unsubscribed, and subscribed again since
        elif self.state is MemberState.FATAL and self._error is not None:
            self._report(self._error)
        elif self.state in REJOINING and self._reconciler.owns_nothing:
            self._rejoin(now_ms)

    @property
    def _are_topics_known(self) -> bool:
        """Whether a Python pattern has been matched against the topics the cluster has now."""
        if self._subscriptions.subscription_type is not SubscriptionType.AUTO_PATTERN:
            return True
        refreshed_ms = self._metadata.last_success_ms
        return not self._metadata.is_update_needed or (
            refreshed_ms is not None and refreshed_ms >= self._subscribed_ms
        )

    @property
    def _topic_regex(self) -> str | None:
        """The pattern that the brokers match, if that is what is subscribed to."""
        pattern = self._subscriptions.broker_pattern
        return None if pattern is None else pattern.pattern

    def _fields(self) -> MemberFields:
        # Topics that a Python pattern matches here are sent by name.
        return MemberFields(
            self._subscriptions.subscription(), self._topic_regex, self._reconciler.completed
        )

    def _rejoin(self, now_ms: int) -> None:
        if self._poll_timer.is_expired(now_ms):
            return
        self._reconciler.clear()
        self.heartbeats.start()
        self.state = MemberState.JOINING
        logger.info("Joining group %s as member %s", self._group_id, self.heartbeats.member_id)

    # --- poll interval ----------------------------------------------------------------------------

    def _check_poll_timer(self, now_ms: int) -> None:
        if self.state not in POLL_REQUIRED or not self._poll_timer.is_expired(now_ms):
            return
        self._poll_timer.left()
        self._begin_leaving("default", MemberState.STALE)
        self._lose(now_ms)

    # --- steps ------------------------------------------------------------------------------------

    def _begin_reconciling(self, now_ms: int) -> None:
        self.state = MemberState.RECONCILING
        self.rebalances.begins(now_ms)
        self._reconcile(now_ms)

    def _reconcile(self, now_ms: int) -> None:
        if self.state is not MemberState.RECONCILING or not self._reconciler.advance(now_ms):
            return
        unresolved = self._reconciler.unresolved
        if unresolved:
            self._retries.failed(Stage.ASSIGNMENT, _without_names(unresolved), now_ms)
        else:
            self._retries.succeeded(Stage.ASSIGNMENT, now_ms)
        if self._reconciler.needs_acknowledgement:
            self.rebalances.ends(now_ms)
            self.state = MemberState.ACKNOWLEDGING
        elif self._reconciler.is_settled:
            self.rebalances.cancels()  # the target is owned already
            self.state = MemberState.STABLE

    def step_done(self, step: RebalanceStep, error: BaseException | None, now_ms: int) -> None:
        """Note that the application ran a step; ``error`` is what its listener raised."""
        kind = self._reconciler.done(step, error)
        if kind is RebalanceKind.LOSE:
            self._reconciler.clear()
        elif kind is not None and self.state not in POLL_REQUIRED:
            self._lose(now_ms)  # it ran while the member was fenced
        self._reconcile(now_ms)

    def _lose(self, now_ms: int) -> None:
        self.identity = None
        self._reconciler.lose(now_ms)

    # --- outcomes of heartbeats -------------------------------------------------------------------

    def accepted(self, target: frozenset[TopicIdPartition] | None, now_ms: int) -> None:
        """Handle a response without error; ``target`` is None if the assignment is unchanged."""
        heartbeats = self.heartbeats
        identity = MemberIdentity(
            self._group_id,
            heartbeats.epoch,
            heartbeats.member_id,
            self._config.group_instance_id,
        )
        if identity != self.identity:
            self.identity = identity
        self._clear_error()
        for stage in (Stage.MEMBERSHIP, Stage.HEARTBEAT):
            self._retries.succeeded(stage, now_ms)
        if self.state is MemberState.PREPARE_LEAVING:
            return
        if target is not None:
            self._reconciler.take_target(target)
            self._begin_reconciling(now_ms)
            return
        if self.state is MemberState.JOINING:
            self.state = MemberState.STABLE
        self._reconcile(now_ms)

    def unanswered(self, error: KafkaError, begun_ms: int, now_ms: int) -> None:
        """Handle a failure; the heartbeat is sent again after a back-off."""
        if isinstance(error, UnsupportedVersionError):
            self._fail(error, now_ms)
        elif error.retriable:
            self._retries.failed(self._stage, error, now_ms, begun_ms=begun_ms)
        else:
            self._report(error)

    def refused(self, answer: ConsumerGroupHeartbeatResponse, node_id: int, now_ms: int) -> None:
        """Handle a response with an error code."""
        code = answer.error_code
        info = error_info(code)
        logger.debug("Group %s: broker %d answered %s", self._group_id, node_id, info.name)
        is_leaving = self.state is MemberState.PREPARE_LEAVING
        action = (LEAVING_ACTIONS if is_leaving else ACTIONS).of(code)
        error = heartbeat_error(
            code,
            answer.error_message,
            self._config,
            pattern=self._topic_regex,
            node=node_id,
        )
        is_joining = self.state is MemberState.JOINING
        if action in _AGAIN or (action is ErrorAction.FENCE_MEMBER and is_joining):
            self._retries.failed(self._stage, error, now_ms)
        if action is ErrorAction.FIND_COORDINATOR:
            self.heartbeats.find_coordinator(node_id, info.name, now_ms)
            return
        if action is ErrorAction.FENCE_MEMBER:
            self._fenced(info.name, now_ms)
            return
        if action is ErrorAction.IGNORE:
            self._end_membership()
            return
        self.heartbeats.timer.failed(now_ms)
        if action is ErrorAction.RETRY:
            return
        if action is ErrorAction.REPORT:
            self._report(error)
        else:
            self._fail(error, now_ms)

    def _fenced(self, name: str, now_ms: int) -> None:
        if self.state is MemberState.PREPARE_LEAVING:
            self._end_membership()
            return
        if self.state is MemberState.JOINING:
            self.heartbeats.timer.failed(now_ms)  # or it would join in a loop without a back-off
        logger.warning(
            "Group %s has fenced member %s, epoch %d (%s): its partitions are lost, it joins again",
            self._group_id,
            self.heartbeats.member_id,
            self.heartbeats.epoch,
            name,
        )
        self._end_membership()
        self._cancel_rebalance(now_ms)
        self.state = MemberState.FENCED
        self._lose(now_ms)

    def _cancel_rebalance(self, now_ms: int) -> None:
        """Count a rebalance that ended before the target was reached."""
        if self.rebalances.is_under_way:
            self.rebalances.fails(now_ms)
            self.rebalances.cancels()

    def _end_membership(self) -> None:
        self.identity = None
        self.heartbeats.lost()

    # --- errors -----------------------------------------------------------------------------------

    @property
    def _stage(self) -> Stage:
        return Stage.MEMBERSHIP if self.identity is None else Stage.HEARTBEAT

    def _end_retries(self) -> None:
        for stage in (Stage.MEMBERSHIP, Stage.HEARTBEAT, Stage.ASSIGNMENT):
            self._retries.ended(stage)

    def _fail(self, error: KafkaError, now_ms: int) -> None:
        self._error = error
        self._end_retries()
        self._end_membership()
        self._cancel_rebalance(now_ms)
        self.state = MemberState.FATAL
        self._report(error)
        self._lose(now_ms)

    def _report(self, error: KafkaError) -> None:
        """Raise an error at every poll, until a heartbeat is accepted or the member leaves."""
        if error is not self._reported_error:
            self._reported_error = error
            self._errors.put(error, key=ERROR_KEY, is_sticky=True)

    def _clear_error(self) -> None:
        if self._reported_error is not None:
            self._reported_error = None
            self._errors.clear(ERROR_KEY)

    def _coordinator_failed(self, error: KafkaError, now_ms: int) -> None:  # noqa: ARG002
        if self._intent.is_wanted and self.state is not MemberState.FATAL:
            self._report(error)

    def commit_failed(self, error_code: int, identity: MemberIdentity, now_ms: int) -> None:
        """Handle the error code of a commit or an offset fetch under an identity."""
        if identity != self.identity or self.state not in POLL_REQUIRED:
            return
        if error_code == ErrorCode.FENCED_INSTANCE_ID:
            self._fail(heartbeat_error(error_code, None, self._config), now_ms)
        elif error_code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.STALE_MEMBER_EPOCH,
        ):
            self.heartbeats.timer.send_soon(now_ms)  # its response has the new epoch, or fences

    def request_rejoin(self, reason: str) -> None:
        """Log that this has no effect: the broker decides when to rebalance."""
        logger.warning(
            'A rebalance of group %s was requested (%s): no effect with group_protocol="consumer",'
            " the broker decides",
            self._group_id,
            reason,
        )

    # --- leaving ----------------------------------------------------------------------------------

    def leave(
        self, now_ms: int, *, is_closing: bool, operation: CloseOperation = "default"
    ) -> PendingResult[None]:
        """Leave the group after the application has revoked its partitions."""
        self._intent.left(is_closing=is_closing)
        return self._leave_group(now_ms, operation)

    def _leave_group(self, now_ms: int, operation: CloseOperation) -> PendingResult[None]:
        logger.debug("Leaving group %s at %d (%s)", self._group_id, now_ms, operation)
        self.identity = None
        self._reconciler.abandon()
        self._poll_timer.reset()
        self._end_retries()
        self._clear_error()
        return self._begin_leaving(operation, MemberState.UNSUBSCRIBED)

    def _begin_leaving(self, operation: CloseOperation, then: MemberState) -> PendingResult[None]:
        self.rebalances.cancels()
        if self.state is not MemberState.FATAL:
            self._state_after_leave = then
        if self._pending_leave is not None:
            return self._pending_leave  # the poll timeout has begun it already
        pending = self._pending_leave = PendingResult()
        epoch = self.heartbeats.leave_epoch(operation)
        if epoch is None:
            self.heartbeats.lost()
            if self.state is not MemberState.FATAL:
                self.state = then
            self._pending_leave = None
            pending.complete(None)
        else:
            self.state = MemberState.LEAVING
            self.heartbeats.leave(epoch, self._left)
        return pending

    def _left(self) -> None:
        logger.info("Member %s has left group %s", self.heartbeats.member_id, self._group_id)
        self.state = self._state_after_leave
        pending, self._pending_leave = self._pending_leave, None
        if pending is not None:
            pending.complete(None)

    def __repr__(self) -> str:
        return f"<ConsumerMembership {self._group_id} {self.state.value} {self.heartbeats!r}>"


def _without_names(topic_ids: Collection[bytes]) -> KafkaError:
    return KafkaError(
        "the metadata of the brokers has no topics with the ids of the assignment",
        found=", ".join(sorted(topic_id.hex() for topic_id in topic_ids)[:_SHOWN_IDS]),
        hint="check that this user may describe the topics; they may just have been created",
    )
