"""HeartbeatRequests: Heartbeat requests of a classic group member.

Owns the one request in flight and, with `Heartbeat`, when the next is sent; sends only while the
membership polls it, in COMPLETING_REBALANCE and STABLE. What an error means for the membership is
decided by the `HeartbeatListener`. Sans-IO, network thread.

A response to a request of an earlier generation, member id or coordinator is dropped. A session
that ends without a successful heartbeat, or without any sent, makes the coordinator unknown (G-05).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from kfast.client.request import Channel, UnsentRequest
from kfast.client.request_manager import NEVER_MS
from kfast.consumer.group.heartbeat import Heartbeat

if TYPE_CHECKING:
    from kfast.client.request import ClientResponse
    from kfast.consumer.group.classic.messages import GroupRequests
    from kfast.consumer.group.coordinator_access import CoordinatorAccess
    from kfast.consumer.group.coordinator_finder import CoordinatorFinder
    from kfast.consumer.group.membership import MemberIdentity
    from kfast.consumer.manager_context import ManagerContext
    from kfast.errors import KafkaError
    from kfast.protocol.messages.heartbeat import HeartbeatResponse


class HeartbeatListener(Protocol):
    """The membership, for which the heartbeats are sent."""

    def heartbeat_refused(self, error_code: int, now_ms: int) -> None:
        """Handle a response with an error code."""
        ...

    def heartbeat_failed(self, error: KafkaError, now_ms: int) -> None:
        """Handle a failure; the next heartbeat comes after a back-off."""
        ...

    def heartbeat_accepted(self, now_ms: int) -> None:
        """Handle a response without error."""
        ...


class HeartbeatRequests:
    """The heartbeats of one member. ``next_ms``: after `poll`, the ms until the next one."""

    def __init__(
        self,
        context: ManagerContext,
        finder: CoordinatorFinder,
        access: CoordinatorAccess,
        requests: GroupRequests,
        listener: HeartbeatListener,
    ) -> None:
        config = context.config
        self.timer = Heartbeat(config, context.clock)
        self.next_ms = NEVER_MS
        self._session_timeout_ms = config.session_timeout_ms
        self._finder = finder
        self._access = access
        self._requests = requests
        self._listener = listener
        self._coordinator_id: int | None = None
        self._in_flight: UnsentRequest | None = None

    def joined(self, now_ms: int) -> None:
        """Note that a generation was joined."""
        self._in_flight = None
        self.timer.start(now_ms)

    def stop(self) -> None:
        """Drop the response in flight: its generation has ended."""
        self._in_flight = None

    def poll(
        self, identity: MemberIdentity, node_id: int | None, now_ms: int
    ) -> UnsentRequest | None:
        """Return the heartbeat to send now; ``node_id`` is None while no request can be sent."""
        self.next_ms = NEVER_MS
        timer = self.timer
        if self._finder.node_id != self._coordinator_id:
            self._coordinator_id = self._finder.node_id
            self._in_flight = None
            timer.restart_session(now_ms)
        if self._coordinator_id is None:
            return None
        left_ms = timer.ms_to_session_end(now_ms)
        if left_ms == 0:
            self.next_ms = 0
            self._finder.mark_unknown(
                f"no heartbeat succeeded within session_timeout_ms ({self._session_timeout_ms})",
                now_ms,
            )
            return None
        self.next_ms = left_ms
        if self._in_flight is not None:
            return None
        wait_ms = timer.ms_to_next(now_ms)
        if wait_ms > 0:
            self.next_ms = min(left_ms, wait_ms)
            return None
        if node_id is None:
            return None
        self._in_flight = UnsentRequest(
            self._requests.heartbeat(identity),
            self,
            node_id=node_id,
            channel=Channel.COORDINATOR,
            min_version=self._requests.member_version,
        )
        timer.sent(now_ms)
        return self._in_flight

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Handle a response, unless it is out of date."""
        if request is not self._in_flight:
            return
        self._in_flight = None
        code = cast("HeartbeatResponse", response.message).error_code
        if code:
            self._listener.heartbeat_refused(code, now_ms)
        else:
            self.timer.succeeded(now_ms)
            self._listener.heartbeat_accepted(now_ms)

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Send the next heartbeat after a back-off."""
        self._access.failed(request.node_id, error, now_ms)
        if request is not self._in_flight:
            return
        self._in_flight = None
        self.timer.failed(now_ms)
        self._listener.heartbeat_failed(error, now_ms)

    def __repr__(self) -> str:
        return f"<HeartbeatRequests in_flight={self._in_flight is not None} {self.timer!r}>"
