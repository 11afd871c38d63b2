"""A network in memory, in virtual time, for tests of the network client without sockets.

``ScriptedNetwork`` is transport factory, selector and resolver at once. A ``ScriptedServer`` stands
behind each (ip, port); what is not there refuses connections. When nothing is ready, ``select``
moves the ``FakeClock`` by the whole timeout, so a test runs hours of a client's life at once.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kfast._native.frame import FrameReceiver
from kfast.client.cluster import Node
from kfast.client.node_addresses import Address
from kfast.client.request import Channel, ClientResponse, UnsentRequest
from kfast.errors import KafkaError
from kfast.network.selector import HasFileno, Selected
from kfast.network.transport import EVENT_READ, EVENT_WRITE
from kfast.protocol.api_keys import API_VERSIONS, ApiKey
from kfast.protocol.message import Message
from kfast.protocol.messages import REQUESTS
from kfast.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kfast.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from kfast.testing.headers import RequestHeader, decode_request_header, encode_response
from tests.fake_clock import FakeClock

Answer = Callable[["Received"], Message | bytes | None]
"""Gives the response to a request; raw bytes go out as they are, None sends nothing."""


@dataclass(slots=True)
class Received:
    """One request a server got."""

    header: RequestHeader
    message: Message
    transport: ScriptedTransport

    def reply(self, message: Message) -> None:
        """Answer late."""
        frame = encode_response(message, self.header.api_version, self.header.correlation_id)
        self.transport.deliver(frame)


def current_ranges() -> dict[int, tuple[int, int]]:
    """Return what a broker that speaks everything offers."""
    return {int(key): versions for key, versions in API_VERSIONS.items()}


@dataclass(slots=True)
class ScriptedServer:
    """Something that listens.

    Attributes
    ----------
    ranges : dict
        Versions offered.
    answers : dict
        API key to the function that answers; APIs without one get no answer.
    is_silent, closes_at_once, is_blackhole : bool
        Never answers; closes when the first bytes come; never completes the TCP handshake.
    greeting : bytes or None
        What it says instead of Kafka when the first bytes come.
    received : list of Received
        Every request so far.
    """

    ranges: dict[int, tuple[int, int]] = field(default_factory=current_ranges)
    answers: dict[int, Answer] = field(default_factory=dict)
    is_silent: bool = False
    closes_at_once: bool = False
    is_blackhole: bool = False
    greeting: bytes | None = None
    received: list[Received] = field(default_factory=list)
    transports: list[ScriptedTransport] = field(default_factory=list)

    def requests(self, api_key: int) -> list[Received]:
        """Return the requests of one API."""
        return [r for r in self.received if r.header.api_key == api_key]

    def open_transports(self) -> list[ScriptedTransport]:
        """Return the connections the client has not closed."""
        return [t for t in self.transports if not t.is_closed]

    def kill(self) -> None:
        """Reset every open connection."""
        for transport in self.open_transports():
            transport.fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def take(self, transport: ScriptedTransport, frame: bytes) -> None:
        header = decode_request_header(frame)
        request = REQUESTS[header.api_key]
        version = header.api_version
        low, high = self.ranges.get(header.api_key, (-1, -1))
        if header.api_key == ApiKey.API_VERSIONS and not low <= version <= high:
            refusal = ApiVersionsResponse(error_code=35)
            if high >= 3:
                refusal.api_keys = [ApiVersion(api_key=18, min_version=low, max_version=high)]
            transport.deliver(encode_response(refusal, 0, header.correlation_id))
            return
        message = request.decode(frame, version, header.body_offset)
        received = Received(header, message, transport)
        self.received.append(received)
        answer = self.answers.get(header.api_key)
        if answer is None and header.api_key == ApiKey.API_VERSIONS:
            answer = self._versions
        response = None if answer is None else answer(received)
        if isinstance(response, bytes):
            transport.deliver(response)
        elif response is not None:
            received.reply(response)

    def _versions(self, received: Received) -> Message:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self.ranges.items()
            ]
        )


class ScriptedTransport:
    """The client's end of a connection; the server's end is ``deliver``, ``end`` and ``fail``."""

    is_raw = False
    is_handshaking = False
    has_pending = False
    wants_write = False

    def __init__(self, server: ScriptedServer | None) -> None:
        self.server = server
        self.is_closed = False
        self.is_output_ended = False
        self.sent = bytearray()
        self.max_recv = 1 << 30
        self.max_send = 1 << 30
        self.send_budget = 1 << 30
        self._inbound: deque[bytes] = deque()
        self._is_ended = False
        self._error: OSError | None = None
        self._frames = FrameReceiver(1 << 24)
        if server is not None:
            server.transports.append(self)

    # --- the server's end ---

    def deliver(self, data: bytes) -> None:
        self._inbound.append(data)

    def end(self) -> None:
        self._is_ended = True

    def fail(self, error: OSError) -> None:
        self._error = error

    # --- the client's end ---

    def fileno(self) -> int:
        return id(self)

    def setup(self) -> int:
        if self.server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return EVENT_WRITE if self.server.is_blackhole else 0

    def ready_events(self) -> int:
        if self.server is not None and self.server.is_blackhole:
            return 0
        can_read = self._inbound or self._is_ended or self._error
        return (EVENT_READ if can_read else 0) | (EVENT_WRITE if self._room() else 0)

    def recv_into(self, view: memoryview) -> int | None:
        if self._inbound:
            data = self._inbound.popleft()
            count = min(len(view), len(data), self.max_recv)
            view[:count] = data[:count]
            if count < len(data):
                self._inbound.appendleft(data[count:])
            return count
        if self._error is not None:
            raise self._error
        return 0 if self._is_ended else None

    def send(self, data: memoryview) -> int | None:
        if self._error is not None:
            raise self._error
        if self._is_ended:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        count = min(len(data), self._room())
        if count == 0:
            return None
        self.send_budget -= count
        self.sent += data[:count]
        assert self.server is not None
        if self.server.greeting is not None:
            self.deliver(self.server.greeting)
        elif self.server.closes_at_once:
            self.end()
        elif not self.server.is_silent:
            for frame in self._frames.feed(bytes(data[:count])):
                self.server.take(self, bytes(frame.view()))
        return count

    def end_output(self) -> None:
        self.is_output_ended = True

    def _room(self) -> int:
        return min(self.max_send, self.send_budget)

    def close(self) -> None:
        self.is_closed = True


class ScriptedNetwork:
    """Servers by address, names, and a selector in virtual time."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.servers: dict[tuple[str, int], ScriptedServer] = {}
        self.names: dict[str, Sequence[str] | OSError | None] = {}
        self.canonical: dict[str, Sequence[str]] = {}
        self.look_ups: list[str] = []
        self.attempts: list[tuple[int, str, int]] = []
        self.selects = 0
        self.is_closed = False
        self._interest: dict[HasFileno, tuple[int, object]] = {}
        self._is_woken = False

    def listen(self, ip: str, port: int = 9092, **settings: object) -> ScriptedServer:
        server = ScriptedServer(**settings)  # type: ignore[arg-type]
        self.servers[ip, port] = server
        return server

    # --- TransportFactory ---

    def connect(self, node: Node, address: Address) -> ScriptedTransport:
        ip, port = address.ip, int(address.sockaddr[1])
        self.attempts.append((self.clock.now, ip, port))
        return ScriptedTransport(self.servers.get((ip, port)))

    # --- Resolver ---

    def resolve(self, host: str, port: int) -> Sequence[Address] | None:
        self.look_ups.append(host)
        found = self.names.get(host, [host])
        if isinstance(found, OSError):
            raise found
        if found is None:
            return None
        return [
            Address(socket.AF_INET6 if ":" in ip else socket.AF_INET, (ip, port)) for ip in found
        ]

    def canonical_hosts(self, host: str, port: int) -> Sequence[str]:
        return self.canonical[host]

    # --- Selector ---

    def set_interest(self, transport: HasFileno, events: int, previous: int, key: object) -> None:
        known = self._interest.get(transport, (0, None))[0]
        assert known == previous
        if events:
            self._interest[transport] = (events, key)
        else:
            self._interest.pop(transport, None)

    def interest(self, transport: HasFileno) -> int:
        return self._interest.get(transport, (0, None))[0]

    def select(self, timeout_ms: int) -> Selected:
        self.selects += 1
        woken, self._is_woken = self._is_woken, False
        events: list[tuple[object, int]] = []
        for transport, (wanted, key) in self._interest.items():
            assert isinstance(transport, ScriptedTransport)
            if ready := wanted & transport.ready_events():
                events.append((key, ready))
        if not events and not woken:
            self.clock.advance(timeout_ms)
        return events, woken

    def receive(self, receivers: dict[int, FrameReceiver], timeout_ms: int) -> tuple[int, bool]:
        return 0, True  # nothing here is a socket: all is left to `select`

    def wakeup(self) -> None:
        self._is_woken = True

    def close(self) -> None:
        self.is_closed = True


class Outcomes:
    """A response handler that writes down what it is told."""

    def __init__(self) -> None:
        self.responses: list[tuple[UnsentRequest, ClientResponse]] = []
        self.failures: list[tuple[UnsentRequest, KafkaError]] = []

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        self.responses.append((request, response))

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        self.failures.append((request, error))

    @property
    def errors(self) -> list[KafkaError]:
        return [error for _, error in self.failures]

    @property
    def count(self) -> int:
        return len(self.responses) + len(self.failures)


def metadata_answer(brokers: Mapping[int, tuple[str, int]]) -> Answer:
    """Return an answer to Metadata requests that names these brokers."""
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port)
            for node_id, (host, port) in brokers.items()
        ],
        cluster_id="c",
    )
    return lambda received: response


ALL_CHANNELS = tuple(Channel)
