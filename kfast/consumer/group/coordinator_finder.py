"""CoordinatorFinder: node id of the group coordinator and the FindCoordinator requests.

A request is sent only while the coordinator is required and unknown. It becomes unknown for these
reasons only: error 15 or 16, a lost connection, a timeout (G-04); the manager whose request failed
calls `mark_unknown`. A connection to the coordinator that breaks while nothing is in flight is
noticed here. Sans-IO, network thread.

| FindCoordinator response | action |
|---|---|
| 0 with a usable address | known; the broker is added to the metadata |
| 30, 24, others that are not retriable | reported to the listeners; sent again when required |
| 15, 14, -1, no response, a response without the group | sent again after a growing back-off |

It is found when a connection to it is ready: that is reported to `RetriedErrors`, as are attempts
that fail. What fails afterwards is for the managers that use the coordinator to report.

Poll it after the managers that may require it, so that the request is sent in the same turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kfast._base.clock import ExponentialBackoff
from kfast._base.logs import get_logger
from kfast.client.cluster import Node
from kfast.client.request import Channel, UnsentRequest
from kfast.client.request_manager import IDLE, PollResult
from kfast.consumer.error_actions import ErrorAction, ErrorActions
from kfast.consumer.retried_errors import Stage
from kfast.errors import (
    ErrorCode,
    GroupAuthorizationError,
    IllegalStateError,
    KafkaError,
    ProtocolError,
    error_info,
    exception_for,
)
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.find_coordinator import (
    GROUP_KEY_TYPE,
    Coordinator,
    FindCoordinatorRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kfast.client.request import ClientResponse
    from kfast.consumer.manager_context import ManagerContext
    from kfast.protocol.messages.find_coordinator import FindCoordinatorResponse

logger = get_logger(__name__)

FIRST_BATCHED_VERSION: Final = 4
"""First FindCoordinator with lists of keys and coordinators (KIP-699)."""

MAX_PORT: Final = 65_535

DEFAULT_OFFSETS_REPLICAS: Final = 3
"""``offsets.topic.replication.factor`` of a broker by default."""

LOOK_AGAIN_MS: Final = 100
"""Poll interval while no broker can take the request and no other event ends the wait."""

ACTIONS: Final = ErrorActions(
    dict.fromkeys(
        (
            ErrorCode.INVALID_GROUP_ID,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.UNSUPPORTED_VERSION,
            ErrorCode.INVALID_REQUEST,
        ),
        ErrorAction.FAIL,
    ),
    otherwise=ErrorAction.RETRY,
)


class CoordinatorFinder:
    """Finds the group coordinator.

    ``node_id`` is None while it is unknown; requests to it use `Channel.COORDINATOR`.
    ``last_failure`` is the reason why it is unknown, for messages.
    """

    def __init__(self, context: ManagerContext) -> None:
        config = context.config
        if config.group_id is None:
            raise IllegalStateError("without group_id there is no coordinator")
        self._group_id = config.group_id
        self._metadata = context.metadata
        self._connections = context.connections
        self._clock = context.clock
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._listeners: list[Callable[[KafkaError, int], None]] = []
        self.retries = context.retries
        self.node_id: int | None = None
        self.last_failure: KafkaError | None = None
        self._is_wanted = False
        self._wanted_ms = 0
        self._in_flight: UnsentRequest | None = None
        self._not_before_ms = 0
        self._attempts = 0
        self._found_ms = 0
        self._seen_error: KafkaError | None = None

    # --- events -----------------------------------------------------------------------------------

    @property
    def is_needed(self) -> bool:
        """Whether the coordinator is unknown and required."""
        return self._is_wanted and self.node_id is None

    def require(self, now_ms: int) -> bool:
        """Note that the coordinator is needed; return whether to poll the finder at once."""
        if self.node_id is not None or self._is_wanted:
            return False
        self._is_wanted = True
        self._wanted_ms = now_ms
        return True

    def connected(self, now_ms: int) -> None:
        """Note that requests can be sent to the coordinator."""
        self.retries.succeeded(Stage.COORDINATOR, now_ms)

    def mark_unknown(self, reason: str, now_ms: int, *, node_id: int | None = None) -> None:
        """Note that the coordinator has moved or cannot be reached.

        No effect if ``node_id`` is given and no longer the coordinator.
        """
        if self.node_id is None or node_id not in {None, self.node_id}:
            return
        logger.info("Coordinator %d of group %s is lost: %s", self.node_id, self._group_id, reason)
        self.node_id = None
        self.last_failure = KafkaError(
            f'the coordinator of group "{self._group_id}" was lost', cause=reason
        )
        # Lost soon after it was found: back off. The response may name a dead broker for as long
        # as the cluster has not noticed.
        if now_ms - self._found_ms >= self._backoff.max_ms:
            self._attempts = 0
            self._not_before_ms = now_ms
        else:
            self._pause(now_ms)

    def add_error_listener(self, listener: Callable[[KafkaError, int], None]) -> None:
        """Call ``listener(error, now_ms)`` for every error that is not retriable."""
        self._listeners.append(listener)

    # --- requests ---------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> PollResult:
        """Return the FindCoordinator request to send now, if it is due."""
        self._check_connection(now_ms)
        if not self.is_needed or self._in_flight is not None:
            return IDLE
        if now_ms < self._not_before_ms:
            return PollResult((), self._not_before_ms - now_ms)
        # The coordinator alone must not become the whole cluster: with a broker in the cluster
        # before any metadata, the bootstrap servers are not used again.
        if not self._metadata.cluster.brokers:
            self._metadata.request_update()
            return PollResult((), LOOK_AGAIN_MS)
        node_id = self._connections.least_loaded_node(now_ms)
        if node_id is None or not self._connections.ready(node_id, now_ms):
            return PollResult((), self._wait_for(node_id, now_ms))
        try:
            version = self._connections.api_version(node_id, ApiKey.FIND_COORDINATOR)
        except KafkaError as error:
            self._failed(error, now_ms)
            return PollResult((), self._not_before_ms - now_ms)
        self._in_flight = UnsentRequest(
            find_coordinator_request([self._group_id], version),
            self,
            node_id=node_id,
            max_version=version,
            min_version=version,
        )
        return PollResult((self._in_flight,))

    def _wait_for(self, node_id: int | None, now_ms: int) -> int:
        """Return how long to wait for a broker that can take the request."""
        if node_id is None:
            self._metadata.request_update()  # it makes a client without brokers bootstrap again
            return LOOK_AGAIN_MS
        return self._connections.connection_delay(node_id, now_ms) or LOOK_AGAIN_MS

    def _check_connection(self, now_ms: int) -> None:
        if self.node_id is None:
            return
        error = self._connections.connection_failed(self.node_id, Channel.COORDINATOR)
        if error is None or error is self._seen_error:
            return
        self._seen_error = error
        self.mark_unknown(error.message, now_ms)
        if error.retriable:
            self.retries.failed(Stage.COORDINATOR, error, now_ms)
        else:
            self._failed(error, now_ms)

    # --- outcomes ---------------------------------------------------------------------------------

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Handle the response of a broker."""
        self._answered(request)
        message = cast("FindCoordinatorResponse", response.message)
        coordinator = found_coordinator(message, response.api_version, self._group_id)
        if coordinator is None:
            self._retry(
                ProtocolError(
                    f'the FindCoordinator response does not contain group "{self._group_id}"',
                    node=response.node_id,
                ),
                now_ms,
            )
        elif coordinator.error_code:
            error = coordinator_error(
                coordinator, self._group_id, len(self._metadata.cluster.brokers)
            )
            if ACTIONS.of(coordinator.error_code) is ErrorAction.FAIL:
                self._failed(error, now_ms)
            else:
                self._retry(error, now_ms)
        elif not has_address(coordinator):
            self._retry(
                impossible_coordinator(coordinator, self._group_id, response.node_id),
                now_ms,
            )
        else:
            self._found(Node(coordinator.node_id, coordinator.host, coordinator.port), now_ms)

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Send again after a back-off, possibly to another broker; report what is not retriable."""
        self._answered(request)
        if error.retriable:
            self._retry(error, now_ms)
        else:
            self._failed(error, now_ms)

    def _answered(self, request: UnsentRequest) -> None:
        if request is self._in_flight:
            self._in_flight = None

    def _found(self, node: Node, now_ms: int) -> None:
        broker = self._metadata.cluster.brokers.get(node.node_id)
        if broker is None:
            self._metadata.add_broker(node)
        elif broker[:3] != node[:3]:
            self._metadata.request_update()  # it moved: connections follow the metadata
        self.node_id = node.node_id
        self.last_failure = None
        self._is_wanted = False
        self._found_ms = now_ms
        self._seen_error = self._connections.connection_failed(node.node_id, Channel.COORDINATOR)
        logger.debug("Coordinator of group %s is %s", self._group_id, node)

    def _retry(self, error: KafkaError, now_ms: int) -> None:
        self.last_failure = error
        self._pause(now_ms)
        self.retries.failed(Stage.COORDINATOR, error, now_ms, begun_ms=self._wanted_ms)
        logger.debug("No coordinator of group %s yet: %s", self._group_id, error.message)

    def _failed(self, error: KafkaError, now_ms: int) -> None:
        self.last_failure = error
        self._pause(now_ms)
        self._is_wanted = False
        self.retries.ended(Stage.COORDINATOR)  # the listeners report it
        for listener in self._listeners:
            listener(error, now_ms)

    def _pause(self, now_ms: int) -> None:
        self._not_before_ms = now_ms + self._backoff.backoff_ms(self._attempts, self._clock)
        self._attempts += 1

    def __repr__(self) -> str:
        where = "unknown" if self.node_id is None else f"node {self.node_id}"
        return f"<CoordinatorFinder {self._group_id} {where} needed={self.is_needed}>"


def find_coordinator_request(group_ids: Sequence[str], version: int) -> FindCoordinatorRequest:
    """Return the request for groups; below `FIRST_BATCHED_VERSION` for the first of them."""
    if version >= FIRST_BATCHED_VERSION:
        return FindCoordinatorRequest(key_type=GROUP_KEY_TYPE, coordinator_keys=[*group_ids])
    return FindCoordinatorRequest(key=group_ids[0], key_type=GROUP_KEY_TYPE)


def found_coordinator(
    message: FindCoordinatorResponse, version: int, group_id: str
) -> Coordinator | None:
    """Return the part of the response about the group, in the form of the newer versions."""
    if version >= FIRST_BATCHED_VERSION:
        return next((c for c in message.coordinators if c.key == group_id), None)
    return Coordinator(
        key=group_id,
        node_id=message.node_id,
        host=message.host,
        port=message.port,
        error_code=message.error_code,
        error_message=message.error_message,
    )


def has_address(coordinator: Coordinator) -> bool:
    """Return whether a broker can be at the address of a response."""
    return coordinator.node_id >= 0 and bool(coordinator.host) and 0 < coordinator.port <= MAX_PORT


def impossible_coordinator(coordinator: Coordinator, group_id: str, node_id: int) -> ProtocolError:
    """Return the error for an address at which no broker can be; ``node_id`` has answered."""
    return ProtocolError(
        f'broker {coordinator.node_id} at "{coordinator.host}:{coordinator.port}" cannot be the '
        f'coordinator of group "{group_id}"',
        node=node_id,
    )


def coordinator_error(coordinator: Coordinator, group_id: str, broker_count: int) -> KafkaError:
    """Return the error for an error code of a response, from a cluster of so many brokers."""
    info = error_info(coordinator.error_code)
    if info.exception is GroupAuthorizationError:
        text = f'not allowed to use group "{group_id}"'
    else:
        text = f'the coordinator of group "{group_id}" cannot be found'
    hint = None
    if coordinator.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        hint = _without_offsets_topic(broker_count)
    return exception_for(
        coordinator.error_code, text, found=coordinator.error_message or None, hint=hint
    )


def _without_offsets_topic(broker_count: int) -> str:
    """Return the hint for the usual cause: the offsets topic is not there or has no leader."""
    if 0 < broker_count < DEFAULT_OFFSETS_REPLICAS:
        brokers = "1 broker" if broker_count == 1 else f"{broker_count} brokers"
        return (
            f"set offsets.topic.replication.factor={broker_count} on the brokers: usually it is "
            f"higher ({DEFAULT_OFFSETS_REPLICAS} by default) than the cluster of {brokers} allows, "
            "and the topic __consumer_offsets cannot be created"
        )
    return "see whether the topic __consumer_offsets exists and has leaders, and the brokers' logs"
