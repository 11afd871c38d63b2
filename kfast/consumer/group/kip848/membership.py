"""ConsumerMembership: a consumer's place in a KIP-848 group (``group_protocol="consumer"``).

Owns the member's state and decides what follows from a changed subscription, an answer, a step that
was run and an application that stays away. It sends through `ConsumerHeartbeats`, reaches the
application through `ConsumerSteps`, and takes what errors mean from a table. Sans-IO, network
thread; it never touches an assignment but by steps, which the application runs inside poll().

| state | sends | exits |
|---|---|---|
| UNSUBSCRIBED | nothing | a subscription, and the application polls → JOINING |
| JOINING | at once: epoch 0, all fields | answered → RECONCILING with an assignment, else STABLE |
| RECONCILING | at the interval | nothing left to do → ACKNOWLEDGING |
| ACKNOWLEDGING | at once: what is owned | sent → STABLE, or RECONCILING while a target waits |
| STABLE | at the interval | new target → RECONCILING |
| PREPARE_LEAVING | at the interval | the application gives up its partitions; `leave` → LEAVING |
| LEAVING | once: epoch -1 (static, temporary: -2) | however it ends → UNSUBSCRIBED, or STALE |
| FENCED | nothing; LOSE | lost → JOINING, under the same member id |
| STALE | nothing; LOSE | the application polls again → JOINING |
| FATAL | nothing; LOSE | none |

Besides: `leave` → LEAVING; nobody polls for ``max_poll_interval_ms`` → LEAVING, then STALE; an
answer 25 or 110 → FENCED; an error that nothing can mend → FATAL. These break off a pass from owned
to target wherever it is.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kfast.client.request_manager import NEVER_MS, PollResult
from kfast.consumer.error_actions import ErrorAction
from kfast.consumer.group.group_intent import GroupIntent
from kfast.consumer.group.kip848.errors import (
    ACTIONS,
    LEAVING_ACTIONS,
    heartbeat_error,
)
from kfast.consumer.group.kip848.heartbeat import ConsumerHeartbeats
from kfast.consumer.group.kip848.steps import ConsumerSteps
from kfast.consumer.group.kip848.subscription import ConsumerSubscription
from kfast.consumer.group.member_state import (
    AT_ONCE,
    POLL_REQUIRED,
    REJOINING,
    MemberState,
)
from kfast.consumer.group.membership import MemberIdentity, RebalanceKind
from kfast.consumer.group.poll_timer import LOOK_FOR_POLL_MS, PollTimer
from kfast.consumer.group.rebalance_metrics import RebalanceMetrics
from kfast.consumer.pending_result import PendingResult
from kfast.errors import (
    ErrorCode,
    IllegalStateError,
    KafkaError,
    UnsupportedVersionError,
    error_info,
)

if TYPE_CHECKING:
    from kfast.client.request import UnsentRequest
    from kfast.consumer.group.coordinator_finder import CoordinatorFinder
    from kfast.consumer.group.kip848.reconciliation import TopicIdPartition
    from kfast.consumer.group.membership import CloseOperation, RebalanceStep, StepPort
    from kfast.consumer.manager_context import ManagerContext
    from kfast.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

logger = logging.getLogger(__name__)

ERROR_KEY: Final = "group"
"""Key of a member's errors in the fetch buffer."""


class ConsumerMembership:
    """A member of a KIP-848 group. Implements ``GroupMembership``.


    Attributes
    ----------
    identity : MemberIdentity or None
        Who the consumer is in the group; its generation is the member epoch. Any thread.
    state : MemberState
        Where it is. Any thread.
    heartbeats : ConsumerHeartbeats
        Counts them, and knows the member id.
    rebalances : RebalanceMetrics
        Counts passes from what is owned to a target. Any thread may read it.
    """

    def __init__(self, context: ManagerContext, finder: CoordinatorFinder, port: StepPort) -> None:
        config = context.config
        if config.group_id is None:
            raise IllegalStateError("without group_id there is no group to be a member of")
        self._config = config
        self._group_id = config.group_id
        self._intent = GroupIntent(context.subscriptions)
        self._subscription = ConsumerSubscription(context.subscriptions, context.metadata)
        self._buffer = context.errors
        self._poll_timer = PollTimer(config, port)
        self._steps = ConsumerSteps(context, port)
        self.heartbeats = ConsumerHeartbeats(context, finder, self)
        self.identity: MemberIdentity | None = None
        self.state = MemberState.UNSUBSCRIBED
        self.rebalances = RebalanceMetrics(config)
        self._pending_leave: PendingResult[None] | None = None
        self._state_after_leave = MemberState.UNSUBSCRIBED
        self._error: KafkaError | None = None
        self._told_error: KafkaError | None = None
        finder.add_error_listener(self._coordinator_failed)

    # --- what others see --------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """What the member is doing, for logs and health. Any thread."""
        return self.state.value

    @property
    def is_rebalancing(self) -> bool:
        """False: under KIP-848 a member may commit at any time, under its epoch."""
        return False

    # --- the network thread's turn ----------------------------------------------------------------

    def poll(self, now_ms: int) -> PollResult:
        """Return the heartbeat that is due, and the time of the next poll."""
        self._poll_timer.look()
        self._follow_subscription(now_ms)
        self._check_poll_timer(now_ms)
        self._reconcile(now_ms)
        request, wait_ms = self._due(now_ms)
        requests = () if request is None else (request,)
        return PollResult(requests, min(wait_ms, self._ms_to_next_look(now_ms)))

    def _due(self, now_ms: int) -> tuple[UnsentRequest | None, int]:
        state = self.state
        if state is MemberState.LEAVING:
            return self.heartbeats.leave_due(now_ms)
        fields = None
        if state in POLL_REQUIRED:
            fields = self._subscription.fields(self._steps.completed)
        elif state is not MemberState.PREPARE_LEAVING or self.identity is None:
            return None, NEVER_MS
        if state is MemberState.JOINING and not self._subscription.are_topics_known:
            return None, NEVER_MS  # the answer of the refresh ends the network thread's wait
        is_urgent = state in AT_ONCE or (fields is not None and self.heartbeats.has_news(fields))
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
            self._steps.acknowledged()
            self._begin_reconciling(now_ms)
        return due

    def _ms_to_next_look(self, now_ms: int) -> int:
        if self.state in POLL_REQUIRED:
            remaining_ms = max(1, self._poll_timer.remaining_ms(now_ms))
            return LOOK_FOR_POLL_MS if self._steps.is_halted else remaining_ms
        is_waiting = self.state in REJOINING and self._intent.is_wanted
        return LOOK_FOR_POLL_MS if is_waiting and self._steps.owns_nothing else NEVER_MS

    # --- the subscription -------------------------------------------------------------------------

    def _follow_subscription(self, now_ms: int) -> None:
        self._subscription.look(now_ms)
        if not self._intent.is_wanted:
            if self.state in POLL_REQUIRED and self._steps.withdraw():
                self.state = MemberState.PREPARE_LEAVING
        elif self.state is MemberState.PREPARE_LEAVING:
            self._leave_group(now_ms, "default")  # dropped, and subscribed to anew meanwhile
        elif self.state is MemberState.FATAL and self._error is not None:
            self._tell(self._error)
        elif self.state in REJOINING and self._steps.owns_nothing:
            self._come_back(now_ms)

    def _come_back(self, now_ms: int) -> None:
        if self._poll_timer.is_expired(now_ms):
            return
        self._steps.clear()
        self.heartbeats.start()
        self.state = MemberState.JOINING
        logger.info("Joining group %s as member %s", self._group_id, self.heartbeats.member_id)

    # --- the application that stays away ----------------------------------------------------------

    def _check_poll_timer(self, now_ms: int) -> None:
        if self.state not in POLL_REQUIRED or not self._poll_timer.is_expired(now_ms):
            return
        self._poll_timer.gave_up()
        self._begin_leaving("default", MemberState.STALE)
        self._lose(now_ms)

    # --- steps ------------------------------------------------------------------------------------

    def _begin_reconciling(self, now_ms: int) -> None:
        self.state = MemberState.RECONCILING
        self.rebalances.begins(now_ms)
        self._reconcile(now_ms)

    def _reconcile(self, now_ms: int) -> None:
        if self.state is not MemberState.RECONCILING or not self._steps.advance(now_ms):
            return
        if self._steps.needs_acknowledgement:
            self.rebalances.ends(now_ms)
            self.state = MemberState.ACKNOWLEDGING
        elif self._steps.is_settled:
            self.rebalances.breaks_off()  # the target is what is owned already
            self.state = MemberState.STABLE

    def step_done(self, step: RebalanceStep, error: BaseException | None, now_ms: int) -> None:
        """Note that the application ran a step; ``error`` is what its listener raised."""
        kind = self._steps.done(step, error)
        if kind is RebalanceKind.LOSE:
            self._steps.clear()
        elif kind is not None and self.state not in POLL_REQUIRED:
            self._lose(now_ms)  # it ran while the member was fenced
        self._reconcile(now_ms)

    def _lose(self, now_ms: int) -> None:
        self.identity = None
        self._steps.lose(now_ms)

    # --- outcomes of heartbeats -------------------------------------------------------------------

    def accepted(self, target: frozenset[TopicIdPartition] | None, now_ms: int) -> None:
        """Take a good answer and the assignment in it, None for the one before."""
        beats = self.heartbeats
        identity = MemberIdentity(
            self._group_id, beats.epoch, beats.member_id, self._config.group_instance_id
        )
        if identity != self.identity:
            self.identity = identity
        self._clear_error()
        if self.state is MemberState.PREPARE_LEAVING:
            return
        if target is not None:
            self._steps.take_target(target)
            self._begin_reconciling(now_ms)
            return
        if self.state is MemberState.JOINING:
            self.state = MemberState.STABLE
        self._reconcile(now_ms)

    def unanswered(self, error: KafkaError, now_ms: int) -> None:
        """Learn that there was no usable answer; the heartbeat is sent again after a pause."""
        if isinstance(error, UnsupportedVersionError):
            self._fail(error, now_ms)
        elif not error.retriable:
            self._tell(error)

    def refused(self, answer: ConsumerGroupHeartbeatResponse, node_id: int, now_ms: int) -> None:
        """Take an answer with an error code."""
        code = answer.error_code
        info = error_info(code)
        logger.debug("Group %s: broker %d answered %s", self._group_id, node_id, info.name)
        is_leaving = self.state is MemberState.PREPARE_LEAVING
        action = (LEAVING_ACTIONS if is_leaving else ACTIONS).of(code)
        if action is ErrorAction.FIND_COORDINATOR:
            self.heartbeats.rediscover(node_id, info.name, now_ms)
            return
        if action is ErrorAction.FENCE_MEMBER:
            self._fenced(info.name, now_ms)
            return
        if action is ErrorAction.IGNORE:
            self._counted_out()
            return
        self.heartbeats.timer.failed(now_ms)
        if action is ErrorAction.RETRY:
            return
        error = heartbeat_error(
            code,
            answer.error_message,
            self._config,
            pattern=self._subscription.regex,
            node=node_id,
        )
        if action is ErrorAction.REPORT:
            self._tell(error)
        else:
            self._fail(error, now_ms)

    def _fenced(self, name: str, now_ms: int) -> None:
        if self.state is MemberState.PREPARE_LEAVING:
            self._counted_out()
            return
        if self.state is MemberState.JOINING:
            self.heartbeats.timer.failed(now_ms)  # or it goes round at the speed of the network
        logger.warning(
            "Group %s has fenced member %s, epoch %d (%s): its partitions are lost, it joins again",
            self._group_id,
            self.heartbeats.member_id,
            self.heartbeats.epoch,
            name,
        )
        self._counted_out()
        self._break_off(now_ms)
        self.state = MemberState.FENCED
        self._lose(now_ms)

    def _break_off(self, now_ms: int) -> None:
        """Note that whatever way to a target there was ended before it."""
        if self.rebalances.is_under_way:
            self.rebalances.fails(now_ms)
            self.rebalances.breaks_off()

    def _counted_out(self) -> None:
        self.identity = None
        self.heartbeats.lost()

    # --- errors -----------------------------------------------------------------------------------

    def _fail(self, error: KafkaError, now_ms: int) -> None:
        self._error = error
        self._counted_out()
        self._break_off(now_ms)
        self.state = MemberState.FATAL
        self._tell(error)
        self._lose(now_ms)

    def _tell(self, error: KafkaError) -> None:
        """Raise an error at every poll, until a heartbeat is accepted or the member leaves."""
        if error is not self._told_error:
            self._told_error = error
            self._buffer.put_error(error, key=ERROR_KEY, is_sticky=True)

    def _clear_error(self) -> None:
        if self._told_error is not None:
            self._told_error = None
            self._buffer.clear_error(ERROR_KEY)

    def _coordinator_failed(self, error: KafkaError, now_ms: int) -> None:  # noqa: ARG002
        if self._intent.is_wanted and self.state is not MemberState.FATAL:
            self._tell(error)

    def commit_failed(self, error_code: int, identity: MemberIdentity, now_ms: int) -> None:
        """Note the error that a commit or a look-up of offsets got under an identity."""
        if identity != self.identity or self.state not in POLL_REQUIRED:
            return
        if error_code == ErrorCode.FENCED_INSTANCE_ID:
            self._fail(heartbeat_error(error_code, None, self._config), now_ms)
        elif error_code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.STALE_MEMBER_EPOCH,
        ):
            self.heartbeats.timer.send_soon(now_ms)  # the answer has the new epoch, or fences

    def request_rejoin(self, reason: str) -> None:
        """Say that there is nothing to be done: the broker decides when to rebalance."""
        logger.warning(
            'A rebalance of group %s was asked for (%s): no effect with group_protocol="consumer",'
            " the broker decides",
            self._group_id,
            reason,
        )

    # --- leaving ----------------------------------------------------------------------------------

    def leave(
        self, now_ms: int, *, is_closing: bool, operation: CloseOperation = "default"
    ) -> PendingResult[None]:
        """Leave the group after the application has revoked its partitions.

        Returns
        -------
        PendingResult
            Done when the coordinator answered, the request failed, or there was nothing to send.
        """
        self._intent.left(is_closing=is_closing)
        return self._leave_group(now_ms, operation)

    def _leave_group(self, now_ms: int, operation: CloseOperation) -> PendingResult[None]:
        logger.debug("Leaving group %s at %d (%s)", self._group_id, now_ms, operation)
        self.identity = None
        self._steps.abandon()
        self._poll_timer.forget()
        self._clear_error()
        return self._begin_leaving(operation, MemberState.UNSUBSCRIBED)

    def _begin_leaving(self, operation: CloseOperation, then: MemberState) -> PendingResult[None]:
        self.rebalances.breaks_off()
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
