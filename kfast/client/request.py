"""The types between request managers and the network client: requests, responses, handlers.

Request managers decide *what* to request, the network client *when and how* it is sent. Nothing
here does I/O, keeps time or knows an API: a request carries its message, its node and the handler
of its outcome. Every request ends in exactly one call, ``handle_response`` or ``handle_failure``,
on the network thread, after the I/O of that poll is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kfast._native.buffers import OwnedBuffer
    from kfast.errors import KafkaError
    from kfast.protocol.message import RequestMessage


class Channel(IntEnum):
    """Which TCP connection to a node a request is sent on.

    A broker answers one connection in order, so a Fetch waiting ``fetch_max_wait_ms`` delays
    everything behind it. Group traffic therefore has a connection of its own.
    """

    DATA = 0
    COORDINATOR = 1


@dataclass(slots=True, eq=False)
class UnsentRequest:
    """One request on its way to a broker. Compared by identity."""

    message: RequestMessage
    handler: ResponseHandler
    """Called with the outcome exactly once."""
    node_id: int | None = None
    """None: the least loaded node, bootstrap servers included."""
    context: object = None
    """The handler's own; the client never reads it."""
    timeout_ms: int | None = None
    """How long it may wait for a connection, and then for the response; None means
    ``request_timeout_ms``. An overdue response ends the whole connection, so a caller's own
    deadline does not belong here: it is only for requests that brokers may hold back longer."""
    channel: Channel = Channel.DATA
    max_version: int | None = None
    """Narrows the versions the message is sent in (a Fetch without topic ids: at most 12)."""
    min_version: int | None = None
    created_ms: int = 0
    """Set by ``NetworkClient.send``."""

    def __repr__(self) -> str:
        node = "least loaded" if self.node_id is None else self.node_id
        return f"<UnsentRequest {self.message.NAME} node={node} {self.channel.name}>"


@dataclass(slots=True, eq=False)
class ClientResponse:
    """One answered request."""

    message: Any
    """The decoded response (for Fetch: the native ``FetchResponseView``)."""
    api_version: int
    """Version request and response were sent in."""
    node_id: int
    """The broker that answered; negative for a bootstrap server."""
    frame: OwnedBuffer
    """The whole frame without its size prefix; views into it keep it alive."""
    latency_ms: int
    """From the send to the last byte of the response."""
    throttle_ms: int = 0
    """How long the broker throttles this client for a quota."""


@dataclass(slots=True, eq=False)
class CompletedRequest:
    """The outcome of one request: exactly one of ``response`` and ``error`` is set."""

    request: UnsentRequest
    response: ClientResponse | None = None
    error: KafkaError | None = None


class ResponseHandler(Protocol):
    """The sender of a request. Called on the network thread; must not block."""

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Take the response. Its message may hold Kafka error codes."""
        ...

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Take the failure: disconnect, timeout, unsupported version, malformed response."""
        ...


class NodeConnections(Protocol):
    """The state of connections for request managers; the network client implements it."""

    def ready(self, node_id: int, now_ms: int, channel: Channel = Channel.DATA) -> bool:
        """Return whether a request sent now would be written now; else start to connect.

        False while connecting, in reconnect backoff, throttled, or when the connection has
        ``max_in_flight_requests_per_connection`` requests in flight.
        """
        ...

    def connection_delay(self, node_id: int, now_ms: int, channel: Channel = Channel.DATA) -> int:
        """Return the ms until a connect or a send to this node may be tried again."""
        ...

    def api_version(
        self,
        node_id: int,
        api_key: int,
        max_version: int | None = None,
        channel: Channel = Channel.DATA,
    ) -> int:
        """Return the version a request of this API would be sent in.

        Raises `UnsupportedVersionError` if the broker offers none in reach, and `IllegalStateError`
        if the node has no connection whose ApiVersions exchange is done.
        """
        ...

    def connection_failed(self, node_id: int, channel: Channel | None = None) -> KafkaError | None:
        """Return why the last connection to this node could not be made or was lost.

        Of one channel it is that connection's own error: another object after every failure.
        """
        ...

    def least_loaded_node(self, now_ms: int) -> int | None:
        """Return the node to send a request to that any broker can answer; None if none can."""
        ...

    def finalized_feature(
        self, node_id: int, name: str, channel: Channel = Channel.DATA
    ) -> int | None:
        """Return the level of a feature that is in force (KIP-584), 0 if it is not.

        None while no connection of that channel to the node is ready.
        """
        ...
