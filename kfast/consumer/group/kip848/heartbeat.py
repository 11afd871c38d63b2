"""ConsumerHeartbeats: ConsumerGroupHeartbeat requests of a KIP-848 member.

Owns the member's id and epoch, the heartbeat in flight and the leave heartbeat. When to send and
what a response means for the member is decided by the `HeartbeatListener`. Sans-IO, network thread.

The leave heartbeat does not wait for the response to the one before it: a broker serves a
connection in order. That response is ignored; nothing else is sent until the leave has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from kfast._base.logs import get_logger
from kfast.client.request import Channel, UnsentRequest
from kfast.client.request_manager import NEVER_MS
from kfast.consumer.group.coordinator_access import CoordinatorAccess
from kfast.consumer.group.heartbeat import Heartbeat
from kfast.consumer.group.kip848.errors import (
    FIRST_GROUP_VERSION,
    GROUP_VERSION_FEATURE,
    unsupported,
)
from kfast.consumer.group.kip848.heartbeat_request import (
    FIRST_VERSION_WITH_REGEX,
    ConsumerHeartbeatRequest,
    new_member_id,
)
from kfast.consumer.group.kip848.reconciliation import partitions_of
from kfast.errors import KafkaError, ProtocolError, UnsupportedVersionError
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.consumer_group_heartbeat import JOIN_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfast.client.request import ClientResponse
    from kfast.consumer.group.coordinator_finder import CoordinatorFinder
    from kfast.consumer.group.kip848.heartbeat_request import MemberFields
    from kfast.consumer.group.kip848.reconciliation import TopicIdPartition
    from kfast.consumer.group.membership import CloseOperation
    from kfast.consumer.manager_context import ManagerContext
    from kfast.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )

logger = get_logger(__name__)

Due = tuple[UnsentRequest | None, int]
"""A request to send now, and the milliseconds until the next poll."""


class HeartbeatListener(Protocol):
    """The membership, for which the heartbeats are sent; not called for leave heartbeats."""

    def accepted(self, target: frozenset[TopicIdPartition] | None, now_ms: int) -> None:
        """Handle a response without error; ``target`` is None if the assignment is unchanged."""
        ...

    def refused(self, answer: ConsumerGroupHeartbeatResponse, node_id: int, now_ms: int) -> None:
        """Handle a response with an error code."""
        ...

    def unanswered(self, error: KafkaError, begun_ms: int, now_ms: int) -> None:
        """Handle a failure; the heartbeat is sent again after a back-off."""
        ...


class ConsumerHeartbeats:
    """The heartbeats of one member.

    ``member_id`` is made once per consumer (KIP-1082), or comes from a coordinator that offers only
    version 0. ``epoch`` is 0 before joining. ``may_be_member``: a heartbeat was sent, so that the
    group may have the member.
    """

    def __init__(
        self,
        context: ManagerContext,
        finder: CoordinatorFinder,
        listener: HeartbeatListener,
    ) -> None:
        config = context.config
        self._group_id = config.group_id
        self._connections = context.connections
        self._access = CoordinatorAccess(context, finder)
        self._request = ConsumerHeartbeatRequest(config)
        self._listener = listener
        self.timer = Heartbeat(config, context.clock)
        self.member_id = new_member_id()
        self.epoch = JOIN_EPOCH
        self.may_be_member = False
        self._is_id_known = False
        self._in_flight: UnsentRequest | None = None
        self._leave_epoch = 0
        self._on_left: Callable[[], None] | None = None
        self._leave: UnsentRequest | None = None

    # --- membership -------------------------------------------------------------------------------

    def has_changes(self, fields: MemberFields) -> bool:
        """Return whether the fields differ from those sent last."""
        return self._request.has_changes(fields)

    def leave_epoch(self, operation: CloseOperation) -> int | None:
        """Return the epoch to leave with, None for leaving without a heartbeat."""
        return self._request.leave_epoch(operation) if self.may_be_member else None

    def start(self) -> None:
        """Begin to join: epoch 0, all fields."""
        self.stop()
        self._request.reset()

    def stop(self) -> None:
        """Reset the epoch; the response in flight is ignored."""
        self.epoch = JOIN_EPOCH
        self._in_flight = None

    def lost(self) -> None:
        """Note that the group does not have the member any more."""
        self.stop()
        self.may_be_member = False

    # --- sending ----------------------------------------------------------------------------------

    def due(
        self,
        fields: MemberFields | None,
        now_ms: int,
        *,
        is_urgent: bool = False,
        acknowledges: bool = False,
    ) -> Due:
        """Return the heartbeat to send now, if it is due.

        Without ``fields`` it only keeps the session. ``is_urgent`` does not wait for the interval;
        ``acknowledges`` includes the owned partitions in any case.

        Raises
        ------
        UnsupportedVersionError
            The coordinator does not offer KIP-848, or not the fields in use.
        """
        if self._in_flight is not None or self.is_leaving:
            return None, NEVER_MS
        wait_ms = self.timer.ms_to_next(now_ms, is_urgent=is_urgent)
        if wait_ms > 0:
            return None, wait_ms
        node_id = self._access.node(now_ms)
        if node_id is None:
            return None, self._access.next_ms
        version = self._version(node_id, fields)
        self._is_id_known = self._is_id_known or version > 0
        member_id = self.member_id if self._is_id_known else ""
        if fields is None:
            message = self._request.keep_alive(member_id, self.epoch)
        else:
            message = self._request.build(
                member_id, self.epoch, fields, version=version, acknowledges=acknowledges
            )
        self._in_flight = self._unsent(message, node_id, version)
        self.may_be_member = True
        self.timer.sent(now_ms)
        return self._in_flight, NEVER_MS

    def _unsent(
        self, message: ConsumerGroupHeartbeatRequest, node_id: int, version: int
    ) -> UnsentRequest:
        return UnsentRequest(
            message,
            self,
            node_id=node_id,
            channel=Channel.COORDINATOR,
            max_version=version,
            min_version=version,
        )

    def _version(self, node_id: int, fields: MemberFields | None) -> int:
        try:
            version = self._access.version(node_id, ApiKey.CONSUMER_GROUP_HEARTBEAT, None)
        except UnsupportedVersionError as error:
            raise unsupported(node_id, error.cause or error.message) from error
        feature = self._connections.finalized_feature(
            node_id, GROUP_VERSION_FEATURE, Channel.COORDINATOR
        )
        if feature is not None and feature < FIRST_GROUP_VERSION:
            raise unsupported(node_id, f"its feature {GROUP_VERSION_FEATURE} is not enabled")
        has_regex = fields is not None and fields.topic_regex is not None
        if has_regex and version < FIRST_VERSION_WITH_REGEX:
            raise UnsupportedVersionError(
                f"broker {node_id} does not support patterns in group subscriptions",
                cause=f"it offers ConsumerGroupHeartbeat {version}, patterns came with version 1",
                hint="subscribe to a Python pattern, or upgrade to Kafka 4.0",
                node=node_id,
                api="ConsumerGroupHeartbeat",
            )
        return version

    # --- leaving ----------------------------------------------------------------------------------

    @property
    def is_leaving(self) -> bool:
        """Whether a leave heartbeat is to be sent or in flight."""
        return self._on_left is not None

    def leave(self, epoch: int, on_left: Callable[[], None]) -> None:
        """Leave with an epoch; ``on_left()`` is called when that has ended, however it ends."""
        self.stop()
        self._leave_epoch = epoch
        self._on_left = on_left

    def leave_due(self, now_ms: int) -> Due:
        """Return the leave heartbeat if it is to be sent now."""
        if self._on_left is None or self._leave is not None:
            return None, NEVER_MS
        if not self._is_id_known:
            self._left()  # the member id is in a response that has not come
            return None, 0
        node_id = self._access.node(now_ms)
        if node_id is None:
            return None, self._access.next_ms
        try:
            version = self._version(node_id, None)
        except UnsupportedVersionError:
            self._left()
            return None, 0
        message = self._request.leave(self.member_id, self._leave_epoch)
        self._leave = self._unsent(message, node_id, version)
        return self._leave, NEVER_MS

    def _left(self) -> None:
        on_left, self._on_left, self._leave = self._on_left, None, None
        self.may_be_member = False
        if on_left is not None:
            on_left()

    # --- outcomes ---------------------------------------------------------------------------------

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Handle a response of the coordinator."""
        answer = cast("ConsumerGroupHeartbeatResponse", response.message)
        if request is self._leave:
            logger.debug("Leaving group %s: error %d", self._group_id, answer.error_code)
            self._left()
        if request is not self._in_flight:
            return
        self._in_flight = None
        if answer.error_code:
            self._request.reset()
            self._listener.refused(answer, response.node_id, now_ms)
            return
        try:
            self._accepted(answer, response.api_version, now_ms)
        except ProtocolError as error:
            error.node = response.node_id
            self._unanswered(error, request.created_ms, now_ms)

    def _accepted(
        self, answer: ConsumerGroupHeartbeatResponse, api_version: int, now_ms: int
    ) -> None:
        if answer.member_epoch <= 0:
            raise ProtocolError(
                f'group "{self._group_id}": the answer to a heartbeat lacks a member epoch',
                found=f"member_epoch {answer.member_epoch}",
            )
        target = None if answer.assignment is None else partitions_of(answer.assignment)
        if api_version == 0 and not self._is_id_known:
            self.member_id = answer.member_id or self.member_id
            self._is_id_known = True
        self.epoch = answer.member_epoch
        self.timer.succeeded(now_ms)
        self.timer.set_interval(answer.heartbeat_interval_ms)
        self._listener.accepted(target, now_ms)

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Send all fields again after a back-off: the broker may have applied them or not."""
        self._access.failed(request.node_id, error, now_ms)
        if request is self._leave:
            logger.debug("Leaving group %s: %s", self._group_id, error)
            self._left()
        if request is self._in_flight:
            self._in_flight = None
            self._unanswered(error, request.created_ms, now_ms)

    def _unanswered(self, error: KafkaError, begun_ms: int, now_ms: int) -> None:
        logger.debug("A heartbeat of group %s failed: %s", self._group_id, error)
        self._request.reset()
        self.timer.failed(now_ms)
        self._listener.unanswered(error, begun_ms, now_ms)

    def find_coordinator(self, node_id: int, reason: str, now_ms: int) -> None:
        """Note that the broker is not the coordinator; the heartbeat is sent to the next one."""
        self._access.refused(node_id, reason, now_ms)

    def __repr__(self) -> str:
        return f"<ConsumerHeartbeats {self.member_id} epoch={self.epoch} {self.timer!r}>"
