"""The protocol state of one connection to one broker: bytes in, bytes out, in-flight requests.

Sans-IO: the owner of the socket writes what ``data_to_send`` gives, puts what arrives into
``next_view`` and reports it with ``data_received``. Network thread only; time is an argument.

Theory of operation. ``start`` queues the log-in, if the security protocol has one, and then the
ApiVersions exchange; nothing else is sent before they are done, and no answer of more than
``MAX_SETUP_FRAME_BYTES`` is accepted. Then requests are sent in order and their responses arrive in
the same order: the oldest in-flight request must have the correlation id of the next frame. A frame
that does not match, a size beyond the limit or a malformed body means that the two sides are out of
step; the stream is never used again (``KafkaError`` from ``data_received``, then ``abandon``).

A session that ends is authenticated again in place (KIP-368): ``reauthenticate`` queues the log-in
behind what is in flight, and the owner sends nothing else until ``is_authenticating`` is over. Its
answers come after those of the requests in flight, because a broker answers in order.

The first four bytes received are checked before they are used as a frame size: an HTTP or TLS
server is recognised by them, and its answer becomes part of the error.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger
from kfast._native.frame import FrameReceiver, read_response_header
from kfast.client import diagnosis
from kfast.client.api_versions import ApiVersionsHandshake, newest_version_of_release
from kfast.client.cluster import Node
from kfast.client.in_flight import InFlightRequest, InFlightRequests
from kfast.client.request import Channel, ClientResponse, CompletedRequest, UnsentRequest
from kfast.errors import AuthenticationError, IllegalStateError, KafkaError, ProtocolError
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.headers import decode_response_header, encode_request, has_response_tags
from kfast.protocol.messages import response_reader

if TYPE_CHECKING:
    from kfast._native.buffers import OwnedBuffer
    from kfast.client.login import Login, Logins
    from kfast.protocol.message import RequestMessage

logger = get_logger(__name__)

FIRST_CORRELATION_ID: Final = 0x0D0A0D0A
"""CR LF CR LF on the wire. Kafka accepts any number; an HTTP server, which waits for the end of a
line, answers at once instead of never, and can be named in the error."""

JOINED_BYTES: Final = 16_384
"""Most bytes of requests that are written as one: a record of TLS has no more."""

LAST_CORRELATION_ID: Final = 0x7FFFFFFF
FIRST_BYTES: Final = 4
MAX_SETUP_FRAME_BYTES: Final = 512 << 10
"""Largest response accepted before the connection is ready; brokers have the same limit."""

GREETING_BYTES: Final = 256
"""How much of a foreign server's first line is read."""

CLIENT_THROTTLE_FROM: Final[dict[int, int]] = {
    ApiKey.FETCH: 8,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.METADATA: 6,
    ApiKey.OFFSET_COMMIT: 4,
    ApiKey.OFFSET_FETCH: 4,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.JOIN_GROUP: 3,
    ApiKey.HEARTBEAT: 2,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.SYNC_GROUP: 2,
    ApiKey.API_VERSIONS: 2,
}
"""Version from which the client waits out ``throttle_time_ms`` (KIP-219); before it the broker
delays its response, and for other APIs the client does not wait."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The settings that are the same for every connection of a client."""

    client_id: str
    """Sent in every request header."""
    client_version: str
    """kfast's version, reported to brokers (KIP-511)."""
    max_frame_bytes: int
    """Largest response accepted (``receive_message_max_bytes``)."""
    release: tuple[int, ...] | None = None
    """Kafka release whose API versions are not exceeded (``api_version``)."""
    security_protocol: str = "PLAINTEXT"
    """As configured, for messages."""
    logins: Logins | None = None
    """Makes the log-ins; None for a security protocol without SASL."""


class BrokerConnection:
    """The protocol state of one connection; ``node`` and ``channel`` name it in errors.

    ``handshake_max_version`` is the highest ApiVersions version to open with.
    """

    def __init__(
        self,
        node: Node,
        channel: Channel,
        settings: ConnectionSettings,
        handshake_max_version: int | None = None,
    ) -> None:
        self.node = node
        self.channel = channel
        self.is_ready = False
        """Whether the ApiVersions exchange is done, so that requests can be sent; see
        ``is_authenticating``."""
        self.in_flight = InFlightRequests()
        """Sent and not answered; the ApiVersions exchange is not in it."""
        self.last_activity_ms = 0
        """When bytes last moved, or the connection started."""
        self.throttle_ms = 0
        """``throttle_time_ms`` of the last responses; reset by ``take_throttle_ms``."""
        self._client_id = settings.client_id
        self._receiver = FrameReceiver(settings.max_frame_bytes)
        self._release = settings.release
        self._security_protocol = settings.security_protocol
        self.joins_requests = settings.security_protocol.endswith("SSL")
        """Whether requests of one turn are written as one, so that they share a TLS record."""
        self._handshake = ApiVersionsHandshake(
            settings.client_version, self._ceiling(ApiKey.API_VERSIONS, handshake_max_version)
        )
        self._logins = settings.logins
        self._login: Login | None = None
        self._authenticate_version: int | None = None
        self.reauthenticate_ms: int | None = None
        """When the session is to be authenticated again; None if it has no end."""
        self.login_deadline_ms: int | None = None
        """When authenticating again has taken too long."""
        self.steps = 0
        """Requests of the set-up and of log-ins so far: each follows the answer to the last."""
        self._handshake_id: int | None = None
        self._next_correlation_id = FIRST_CORRELATION_ID
        self._outgoing: deque[memoryview] = deque()
        self._view: memoryview | None = None
        self._first_bytes = b""
        self._greeting: bytearray | None = None
        self._greeting_bytes = 0
        self._undecodable: InFlightRequest | None = None
        self._first_request_id: int | None = None

    # --- set-up -----------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Send the first request of log-in or ApiVersions; once, when the transport is up."""
        self.last_activity_ms = now_ms
        if self._logins is None:
            self._send_handshake()
        else:
            self._login = self._logins.login(self.node)
            self.continue_login(now_ms)

    def _send_handshake(self) -> None:
        self._handshake_id = self._queue(self._handshake.request(), self._handshake.version)

    def _queue(self, message: RequestMessage, version: int) -> int:
        """Queue a request of the set-up or of the log-in; return its correlation id."""
        self.steps += 1
        taken = self._take_correlation_id()
        frame = encode_request(message, version, taken, self._client_id)
        self._outgoing.append(memoryview(frame))
        return taken

    @property
    def handshake(self) -> ApiVersionsHandshake:
        """The ApiVersions exchange that opens the connection."""
        return self._handshake

    # --- log-in -----------------------------------------------------------------------------------

    @property
    def is_authenticating(self) -> bool:
        """Whether a log-in is under way: nothing else may be sent."""
        return self._login is not None

    @property
    def is_waiting_for_worker(self) -> bool:
        """Whether ``continue_login`` is to be called when the login worker is done."""
        return self._login is not None and self._login.is_waiting_for_worker

    def reauthenticate(self, now_ms: int, timeout_ms: int) -> None:
        """Authenticate again, behind what is in flight; raises as ``continue_login``."""
        if self._logins is None or not self.is_ready or self._login is not None:
            raise IllegalStateError(f"{self!r} has no session to authenticate again")
        self.reauthenticate_ms = None
        self.login_deadline_ms = now_ms + timeout_ms
        self._login = self._logins.login(self.node, self._authenticate_version)
        self.continue_login(now_ms)

    def continue_login(self, now_ms: int) -> None:
        """Queue the next request of the log-in, or end it; nothing if there is nothing to do.

        A `KafkaError` means that the log-in has failed: close the transport and call ``abandon``.
        """
        login = self._login
        if login is None:
            return
        try:
            next_request = login.next_request()
        except AuthenticationError as error:
            raise self._login_failed(error) from error.__cause__
        if next_request is not None:
            self._handshake_id = self._queue(*next_request)
        elif login.is_complete:
            self._authenticated(login, now_ms)

    def _authenticated(self, login: Login, now_ms: int) -> None:
        self._login = None
        self.login_deadline_ms = None
        self._authenticate_version = login.authenticate_version
        if self._logins is not None:
            wait_ms = self._logins.completed(login)
            self.reauthenticate_ms = None if wait_ms is None else now_ms + wait_ms
        if not self.is_ready:
            self._send_handshake()

    def _login_received(self, login: Login, frame: OwnedBuffer, now_ms: int) -> None:
        correlation_id, offset = read_response_header(frame, login.has_header_tags)
        if login.awaited is None or correlation_id != self._handshake_id:
            if login.has_begun:
                raise login.unexpected_answer()
            raise self._not_kafka(self._first_bytes)
        try:
            login.receive(frame, offset)
        except AuthenticationError as error:
            raise self._login_failed(error) from error.__cause__
        self.continue_login(now_ms)

    def _login_failed(self, error: AuthenticationError) -> KafkaError:
        """Return the error for a refusal: a session that is not continued is a lost connection.

        The next connection logs in afresh; only if that is refused, too, the caller is concerned.
        """
        if not self.is_ready:
            return error
        reason = f"its session was not continued: {error.message}"
        logger.info("%s: %s", diagnosis.describe(self.node), reason)
        return diagnosis.connection_lost(self.node, reason)

    # --- versions ---------------------------------------------------------------------------------

    def usable_version(self, api_key: int, name: str, low: int, high: int) -> int:
        """Return the highest version of an API that both sides speak; the connection is ready."""
        offered = self._handshake.result
        if offered is None:
            raise IllegalStateError(
                f"no connection to {diagnosis.describe(self.node)} is ready",
                node=self.node.node_id,
            )
        ceiling = self._ceiling(api_key, high)
        if ceiling is not None:
            high = max(low, ceiling)
        return offered.usable_version(api_key, name, low, high, self.node)

    def _ceiling(self, api_key: int, high: int | None) -> int | None:
        if self._release is None:
            return high
        newest = newest_version_of_release(api_key, self._release)
        return min((v for v in (newest, high) if v is not None), default=None)

    # --- outgoing ---------------------------------------------------------------------------------

    def send(self, request: UnsentRequest, now_ms: int, timeout_ms: int) -> None:
        """Queue a request for writing, in the highest version both sides speak.

        A `KafkaError` means that there is no such version, or that it cannot express the message;
        nothing was queued.
        """
        message = request.message
        api_key = message.API_KEY
        low, high = message.MIN_VERSION, message.MAX_VERSION
        if request.min_version is not None:
            low = max(low, request.min_version)
        if request.max_version is not None:
            high = min(high, request.max_version)
        version = self.usable_version(api_key, message.NAME, low, high)
        correlation_id = self._take_correlation_id()
        frame = encode_request(message, version, correlation_id, self._client_id)
        self._outgoing.append(memoryview(frame))
        self.in_flight.append(
            InFlightRequest(
                request,
                version,
                correlation_id,
                now_ms,
                now_ms + timeout_ms,
                has_response_tags(api_key, version),
                response_reader(api_key),
            )
        )

    def data_to_send(self) -> memoryview | None:
        """Return bytes to write next, None if there are none."""
        outgoing = self._outgoing
        if self.joins_requests:
            while len(outgoing) > 1 and len(outgoing[0]) + len(outgoing[1]) <= JOINED_BYTES:
                first = outgoing.popleft()
                outgoing[0] = memoryview(b"".join((first, outgoing[0])))
        return outgoing[0] if outgoing else None

    def data_sent(self, count: int, now_ms: int) -> None:
        """Note that the first ``count`` bytes of ``data_to_send`` were written."""
        self.last_activity_ms = now_ms
        rest = self._outgoing[0][count:]
        if len(rest):
            self._outgoing[0] = rest
        else:
            self._outgoing.popleft()

    def _take_correlation_id(self) -> int:
        taken = self._next_correlation_id
        self._next_correlation_id = 0 if taken == LAST_CORRELATION_ID else taken + 1
        return taken

    # --- incoming ---------------------------------------------------------------------------------

    @property
    def pending_frame_size(self) -> int | None:
        """Size of the frame being received, None while it is not known."""
        return None if self._greeting is not None else self._receiver.pending_frame_size

    def direct_receiver(self) -> FrameReceiver | None:
        """Return the frame receiver, if bytes may go into it without `next_view`.

        They may once ApiVersions has proven the peer a Kafka broker. `frame_received` takes the
        outcome.
        """
        if not self.is_ready:
            return None
        if self._view is not None:  # the socket had nothing for it
            self._view = None
            self._receiver.withdraw_view()
        return self._receiver

    def frame_received(self, now_ms: int) -> CompletedRequest | None:
        """Take the frame that was completed without `next_view`; raises as `data_received`."""
        try:
            frame = self._receiver.take_ready()
        except ProtocolError as error:
            self._note_undecodable(error)
            raise
        if frame is None:
            return None
        self.last_activity_ms = now_ms  # while a frame is on its way its request is in flight
        return self._response_received(frame, now_ms)

    def _note_undecodable(self, error: ProtocolError) -> None:
        if getattr(error, "size_needed", None):  # a retry brings the same response
            self._undecodable = self.in_flight.oldest()

    def next_view(self) -> memoryview:
        """Return where the next bytes must go; never empty. May allocate the whole frame."""
        if self._greeting is not None:
            self._view = memoryview(self._greeting)[self._greeting_bytes :]
        else:
            self._view = self._receiver.next_view()
        return self._view

    def data_received(self, count: int, now_ms: int) -> CompletedRequest | None:
        """Take the ``count`` bytes just put into ``next_view``; return the request they completed.

        A completed ApiVersions exchange shows in ``is_ready``. A `KafkaError` means that the stream
        is unusable: close the transport and call ``abandon``.
        """
        view, self._view = self._view, None
        if view is None or not 0 < count <= len(view):
            raise ProtocolError(f"no room was given out for {count} bytes")
        self.last_activity_ms = now_ms
        if self._greeting is not None:
            self._greeting_bytes += count
            self._check_greeting()
            return None
        if len(self._first_bytes) < FIRST_BYTES:
            self._first_bytes += bytes(view[:count][: FIRST_BYTES - len(self._first_bytes)])
            if self._is_foreign():
                return None
        del view
        try:
            frame = self._receiver.advance(count)
        except ProtocolError as error:
            if self.is_ready:
                self._note_undecodable(error)
                raise
            raise self._refused_frame(error.message) from None
        if self.is_ready:
            return None if frame is None else self._response_received(frame, now_ms)
        if frame is None:
            self._check_setup_frame()
        elif self._login is not None:
            self._login_received(self._login, frame, now_ms)
        else:
            self._handshake_received(frame, now_ms)
        return None

    def _check_setup_frame(self) -> None:
        size = self._receiver.pending_frame_size
        if size is not None and size > MAX_SETUP_FRAME_BYTES:
            raise self._refused_frame(
                f"its answer has {size} bytes, more than {MAX_SETUP_FRAME_BYTES}"
            )

    def _refused_frame(self, cause: str) -> KafkaError:
        """Return the error for an answer of the set-up that is refused by its size."""
        if self._login is not None and self._login.has_begun:
            return self._login.untrusted(cause)
        return self._not_kafka(self._first_bytes)

    def _is_foreign(self) -> bool:
        if diagnosis.kind_of_first_bytes(self._first_bytes) is None:
            return False
        self._greeting = bytearray(GREETING_BYTES)
        self._greeting_bytes = len(self._first_bytes)
        self._greeting[: self._greeting_bytes] = self._first_bytes
        self._check_greeting()
        return True

    def _check_greeting(self) -> None:
        received = self._greeting_received()
        kind = diagnosis.kind_of_first_bytes(received)
        is_complete = b"\n" in received or len(received) == GREETING_BYTES
        if is_complete or kind is diagnosis.FailureKind.TLS:
            raise self._not_kafka(received)

    def _greeting_received(self) -> bytes:
        return b"" if self._greeting is None else bytes(self._greeting[: self._greeting_bytes])

    def _not_kafka(self, received: bytes) -> KafkaError:
        return diagnosis.not_kafka(self.node, received, self._security_protocol)

    def _response_received(self, frame: OwnedBuffer, now_ms: int) -> CompletedRequest | None:
        node_id = self.node.node_id
        if not self.in_flight:
            if self._login is not None:
                self._login_received(self._login, frame, now_ms)
                return None
            raise ProtocolError(
                f"{diagnosis.describe(self.node)} sent a response without a request", node=node_id
            )
        entry = self.in_flight[0]
        version = entry.api_version
        correlation_id, offset = read_response_header(frame, entry.has_header_tags)
        if correlation_id != entry.correlation_id:
            raise ProtocolError(
                f"{diagnosis.describe(self.node)} is out of step",
                cause=f"response {correlation_id} came, {entry.correlation_id} was expected",
                node=node_id,
            )
        self._undecodable = entry
        message = entry.read(frame, offset, version)
        self._undecodable = None
        self.in_flight.popleft()
        throttle_ms: int = getattr(message, "throttle_time_ms", 0)
        if throttle_ms > self.throttle_ms and _is_waited_out(entry):
            self.throttle_ms = throttle_ms
        latency_ms = now_ms - entry.sent_ms
        response = ClientResponse(message, version, node_id, frame, latency_ms, throttle_ms)
        return CompletedRequest(entry.request, response)

    def _handshake_received(self, frame: OwnedBuffer, now_ms: int) -> None:
        correlation_id, offset = decode_response_header(
            frame, ApiKey.API_VERSIONS, self._handshake.version
        )
        if correlation_id != self._handshake_id:
            raise self._not_kafka(self._first_bytes)
        if not self._handshake.receive(frame, offset, diagnosis.describe(self.node)):
            self.last_activity_ms = now_ms
            self._send_handshake()
            return
        self.is_ready = True
        self._first_request_id = self._next_correlation_id
        self.throttle_ms = max(self.throttle_ms, self._handshake.throttle_ms)

    def take_throttle_ms(self) -> int:
        """Return the longest throttle time since the last call."""
        taken, self.throttle_ms = self.throttle_ms, 0
        return taken

    # --- the end ----------------------------------------------------------------------------------

    def closed_by_peer(self, reason: str) -> KafkaError:
        """Return the error for an end of the stream at this point."""
        received = self._greeting_received()
        if received:
            return self._not_kafka(received)
        if self.is_ready:
            if self._logins is None and self.node.node_id < 0 and self._is_first_unanswered():
                return diagnosis.sasl_expected(self.node, self._security_protocol)
            return diagnosis.connection_lost(self.node, reason)
        if self._login is not None:
            return self._login.closed_by_peer()
        return diagnosis.closed_early(self.node)

    def _is_first_unanswered(self) -> bool:
        """Return whether the first request after ApiVersions was sent and not answered."""
        oldest = self.in_flight.oldest()
        return oldest is not None and oldest.correlation_id == self._first_request_id

    def setup_timed_out(self, elapsed_ms: int) -> KafkaError:
        """Return the error for a server that does not complete the ApiVersions exchange."""
        received = self._greeting_received()
        if received:
            return self._not_kafka(received)
        if self._login is not None and self._login.has_begun:
            return diagnosis.login_timed_out(self.node, elapsed_ms)
        return diagnosis.setup_timed_out(self.node, elapsed_ms, is_connected=True)

    def postpone(self, ms: int) -> None:
        """Give everything in flight more time: this side did not read."""
        self.in_flight.postpone(ms)
        if self.login_deadline_ms is not None:
            self.login_deadline_ms += ms

    def request_timed_out(self, now_ms: int) -> KafkaError:
        """Return the error for the request that is overdue most."""
        entry = self.in_flight.most_overdue()
        return diagnosis.request_timed_out(
            self.node, entry.request.message.NAME, now_ms - entry.sent_ms
        )

    def abandon(self, error: KafkaError) -> list[CompletedRequest]:
        """End the connection: nothing more is written, everything in flight fails.

        Only the request whose response could not be decoded fails with a non-retriable ``error``;
        the others may be retried on another connection. The one whose response arrived has
        ``error`` as the ``__cause__`` of the lost connection, so that its manager can recognise a
        repeated failure.
        """
        self._outgoing.clear()
        if self._login is not None:
            self._login.cancel()
            self._login = None
        self.reauthenticate_ms = self.login_deadline_ms = None
        answered = self.in_flight.oldest()
        return [
            CompletedRequest(
                entry.request, error=self._loss(entry, error, is_cause=entry is answered)
            )
            for entry in self.in_flight.take_all()
        ]

    def _loss(self, entry: InFlightRequest, error: KafkaError, *, is_cause: bool) -> KafkaError:
        if error.retriable or entry is self._undecodable:
            return error
        lost = diagnosis.connection_lost(self.node, error.message)
        lost.__cause__ = error if is_cause else None
        return lost

    def __repr__(self) -> str:
        return (
            f"<BrokerConnection {diagnosis.describe(self.node)} {self.channel.name} "
            f"ready={self.is_ready} {self.in_flight!r}>"
        )


def _is_waited_out(entry: InFlightRequest) -> bool:
    """Return whether the client, not the broker, waits out the throttle time (KIP-219)."""
    waits_from = CLIENT_THROTTLE_FROM.get(entry.request.message.API_KEY)
    return waits_from is not None and entry.api_version >= waits_from
