"""HeartbeatRequests: keeps a member of a classic group alive at its coordinator.

Owns the one Heartbeat that may be in flight and, with `Heartbeat`, when it goes out; sends only
while its user polls it, that is in COMPLETING_REBALANCE and STABLE. What an error means for the
membership is the user's business, told by ``on_refused``. Sans-IO, network thread.

An answer counts only under the membership the request was sent under: one that was overtaken by a
new generation, member id or coordinator is dropped. A session that ends without a good answer means
that the coordinator cannot be trusted to be the right one: it is looked for anew (G-05), also when
no heartbeat could be sent at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kfast.client.request import Channel, UnsentRequest
from kfast.client.request_manager import NEVER_MS
from kfast.consumer.group.heartbeat import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfast.client.request import ClientResponse
    from kfast.consumer.group.classic.messages import GroupRequests
    from kfast.consumer.group.coordinator_access import CoordinatorAccess
    from kfast.consumer.group.coordinator_finder import CoordinatorFinder
    from kfast.consumer.group.membership import MemberIdentity
    from kfast.consumer.manager_context import ManagerContext
    from kfast.errors import KafkaError
    from kfast.protocol.messages.heartbeat import HeartbeatResponse


class HeartbeatRequests:
    """The heartbeats of one member.


    Attributes
    ----------
    timers : Heartbeat
        When the next one is due, and counts.
    next_ms : int
        After `poll`: the ms until it has something to do again.
    """

    def __init__(
        self,
        context: ManagerContext,
        finder: CoordinatorFinder,
        access: CoordinatorAccess,
        requests: GroupRequests,
        *,
        on_refused: Callable[[int, int], None],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        config = context.config
        self.timers = Heartbeat(config, context.clock)
        self.next_ms = NEVER_MS
        self._session_timeout_ms = config.session_timeout_ms
        self._finder = finder
        self._access = access
        self._requests = requests
        self._on_refused = on_refused
        self._on_error = on_error
        self._coordinator_id: int | None = None
        self._in_flight: UnsentRequest | None = None

    def joined(self, now_ms: int) -> None:
        """Note that a generation was joined."""
        self._in_flight = None
        self.timers.start(now_ms)

    def stop(self) -> None:
        """Drop what is in flight: the membership it belongs to is over."""
        self._in_flight = None

    def poll(
        self, identity: MemberIdentity, node_id: int | None, now_ms: int
    ) -> UnsentRequest | None:
        """Return the heartbeat to send now, if one is due.

        Parameters
        ----------
        identity : MemberIdentity
            Who is alive.
        node_id : int or None
            The coordinator, None while it cannot be written to.
        now_ms : int
            The time.
        """
        self.next_ms = NEVER_MS
        timers = self.timers
        if self._finder.node_id != self._coordinator_id:
            self._coordinator_id = self._finder.node_id
            self._in_flight = None
            timers.restart_session(now_ms)
        if self._coordinator_id is None:
            return None
        left_ms = timers.ms_to_session_end(now_ms)
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
        wait_ms = timers.ms_to_next(now_ms)
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
        timers.sent(now_ms)
        return self._in_flight

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Take an answer, unless it is out of date."""
        if request is not self._in_flight:
            return
        self._in_flight = None
        code = cast("HeartbeatResponse", response.message).error_code
        if code:
            self._on_refused(code, now_ms)
        else:
            self.timers.succeeded(now_ms)

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Try again after a pause."""
        self._access.failed(request.node_id, error, now_ms)
        if request is not self._in_flight:
            return
        self._in_flight = None
        self.timers.failed(now_ms)
        if not error.retriable:
            self._on_error(error)

    def __repr__(self) -> str:
        return f"<HeartbeatRequests in_flight={self._in_flight is not None} {self.timers!r}>"
