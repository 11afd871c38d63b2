"""What a request manager hands to the network client, and what it gets back.

Owns the value types of the seam between request managers (which decide *what* to ask) and the
network client (which decides *when and how* it goes out). Nothing here does I/O, keeps time or
knows an API: a request carries its message, the node it is for and the handler that is told the
outcome. Every request ends in exactly one call, ``handle_response`` or ``handle_failure``, on the
network thread, after the I/O of that poll is done.
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
    """Which TCP connection to a node a request travels on.

    A broker answers one connection in order, so a Fetch waiting ``fetch_max_wait_ms`` delays
    everything behind it. Group traffic therefore has a connection of its own.
    """

    DATA = 0
    COORDINATOR = 1


@dataclass(slots=True, eq=False)
class UnsentRequest:
    """One request on its way to a broker. Compared by identity.

    Parameters
    ----------
    message : RequestMessage
        A request dataclass of ``kfast.protocol.messages``.
    handler : ResponseHandler
        Told the outcome exactly once.
    node_id : int or None
        The broker; None asks for the least loaded one (bootstrap servers included).
    context : object
        Anything the handler wants to find again; the client never looks at it.
    timeout_ms : int or None
        How long it may wait for a connection, and then for the answer; None means
        ``request_timeout_ms``. An answer that is overdue ends the whole connection, so a caller's
        own deadline does not belong here: it is only for requests brokers may hold back longer.
    channel : Channel
        Which connection of the node carries it.
    max_version, min_version : int or None
        Narrow the versions the message may be sent in (a Fetch without topic ids: at most 12).
    created_ms : int
        Set by ``NetworkClient.send``.
    """

    message: RequestMessage
    handler: ResponseHandler
    node_id: int | None = None
    context: object = None
    timeout_ms: int | None = None
    channel: Channel = Channel.DATA
    max_version: int | None = None
    min_version: int | None = None
    created_ms: int = 0

    def __repr__(self) -> str:
        node = "least loaded" if self.node_id is None else self.node_id
        return f"<UnsentRequest {self.message.NAME} node={node} {self.channel.name}>"


@dataclass(slots=True, eq=False)
class ClientResponse:
    """One answered request.

    Attributes
    ----------
    message : Any
        The decoded response (for Fetch: the native ``FetchResponseView``).
    api_version : int
        Version request and response were sent in.
    node_id : int
        The broker that answered; negative for a bootstrap server.
    frame : OwnedBuffer
        The whole frame without its size prefix; views into it keep it alive.
    body_offset : int
        Where the response body starts in ``frame``.
    latency_ms : int
        From the send to the last byte of the answer.
    """

    message: Any
    api_version: int
    node_id: int
    frame: OwnedBuffer
    body_offset: int
    latency_ms: int


@dataclass(slots=True, eq=False)
class CompletedRequest:
    """The outcome of one request: exactly one of ``response`` and ``error`` is set."""

    request: UnsentRequest
    response: ClientResponse | None = None
    error: KafkaError | None = None


class ResponseHandler(Protocol):
    """Whoever sent a request. Called on the network thread; must not block."""

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Take the answer. The message may still hold Kafka error codes."""
        ...

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Learn that no answer will come: disconnect, timeout, version, malformed answer."""
        ...


class NodeConnections(Protocol):
    """What a request manager may ask about connections; the network client implements it."""

    def ready(self, node_id: int, now_ms: int, channel: Channel = Channel.DATA) -> bool:
        """Return whether a request sent now would be written now; else start to connect.

        False while connecting, in reconnect backoff, throttled, or when the connection has
        ``max_in_flight_requests_per_connection`` requests in flight.
        """
        ...

    def is_ready(self, node_id: int, now_ms: int, channel: Channel = Channel.DATA) -> bool:
        """Return what ``ready`` would, without starting a connection."""
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

        Raises
        ------
        UnsupportedVersionError
            The broker does not offer the API in any version in reach.
        IllegalStateError
            The node has no connection whose ApiVersions exchange is done.
        """
        ...

    def connection_failed(self, node_id: int, channel: Channel | None = None) -> KafkaError | None:
        """Return why the last connection to this node could not be made or was lost.

        Of one channel it is that connection's own error: another object after every failure.
        """
        ...

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        """Return the requests sent and not answered, of one node or of all."""
        ...

    def least_loaded_node(self, now_ms: int) -> int | None:
        """Return the node to send a request to that any broker can answer; None if none can."""
        ...


class FeatureSource(Protocol):
    """What may be asked about the features in force at a broker; the network client implements it.

    Apart from `NodeConnections`, because only KIP-848 asks.
    """

    def finalized_feature(
        self, node_id: int, name: str, channel: Channel = Channel.DATA
    ) -> int | None:
        """Return the level of a feature that is in force (KIP-584), 0 if it is not.

        None while no connection of that channel to the node is ready.
        """
        ...
