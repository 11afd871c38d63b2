"""CoordinatorAccess: whether a request can be sent to the group coordinator now, else when.

Requires the coordinator of the finder, opens its connection, and reports the errors after which the
coordinator is unknown. Sans-IO, network thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.client.request import Channel
from kfast.client.request_manager import NEVER_MS
from kfast.consumer.group.coordinator_finder import LOOK_AGAIN_MS
from kfast.errors import InvalidMetadataError, KafkaConnectionError, KafkaError, KafkaTimeoutError

if TYPE_CHECKING:
    from kfast.consumer.group.coordinator_finder import CoordinatorFinder
    from kfast.consumer.manager_context import ManagerContext


class CoordinatorAccess:
    """Access to the coordinator. ``next_ms``: after `node` returned None, the ms until a retry."""

    __slots__ = ("_connections", "_finder", "next_ms")

    def __init__(self, context: ManagerContext, finder: CoordinatorFinder) -> None:
        self._finder = finder
        self._connections = context.connections
        self.next_ms = NEVER_MS

    def node(self, now_ms: int, channel: Channel = Channel.COORDINATOR) -> int | None:
        """Return the coordinator if a request sent now would be written now."""
        node_id = self._finder.node_id
        if node_id is None:
            # The FindCoordinator response ends the network thread's wait by itself.
            self.next_ms = 0 if self._finder.require(now_ms) else NEVER_MS
            return None
        if self._connections.ready(node_id, now_ms, channel):
            self._finder.connected(now_ms)
            return node_id
        delay_ms = self._connections.connection_delay(node_id, now_ms, channel)
        self.next_ms = delay_ms or LOOK_AGAIN_MS
        return None

    def version(
        self,
        node_id: int,
        api_key: int,
        max_version: int | None,
        channel: Channel = Channel.COORDINATOR,
    ) -> int:
        """Return the version a request to the node that `node` returned will have.

        Raises
        ------
        UnsupportedVersionError
            The coordinator does not offer the API in any version in reach.
        """
        return self._connections.api_version(node_id, api_key, max_version, channel)

    def failed(self, node_id: int | None, error: KafkaError, now_ms: int) -> None:
        """Note a request without a response; only lost connections and timeouts matter (G-04)."""
        if isinstance(error, KafkaConnectionError | KafkaTimeoutError | InvalidMetadataError):
            self._finder.mark_unknown(error.message, now_ms, node_id=node_id)

    def refused(self, node_id: int | None, error_name: str, now_ms: int) -> None:
        """Note a response by which the broker is not, or cannot be, the coordinator."""
        self._finder.mark_unknown(error_name, now_ms, node_id=node_id)

    @property
    def unknown_reason(self) -> str | None:
        """Why the coordinator is unknown, for messages; None while it is known."""
        if self._finder.node_id is not None:
            return None
        failure = self._finder.last_failure
        if failure is None:
            return "the group's coordinator is not known yet"
        return f"{failure.message}: {failure.cause}" if failure.cause else failure.message

    @property
    def unknown_hint(self) -> str | None:
        """What to do about it, if that is known."""
        failure = self._finder.last_failure
        return None if failure is None or self._finder.node_id is not None else failure.hint

    def __repr__(self) -> str:
        return f"<CoordinatorAccess {self._finder!r}>"
