"""CoordinatorFinder: knows which broker looks after the group, and asks when nobody does.

Owns the coordinator's node id and the FindCoordinator requests. It asks only while someone needs
the coordinator (`require`), and never decides that it is unknown but for these reasons: an answer
15 or 16, a lost connection, a timeout (G-04); whoever sees one calls `mark_unknown`. A connection
to the coordinator that breaks while nothing is in flight is noticed here. Sans-IO, network thread.

| answer to FindCoordinator | action |
|---|---|
| 0 with a usable address | known; the broker is added to the metadata |
| 30, 24, others that a retry cannot mend | `error` is set, listeners told; asked again later |
| 15, 14, -1, no answer, an answer without our group | asked again after a pause that grows |

Poll it after the managers that may require it, so that the question goes out in the same turn.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

from kfast._clock import ExponentialBackoff
from kfast.client.cluster import Node
from kfast.client.request import Channel, UnsentRequest
from kfast.client.request_manager import IDLE, PollResult
from kfast.consumer.error_actions import ErrorAction, ErrorActions
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
    from collections.abc import Callable

    from kfast.client.request import ClientResponse
    from kfast.consumer.manager_context import ManagerContext
    from kfast.protocol.messages.find_coordinator import FindCoordinatorResponse

logger = logging.getLogger(__name__)

FIRST_BATCHED_VERSION: Final = 4
"""From here on FindCoordinator takes and gives lists (KIP-699)."""

MAX_PORT: Final = 65_535

LOOK_AGAIN_MS: Final = 100
"""When to look for a broker to ask where nothing else says it."""

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
    """Finds the group's coordinator.


    Attributes
    ----------
    node_id : int or None
        The coordinator, None while unknown. Requests to it go by `Channel.COORDINATOR`.
    error : KafkaError or None
        Why it cannot be found, if asking again at once would not help. Forgotten when the next
        attempt begins, so that a permission granted meanwhile is noticed.
    last_failure : KafkaError or None
        Why it is not known at the moment, whatever the reason; for messages.
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
        self.node_id: int | None = None
        self.error: KafkaError | None = None
        self.last_failure: KafkaError | None = None
        self._is_wanted = False
        self._in_flight: UnsentRequest | None = None
        self._not_before_ms = 0
        self._attempts = 0
        self._found_ms = 0
        self._seen_error: KafkaError | None = None

    # --- what others say --------------------------------------------------------------------------

    @property
    def is_needed(self) -> bool:
        """Whether the coordinator is unknown and someone waits for it."""
        return self._is_wanted and self.node_id is None

    def require(self, now_ms: int) -> bool:  # noqa: ARG002 - as all that others tell it
        """Note that the coordinator is needed.

        Returns
        -------
        bool
            Whether this is news: poll the finder at once.
        """
        if self.node_id is not None or self._is_wanted:
            return False
        self._is_wanted = True
        return True

    def mark_unknown(self, reason: str, now_ms: int, *, node_id: int | None = None) -> None:
        """Note that the coordinator has moved or cannot be reached.

        Parameters
        ----------
        reason : str
            Why, for the log.
        now_ms : int
            The time.
        node_id : int or None
            Whom the reason is about; without effect when that is not the coordinator by now.
        """
        if self.node_id is None or node_id not in {None, self.node_id}:
            return
        logger.info("Coordinator %d of group %s is lost: %s", self.node_id, self._group_id, reason)
        self.node_id = None
        self.last_failure = KafkaError(
            f'the coordinator of group "{self._group_id}" was lost', cause=reason
        )
        # One that was lost soon after it was found is looked for at a gentle pace: the answer may
        # name a dead broker for as long as the cluster has not noticed.
        if now_ms - self._found_ms >= self._backoff.max_ms:
            self._attempts = 0
            self._not_before_ms = now_ms
        else:
            self._pause(now_ms)

    def take_error(self) -> KafkaError | None:
        """Return `error` and forget it."""
        error, self.error = self.error, None
        return error

    def add_error_listener(self, listener: Callable[[KafkaError, int], None]) -> None:
        """Call ``listener(error, now_ms)`` whenever `error` is set."""
        self._listeners.append(listener)

    # --- asking -----------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> PollResult:
        """Return the FindCoordinator request to send now, if it is due."""
        self._check_connection(now_ms)
        if not self.is_needed or self._in_flight is not None:
            return IDLE
        if now_ms < self._not_before_ms:
            return PollResult((), self._not_before_ms - now_ms)
        # The coordinator alone must not become the whole cluster: a broker made known before any
        # metadata would close the way back to the bootstrap servers.
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
        self.error = None
        self._in_flight = UnsentRequest(
            _request(self._group_id, version),
            self,
            node_id=node_id,
            max_version=version,
            min_version=version,
        )
        return PollResult((self._in_flight,))

    def _wait_for(self, node_id: int | None, now_ms: int) -> int:
        """Return how long to wait for a broker to ask."""
        if node_id is None:
            self._metadata.request_update()  # its request makes a stranded client start over
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
        if not error.retriable:
            self._failed(error, now_ms)

    # --- outcomes ---------------------------------------------------------------------------------

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Take the answer of a broker."""
        self._answered(request)
        message = cast("FindCoordinatorResponse", response.message)
        found = _coordinator(message, response.api_version, self._group_id)
        if found is None:
            self._retry(
                ProtocolError(
                    f'the answer about the coordinator of group "{self._group_id}" is about others',
                    node=response.node_id,
                ),
                now_ms,
            )
        elif found.error_code:
            error = _error_of(found, self._group_id)
            if ACTIONS.of(found.error_code) is ErrorAction.FAIL:
                self._failed(error, now_ms)
            else:
                self._retry(error, now_ms)
        elif found.node_id < 0 or not found.host or not 0 < found.port <= MAX_PORT:
            self._retry(
                ProtocolError(
                    f'broker {found.node_id} at "{found.host}:{found.port}" cannot be the '
                    f'coordinator of group "{self._group_id}"',
                    node=response.node_id,
                ),
                now_ms,
            )
        else:
            self._found(Node(found.node_id, found.host, found.port), now_ms)

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Ask again after a pause, another broker perhaps; tell what a retry cannot mend."""
        self._answered(request)
        if error.retriable:
            self._retry(error, now_ms)
        else:
            self._failed(error, now_ms)

    def _answered(self, request: UnsentRequest) -> None:
        if request is self._in_flight:
            self._in_flight = None

    def _found(self, node: Node, now_ms: int) -> None:
        known = self._metadata.cluster.brokers.get(node.node_id)
        if known is None:
            self._metadata.add_broker(node)
        elif known[:3] != node[:3]:
            self._metadata.request_update()  # it moved: connections follow the metadata
        self.node_id = node.node_id
        self.error = self.last_failure = None
        self._is_wanted = False
        self._found_ms = now_ms
        self._seen_error = self._connections.connection_failed(node.node_id, Channel.COORDINATOR)
        logger.debug("Coordinator of group %s is %s", self._group_id, node)

    def _retry(self, error: KafkaError, now_ms: int) -> None:
        self.last_failure = error
        self._pause(now_ms)
        logger.debug("No coordinator of group %s yet: %s", self._group_id, error.message)

    def _failed(self, error: KafkaError, now_ms: int) -> None:
        self.error = self.last_failure = error
        self._pause(now_ms)
        self._is_wanted = False
        for listener in self._listeners:
            listener(error, now_ms)

    def _pause(self, now_ms: int) -> None:
        self._not_before_ms = now_ms + self._backoff.backoff_ms(self._attempts, self._clock)
        self._attempts += 1

    def __repr__(self) -> str:
        where = "unknown" if self.node_id is None else f"node {self.node_id}"
        return f"<CoordinatorFinder {self._group_id} {where} needed={self.is_needed}>"


def _request(group_id: str, version: int) -> FindCoordinatorRequest:
    if version >= FIRST_BATCHED_VERSION:
        return FindCoordinatorRequest(key_type=GROUP_KEY_TYPE, coordinator_keys=[group_id])
    return FindCoordinatorRequest(key=group_id, key_type=GROUP_KEY_TYPE)


def _coordinator(
    message: FindCoordinatorResponse, version: int, group_id: str
) -> Coordinator | None:
    """Return what the answer says about the group, in the form of the newer versions."""
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


def _error_of(found: Coordinator, group_id: str) -> KafkaError:
    info = error_info(found.error_code)
    if info.exception is GroupAuthorizationError:
        what = f'not allowed to use group "{group_id}"'
    else:
        what = f'the coordinator of group "{group_id}" cannot be found'
    return exception_for(found.error_code, what, found=found.error_message or None)
