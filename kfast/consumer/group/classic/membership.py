"""ClassicMembership: classic group protocol state machine.

Owns the state, the member id and the generation. `JoinRequests`, `HeartbeatRequests` and
`LeaveGroupRequests` have the requests, `ClassicReconciler` the rebalance steps, `LeaderAssignment`
the assignment by the leader, ``errors`` the table of actions, `PollTimer` the poll interval.
Sans-IO, network thread. It never calls the application; steps reach it through the `StepPort`.

| state | heartbeats | left on |
|---|---|---|
| UNJOINED | no | subscribed, poll() called, coordinator known → PREPARING_REBALANCE |
| PREPARING_REBALANCE | no | JoinGroup response → COMPLETING_REBALANCE; errors: join again |
| COMPLETING_REBALANCE | yes | SyncGroup response → STABLE; errors: join again |
| STABLE | yes | a reason to rejoin and the steps before it done → PREPARING_REBALANCE |
| FAILED | no | another subscription → UNJOINED; never after FENCED_INSTANCE_ID |

From each state a lost membership, no poll() within ``max_poll_interval_ms`` and `leave` lead to
UNJOINED. A generation is joined in this order: coordinator, fresh metadata if a pattern is
subscribed to, the REVOKE step, JoinGroup, SyncGroup, the steps of the new assignment. The part
before JoinGroup happens once per rebalance, however often JoinGroup is retried.

Responses to requests that are not in flight any more are dropped.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

from kfast._base.logs import get_logger
from kfast.client.request_manager import NEVER_MS, PollResult
from kfast.consumer.error_actions import ErrorAction
from kfast.consumer.group.assignors.strategies import select_rebalance_protocol
from kfast.consumer.group.classic.errors import (
    ACTIONS,
    RETRIED,
    Exchange,
    membership_error,
)
from kfast.consumer.group.classic.heartbeat import HeartbeatRequests
from kfast.consumer.group.classic.join import (
    JoinBackoff,
    JoinedSubscription,
    JoinRequests,
    names,
)
from kfast.consumer.group.classic.leader import LeaderAssignment
from kfast.consumer.group.classic.leave import LeaveGroupRequests
from kfast.consumer.group.classic.messages import GroupRequests
from kfast.consumer.group.classic.reconciler import ClassicReconciler
from kfast.consumer.group.coordinator_access import CoordinatorAccess
from kfast.consumer.group.group_intent import GroupIntent
from kfast.consumer.group.member_state import (
    CLASSIC_HEARTBEATS,
    POLL_REQUIRED,
    REBALANCING,
    MemberState,
)
from kfast.consumer.group.poll_timer import CHECK_POLL_MS, PollTimer
from kfast.consumer.group.rebalance_metrics import RebalanceMetrics
from kfast.consumer.retried_errors import Stage
from kfast.errors import (
    ErrorCode,
    InconsistentGroupProtocolError,
    KafkaError,
    UnsupportedVersionError,
    error_info,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfast.client.request import ClientResponse, UnsentRequest
    from kfast.consumer.group.assignors.assignor import ConsumerPartitionAssignor
    from kfast.consumer.group.classic.messages import JoinedGroup
    from kfast.consumer.group.coordinator_finder import CoordinatorFinder
    from kfast.consumer.group.membership import (
        CloseOperation,
        MemberIdentity,
        RebalanceStep,
        StepPort,
    )
    from kfast.consumer.manager_context import ManagerContext
    from kfast.consumer.pending_result import PendingResult
    from kfast.protocol.consumer_protocol import ConsumerProtocolAssignment
    from kfast.protocol.messages.join_group import JoinGroupResponse
    from kfast.protocol.messages.sync_group import SyncGroupResponse

logger = get_logger(__name__)

NO_GENERATION: Final = -1

ERROR_KEY: Final = "group"


class ClassicMembership:
    """A member of a classic group; implements ``GroupMembership``.

    Any thread may read ``identity``, which is None while it is not a member, and ``rebalances``.
    The assignors must have a rebalance protocol in common, else it raises ConfigurationError.
    """

    def __init__(
        self,
        context: ManagerContext,
        finder: CoordinatorFinder,
        port: StepPort,
        assignors: Sequence[ConsumerPartitionAssignor],
    ) -> None:
        config = context.config
        protocol = select_rebalance_protocol(assignors)
        self._config = config
        self._group_id = cast("str", config.group_id)
        self._finder = finder
        self._intent = GroupIntent(context.subscriptions)
        self._errors = context.errors
        self._retries = finder.retries
        self._backoff = JoinBackoff(config, context.clock, finder.retries)
        self._poll_timer = PollTimer(config, port)
        self._access = CoordinatorAccess(context, finder)
        self._requests = GroupRequests(config, assignors)
        self._in_flight = JoinRequests(self._requests, self)
        self._subscription = JoinedSubscription(context.subscriptions, context.metadata)
        self._reconciler = ClassicReconciler(config, port, context.subscriptions, protocol)
        self._leader = LeaderAssignment(context, protocol)
        self._leave = LeaveGroupRequests(context, finder, self._requests)
        self._heartbeats = HeartbeatRequests(context, finder, self._access, self._requests, self)
        self.identity: MemberIdentity | None = None
        self.rebalances = RebalanceMetrics(config)
        self._state = MemberState.UNJOINED
        self._member_id = ""
        self._owned_generation = NO_GENERATION
        self._rejoin_reason: str | None = None
        self._is_prepared = False
        self._next_ms = NEVER_MS
        finder.add_error_listener(self._coordinator_not_found)

    # --- state ------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """The value of the `MemberState`. Any thread."""
        return self._state.value

    @property
    def is_rebalancing(self) -> bool:
        """Whether JoinGroup or SyncGroup is in flight, so that a commit would be refused."""
        return self._state in REBALANCING

    # --- poll -------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> PollResult:
        """Return the requests to send now and the time of the next poll."""
        self._next_ms = NEVER_MS
        requests: list[UnsentRequest] = []
        self._poll_timer.update()
        if self._intent.is_wanted:
            self._retry_after_failure()
            if self._state in POLL_REQUIRED and self._poll_timer.is_expired(now_ms):
                self._leave_after_poll_timeout(now_ms)
            if self._state is not MemberState.FAILED:
                self._advance(requests, now_ms)
        self._reconciler.poll(now_ms)
        leaving, self._leave.outbox = self._leave.outbox, []
        return PollResult([*leaving, *requests], self._next_ms)

    def _advance(self, requests: list[UnsentRequest], now_ms: int) -> None:
        node_id = self._access.node(now_ms)
        if node_id is None:
            self._poll_within(self._access.next_ms)
        if self._state in POLL_REQUIRED:
            self._poll_within(self._poll_timer.remaining_ms(now_ms))
        if self._state is MemberState.STABLE:
            self._check_changes(now_ms)
        if self._state is MemberState.COMPLETING_REBALANCE:
            self._sync_group(requests, node_id, now_ms)
        elif self._in_flight.join is not None:
            self._poll_within(self._backoff.ms_to_notice(now_ms))
        elif self._state is not MemberState.STABLE or self._rejoin_reason is not None:
            if self._poll_timer.is_expired(now_ms):
                self._poll_within(CHECK_POLL_MS if self._reconciler.is_idle else NEVER_MS)
            elif self._finder.node_id is not None and self._prepare(now_ms):
                self._join_group(requests, node_id, now_ms)
        if self._state in CLASSIC_HEARTBEATS and self.identity is not None:
            heartbeat = self._heartbeats.poll(self.identity, node_id, now_ms)
            if heartbeat is not None:
                requests.append(heartbeat)
            self._poll_within(self._heartbeats.next_ms)

    def _poll_within(self, delay_ms: int) -> None:
        self._next_ms = min(self._next_ms, delay_ms)

    # --- reasons to rejoin ------------------------------------------------------------------------

    def request_rejoin(self, reason: str) -> None:
        """Rejoin at the next ``poll`` (KIP-568); no effect during a rebalance."""
        if self._state is MemberState.STABLE and self._rejoin_reason is None:
            logger.info("Joining group %s again: %s", self._group_id, reason)
            self._rejoin_reason = reason

    def _check_changes(self, now_ms: int) -> None:
        reason = self._subscription.reason_to_rejoin()
        if reason is None and self._leader.is_leading:
            changed = self._leader.changed_topics(now_ms)
            reason = f"partitions of {names(changed)} changed" if changed else None
        if reason is not None:
            self.request_rejoin(reason)

    # --- joining ----------------------------------------------------------------------------------

    def _prepare(self, now_ms: int) -> bool:
        """Run the steps before a rebalance, once; return whether JoinGroup may be sent."""
        if not self._reconciler.is_idle or not self._subscription.has_fresh_topics():
            return False
        if not self._is_prepared:
            self._is_prepared = True
            self._reconciler.prepare(now_ms)
        return self._reconciler.is_idle

    def _join_group(self, requests: list[UnsentRequest], node_id: int | None, now_ms: int) -> None:
        wait_ms = self._backoff.ms_to_next(now_ms)
        if wait_ms > 0:
            self._poll_within(wait_ms)
            return
        if node_id is None:
            return
        message = self._requests.join(
            self._member_id,
            self._owned_generation,
            self._subscription.joining(),
            self._reconciler.owned,
            self._rejoin_reason,
        )
        requests.append(self._in_flight.send_join(message, node_id))
        self._state = MemberState.PREPARING_REBALANCE
        self._heartbeats.stop()
        self._leader.resign()
        self._backoff.sent(now_ms)
        self.rebalances.begins(now_ms)
        self._poll_within(self._backoff.ms_to_notice(now_ms))
        logger.debug("Joining group %s as %r", self._group_id, self._member_id)

    def _handle_join(self, message: JoinGroupResponse, now_ms: int) -> None:
        if message.error_code:
            if ACTIONS[Exchange.JOIN].of(message.error_code) is ErrorAction.TAKE_MEMBER_ID:
                self._take_member_id(message.member_id, now_ms)
            else:
                self._refused(Exchange.JOIN, message.error_code, now_ms)
            return
        try:
            joined = self._in_flight.joined_by(message)
        except KafkaError as error:
            self._retry_or_fail(error, now_ms)
            return
        self.identity = joined.identity
        self._member_id = joined.identity.member_id
        self._state = MemberState.COMPLETING_REBALANCE
        self._heartbeats.joined(now_ms)
        logger.info(
            "Joined group %s: generation %d, member %s, assignor %s%s",
            self._group_id,
            joined.identity.generation_id,
            self._member_id,
            joined.assignor.name,
            ", leader" if joined.is_leader else "",
        )
        if joined.is_leader:
            for member_error in self._leader.elected(joined.members, now_ms):
                self._errors.put(member_error)

    def _take_member_id(self, member_id: str, now_ms: int) -> None:
        if not member_id or self._member_id:
            self._back_off(now_ms)  # no id, or already one: the same request would fail again
            return
        self._member_id = member_id

    # --- syncing ----------------------------------------------------------------------------------

    def _sync_group(self, requests: list[UnsentRequest], node_id: int | None, now_ms: int) -> None:
        joined = self._in_flight.joined
        if self._in_flight.sync is not None or joined is None or node_id is None:
            return
        assignments: dict[str, bytes] = {}
        if joined.is_leader and not joined.skips_assignment:
            wait_ms = self._leader.ms_to_assignment(now_ms)
            if wait_ms > 0:
                self._poll_within(wait_ms)
                return
            try:
                assignments = self._leader.assign(joined.assignor)
            except KafkaError as error:
                self._retry_or_fail(error, now_ms)
                return
        message = self._requests.sync(joined.identity, joined.assignor, assignments)
        requests.append(self._in_flight.send_sync(message, node_id))

    def _handle_sync(self, message: SyncGroupResponse, now_ms: int) -> None:
        joined = cast("JoinedGroup", self._in_flight.joined)
        if message.error_code:
            self._refused(Exchange.SYNC, message.error_code, now_ms)
            return
        try:
            assignment = self._requests.synced(message, joined.assignor)
            topics = {tp.topic for tp in assignment.partitions}
            is_ours = self._subscription.accept(topics)
            if is_ours:
                generation_id = joined.identity.generation_id
                self._requests.notify_assignor(joined.assignor, assignment, generation_id)
        except KafkaError as error:
            self._retry_or_fail(error, now_ms)
            return
        self._state = MemberState.STABLE
        self._is_prepared = False
        self._rejoin_reason = None
        self._subscription.joined()
        if is_ours:
            self._apply(assignment, joined.identity.generation_id, now_ms)
        else:
            self._back_off(now_ms, is_first_free=True)
            self.request_rejoin(f"was assigned {names(topics)}, which is not the subscription")

    def _apply(
        self, assignment: ConsumerProtocolAssignment, generation_id: int, now_ms: int
    ) -> None:
        self._backoff.reset()
        self._retries.succeeded(Stage.MEMBERSHIP, now_ms)
        self.rebalances.ends(now_ms)
        self._owned_generation = generation_id
        self._errors.clear(ERROR_KEY)
        added = set(assignment.partitions) - self._reconciler.owned
        revoked = self._reconciler.apply(assignment.partitions, now_ms)
        logger.info(
            "Generation %d of group %s: %d partitions (%d added, %d revoked)",
            generation_id,
            self._group_id,
            len(assignment.partitions),
            len(added),
            len(revoked),
        )
        if revoked:
            self.request_rejoin(f"{len(revoked)} partitions were revoked for other members")

    # --- errors -----------------------------------------------------------------------------------

    def _refused(self, exchange: Exchange, code: int, now_ms: int) -> None:
        """Take the action of the table for an error code."""
        action = ACTIONS[exchange].of(code)
        name = error_info(code).name
        is_joining = exchange in (Exchange.JOIN, Exchange.SYNC)
        logger.debug("%s of group %s: %s: %s", exchange.value, self._group_id, name, action.name)
        if action in RETRIED[exchange]:
            stage = Stage.MEMBERSHIP if is_joining else Stage.HEARTBEAT
            self._retries.failed(stage, self._error(exchange, code), now_ms)
        if action is ErrorAction.FAIL:
            is_fenced = code == ErrorCode.FENCED_INSTANCE_ID
            self._fail(self._error(exchange, code), now_ms, is_fenced=is_fenced)
        elif action in (ErrorAction.RESET_MEMBER_ID, ErrorAction.RESET_GENERATION):
            self._lose(
                f"{exchange.value} was answered {name}",
                now_ms,
                keeps_member_id=action is ErrorAction.RESET_GENERATION,
            )
            if is_joining:
                self._back_off(now_ms, is_first_free=True)
        elif action is ErrorAction.REJOIN:
            if is_joining:
                self._back_off(now_ms, is_first_free=True)
            elif exchange is Exchange.HEARTBEAT:
                self._heartbeats.timer.succeeded(now_ms)
            self.request_rejoin("the group is rebalancing")
        elif action is not ErrorAction.IGNORE:
            if action is ErrorAction.FIND_COORDINATOR:
                self._access.refused(self._finder.node_id, name, now_ms)
            elif action is ErrorAction.REPORT:
                self._report(self._error(exchange, code))
            if is_joining:
                self._back_off(now_ms)
            else:
                self._heartbeats.timer.failed(now_ms)

    def heartbeat_refused(self, error_code: int, now_ms: int) -> None:
        """Take the action of the table for the error code of a heartbeat."""
        self._refused(Exchange.HEARTBEAT, error_code, now_ms)

    def heartbeat_failed(self, error: KafkaError, now_ms: int) -> None:
        """Handle a heartbeat without a response; the next one comes after a back-off."""
        if error.retriable:
            self._retries.failed(Stage.HEARTBEAT, error, now_ms)
        else:
            self._report(error)

    def heartbeat_accepted(self, now_ms: int) -> None:
        """Note that the coordinator has confirmed the membership."""
        self._retries.succeeded(Stage.HEARTBEAT, now_ms)

    def _error(self, exchange: Exchange, code: int) -> KafkaError:
        return membership_error(exchange, code, self._config, self._requests.assignor_names)

    def _report(self, error: KafkaError) -> None:
        """Raise an error at the next poll(), once."""
        self._errors.put(error, key=ERROR_KEY)

    def _back_off(self, now_ms: int, *, is_first_free: bool = False) -> None:
        """Join again; see `JoinBackoff.failed`."""
        if self._state is MemberState.COMPLETING_REBALANCE:
            self._state = MemberState.PREPARING_REBALANCE
            self._in_flight.clear()
            self._heartbeats.stop()
        self.rebalances.fails(now_ms)
        self._backoff.failed(now_ms, is_first_free=is_first_free)

    def _retry_or_fail(self, error: KafkaError, now_ms: int) -> None:
        """Report an error found in joining or syncing, and join again if that may help."""
        if isinstance(error, InconsistentGroupProtocolError | UnsupportedVersionError):
            self._fail(error, now_ms)
        else:
            self._report(error)
            self._back_off(now_ms)

    def _fail(self, error: KafkaError, now_ms: int, *, is_fenced: bool = False) -> None:
        """Stop: every poll() raises the error until the subscription changes."""
        logger.error("Group %s: %s", self._group_id, error)
        self._retries.ended(Stage.MEMBERSHIP)
        self._lose(error.message, now_ms, keeps_member_id=not is_fenced)
        self.rebalances.fails(now_ms)
        self.rebalances.cancels()
        self._backoff.failed(now_ms)
        self._state = MemberState.FAILED
        self._intent.failed(is_fenced=is_fenced)
        self._errors.put(error, key=ERROR_KEY, is_sticky=True)

    def _retry_after_failure(self) -> None:
        """Join again after a failure, if the subscription has changed since."""
        if self._state is MemberState.FAILED and self._intent.has_changed_since_failure:
            self._errors.clear(ERROR_KEY)
            self._backoff.reset()
            self._is_prepared = False
            self._state = MemberState.UNJOINED

    def _lose(self, reason: str, now_ms: int, *, keeps_member_id: bool) -> None:
        """Note that the membership is void: all partitions are lost."""
        owned = self._reconciler.owned
        logger.log(
            logging.WARNING if owned else logging.INFO,
            "No longer a member of group %s (was %s in generation %d), %d partitions lost: %s",
            self._group_id,
            self._member_id or "not a member",
            self._owned_generation,
            len(owned),
            reason,
        )
        self._reset_generation(keeps_member_id=keeps_member_id)
        self._reconciler.lose(now_ms)

    def _reset_generation(self, *, keeps_member_id: bool) -> None:
        """Drop the generation, and the responses to everything in flight."""
        self._retries.ended(Stage.HEARTBEAT)
        self.identity = None
        if not keeps_member_id:
            self._member_id = ""
        self._owned_generation = NO_GENERATION
        self._in_flight.clear()
        self._rejoin_reason = None
        self._heartbeats.stop()
        self._leader.resign()
        self._state = MemberState.UNJOINED

    def commit_failed(self, error_code: int, identity: MemberIdentity, now_ms: int) -> None:
        """Handle the error code of a commit or an offset fetch under an identity."""
        if identity == self.identity and self._state is MemberState.STABLE:
            self._refused(Exchange.COMMIT, error_code, now_ms)
        # else an old membership, or a JoinGroup in flight will report it

    def _coordinator_not_found(self, error: KafkaError, now_ms: int) -> None:  # noqa: ARG002
        if self._intent.is_wanted and self._state is not MemberState.FAILED:
            self._report(error)

    # --- the application --------------------------------------------------------------------------

    def step_done(self, step: RebalanceStep, error: BaseException | None, now_ms: int) -> None:
        """Note that the application ran a step; an exception of its listener has no effect here."""
        if error is not None:
            logger.debug("A listener failed in %s: %r", step.kind.value, error)
        self._reconciler.done(step, now_ms)

    def _leave_after_poll_timeout(self, now_ms: int) -> None:
        """Leave because poll() was not called: other members get the partitions (KIP-62)."""
        self._poll_timer.left()
        self.rebalances.cancels()
        self._leave.leave(
            self._member_id, "max.poll.interval.ms exceeded", "default", join=self._in_flight.join
        )
        self._reset_generation(keeps_member_id=False)
        self._reconciler.lose(now_ms)

    def leave(
        self,
        now_ms: int,  # noqa: ARG002 - as every GroupMembership
        *,
        is_closing: bool,
        operation: CloseOperation = "default",
    ) -> PendingResult[None]:
        """Leave the group after the application has revoked its partitions.

        By default a dynamic member leaves and a static one stays (KIP-345); ``operation`` may
        differ (KIP-1092). The group is not joined again until the next subscription, after closing
        never. The result is done with the response, or if nothing is sent.
        """
        self._intent.left(is_closing=is_closing)
        self._retries.ended(Stage.MEMBERSHIP)
        result = self._leave.leave(
            self._member_id,
            "the consumer is being closed" if is_closing else "the consumer unsubscribed",
            operation,
            join=self._in_flight.join,
        )
        self._reset_generation(keeps_member_id=False)
        self._reconciler.abandon()
        self._is_prepared = False
        self._poll_timer.reset()
        self.rebalances.cancels()
        self._backoff.reset()
        if self._intent.is_fenced:
            self._state = MemberState.FAILED
        else:
            self._errors.clear(ERROR_KEY)
        return result

    # --- responses --------------------------------------------------------------------------------

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Handle a JoinGroup or SyncGroup response, if the request is still in flight."""
        exchange = self._in_flight.answered(request)
        if exchange is Exchange.JOIN:
            self._handle_join(cast("JoinGroupResponse", response.message), now_ms)
        elif exchange is Exchange.SYNC:
            self._handle_sync(cast("SyncGroupResponse", response.message), now_ms)
        else:
            logger.debug("Dropping the answer to %r: it is out of date", request)
            self._leave.join_answered(request, cast("JoinGroupResponse", response.message))

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Handle the failure of a JoinGroup or SyncGroup request."""
        self._access.failed(request.node_id, error, now_ms)
        if self._in_flight.answered(request) is None:
            self._leave.join_answered(request, None)
        elif error.retriable:
            self._retries.failed(Stage.MEMBERSHIP, error, now_ms, begun_ms=request.created_ms)
            self._back_off(now_ms)
        else:
            self._retry_or_fail(error, now_ms)

    def __repr__(self) -> str:
        generation_id = NO_GENERATION if self.identity is None else self.identity.generation_id
        return (
            f"<ClassicMembership {self._group_id} {self._state.value} generation={generation_id}"
            f" member={self._member_id!r} rejoin={self._rejoin_reason!r} {self._reconciler!r}>"
        )
