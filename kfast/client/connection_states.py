"""ClusterConnectionStates: state, back-off, throttling and last error of every connection.

Sans-IO, network thread only, time is an argument. A connection is one (node id, channel); its
endpoint is part of the state, so a node id that moves to another host starts afresh.

=====================  ================================================  ========================
state                  meaning                                           may become
=====================  ================================================  ========================
DISCONNECTED           no socket; may be in reconnect back-off           CONNECTING
CONNECTING             name look-up, TCP set-up or TLS handshake under   AUTHENTICATING,
                       way                                               CHECKING_API_VERSIONS, *
AUTHENTICATING         connected, SASL log-in under way                  CHECKING_API_VERSIONS, *
CHECKING_API_VERSIONS  connected, ApiVersions in flight                  READY, *
READY                  requests can be sent                              DISCONNECTED
AUTHENTICATION_FAILED  no socket; one side has refused the other         CONNECTING, DISCONNECTED
=====================  ================================================  ========================

``*`` stands for DISCONNECTED and AUTHENTICATION_FAILED. How long a node is left alone after a
refusal is decided by `Refusals`, for both of its channels, and for nodes that were never tried.

Failed attempts back off from ``reconnect_backoff_ms``, or from a second if the server closed during
the log-in, and may take longer each time (``socket_connection_setup_timeout_ms``, KIP-601); both
start over when READY is reached. Each step of an attempt has that time anew, so that a slow server
is not taken for one that hangs; the whole attempt ends at the maximum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from kfast._base.clock import Clock, ExponentialBackoff
from kfast.client import diagnosis
from kfast.client.cluster import Node
from kfast.client.diagnosis import FailureKind
from kfast.client.node_addresses import NodeAddresses
from kfast.client.refusals import TRANSIENT_BACKOFF, Refusal, Refusals
from kfast.client.request import Channel
from kfast.client.request_manager import NEVER_MS
from kfast.errors import AuthenticationError, IllegalStateError, KafkaError

MAX_THROTTLE_MS: Final = 60_000
"""Longest time a broker can mute a connection; 2^31-1 ms has been seen on the wire."""

TRANSPORT_STEPS: Final = 2
"""Steps of a set-up before its first request: TCP and TLS."""


class ConnectionState(Enum):
    """See the table of the module."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    AUTHENTICATING = "authenticating"
    CHECKING_API_VERSIONS = "checking api versions"
    READY = "ready"
    AUTHENTICATION_FAILED = "authentication failed"


_DOWN: Final = frozenset({ConnectionState.DISCONNECTED, ConnectionState.AUTHENTICATION_FAILED})

_TRANSITIONS: Final[dict[ConnectionState, frozenset[ConnectionState]]] = {
    ConnectionState.DISCONNECTED: frozenset({ConnectionState.CONNECTING}),
    ConnectionState.CONNECTING: _DOWN
    | {ConnectionState.AUTHENTICATING, ConnectionState.CHECKING_API_VERSIONS},
    ConnectionState.AUTHENTICATING: _DOWN | {ConnectionState.CHECKING_API_VERSIONS},
    ConnectionState.CHECKING_API_VERSIONS: _DOWN | {ConnectionState.READY},
    ConnectionState.READY: frozenset({ConnectionState.DISCONNECTED}),
    ConnectionState.AUTHENTICATION_FAILED: frozenset(
        {ConnectionState.CONNECTING, ConnectionState.DISCONNECTED}
    ),
}


class ConnectionKey(NamedTuple):
    """Names one connection."""

    node_id: int
    channel: Channel


@dataclass(slots=True)
class NodeConnectionState:
    """The state of one connection."""

    node: Node
    state: ConnectionState = ConnectionState.DISCONNECTED
    addresses: NodeAddresses = field(default_factory=NodeAddresses)
    attempt_ms: int = 0
    """Start of the last attempt."""
    is_handshaking: bool = False
    """Whether the attempt has come to the TLS handshake; meaningful while CONNECTING."""
    deadline_ms: int = 0
    """When the current step of the set-up has taken too long; meaningful while setting up."""
    steps: int = 0
    """Steps of the attempt so far: `ClusterConnectionStates.progressed`."""
    retry_ms: int | None = None
    """When the next attempt is allowed."""
    failed_attempts: int = 0
    """Attempts in a row that did not reach READY."""
    slow_attempts: int = 0
    """Attempts in a row that ran into ``deadline_ms``."""
    throttled_until_ms: int = 0
    """Nothing is sent on this connection before (KIP-219)."""
    last_error: KafkaError | None = None
    """Why the last attempt failed or the connection was lost; None after READY and after a
    connection was closed as idle."""
    was_ready: bool = False
    """Whether READY was ever reached."""
    handshake_max_version: int | None = None
    """Highest ApiVersions version to open with, None for the newest."""
    closed_at_once: int = 0
    """Connections in a row that were closed at their first request."""
    reported: str | None = None
    """The warning of a failed attempt that is logged already; READY resets it."""
    is_authenticating_again: bool = False
    """Whether a READY connection authenticates again, and nothing else may be sent (KIP-368)."""

    @property
    def is_logging_in(self) -> bool:
        """Whether a log-in is under way at what has proven to be a Kafka broker."""
        is_answered = self.steps > TRANSPORT_STEPS + 1
        return self.state is ConnectionState.AUTHENTICATING and is_answered

    @property
    def is_down(self) -> bool:
        """Whether there is no connection, and none being set up."""
        return self.state in _DOWN


class ClusterConnectionStates:
    """All connections by node and channel. The clock is a source of jitter only."""

    def __init__(
        self, reconnect_backoff: ExponentialBackoff, setup_timeout: ExponentialBackoff, clock: Clock
    ) -> None:
        self._reconnect_backoff = reconnect_backoff
        self._setup_timeout = setup_timeout
        self._clock = clock
        self._refusals = Refusals(clock)
        self.has_refusals = False
        """Whether a node is left alone after a refusal."""
        self._states: dict[ConnectionKey, NodeConnectionState] = {}

    # --- state ------------------------------------------------------------------------------------

    def get(self, key: ConnectionKey) -> NodeConnectionState | None:
        """Return the state of a connection that was ever tried."""
        return self._states.get(key)

    def state(self, key: ConnectionKey) -> ConnectionState:
        """Return the state of a connection; DISCONNECTED if it was never tried."""
        node_state = self._states.get(key)
        return ConnectionState.DISCONNECTED if node_state is None else node_state.state

    def is_ready(self, key: ConnectionKey, now_ms: int) -> bool:
        """Return whether requests can be sent: READY and not throttled."""
        node_state = self._states.get(key)
        return (
            node_state is not None
            and node_state.state is ConnectionState.READY
            and node_state.throttled_until_ms <= now_ms
            and not node_state.is_authenticating_again
        )

    def can_connect(self, key: ConnectionKey, now_ms: int) -> bool:
        """Return whether an attempt may start: no connection, and the backoff is over."""
        if self.has_refusals and self.refusal(key.node_id, now_ms) is not None:
            return False
        node_state = self._states.get(key)
        return node_state is None or (
            node_state.is_down and (node_state.retry_ms is None or node_state.retry_ms <= now_ms)
        )

    def delay(self, key: ConnectionKey, now_ms: int) -> int:
        """Return ms until a connect or a send may be tried; ``NEVER_MS`` while setting up."""
        node_state = self._states.get(key)
        if node_state is None or node_state.is_down:
            refusal = self._refusal_of(key.node_id, now_ms) if self.has_refusals else None
            retry_ms = None if node_state is None else node_state.retry_ms
            until_ms = max(retry_ms or now_ms, now_ms if refusal is None else refusal.until_ms)
            return max(0, until_ms - now_ms)
        if node_state.state is ConnectionState.READY and not node_state.is_authenticating_again:
            return max(0, node_state.throttled_until_ms - now_ms)
        return NEVER_MS

    def is_unreachable(self, key: ConnectionKey, now_ms: int) -> bool:
        """Return whether the last attempt failed and the next one has to wait."""
        node_state = self._states.get(key)
        return (  # a refusal is the answer of a node
            node_state is not None
            and node_state.state is ConnectionState.DISCONNECTED
            and node_state.failed_attempts > 0
            and not self.can_connect(key, now_ms)
        )

    def setting_up(self) -> Iterator[tuple[ConnectionKey, NodeConnectionState]]:
        """Yield the connections that are being set up."""
        for key, node_state in list(self._states.items()):
            if node_state.state is not ConnectionState.READY and not node_state.is_down:
                yield key, node_state

    def refusal(self, node_id: int, now_ms: int) -> AuthenticationError | None:
        """Return why a node is left alone after a refusal, None if it is not."""
        refusal = self._refusal_of(node_id, now_ms) if self.has_refusals else None
        return None if refusal is None else refusal.error

    def _refusal_of(self, node_id: int, now_ms: int) -> Refusal | None:
        return self._refusals.of(node_id, now_ms, is_any_ready=self.is_any_ready)

    @property
    def is_any_ready(self) -> bool:
        """Whether requests can be sent to any node."""
        return any(node_state.state is ConnectionState.READY for _, node_state in self.items())

    def end_refusals(self, now_ms: int) -> None:
        """Note that the time of refusals may be over."""
        self._refusals.end(now_ms)
        self.has_refusals = bool(self._refusals)

    def credentials_changed(self) -> None:
        """Allow new attempts at all nodes that refused: they may accept what has changed."""
        self._refusals.clear()
        self.has_refusals = False
        for key, node_state in self._states.items():
            if node_state.state is ConnectionState.AUTHENTICATION_FAILED:
                self._move(key, node_state, ConnectionState.DISCONNECTED)
                node_state.retry_ms = None
                node_state.last_error = None

    def items(self) -> Iterable[tuple[ConnectionKey, NodeConnectionState]]:
        """Return all connections ever tried, as a copy that may be read from any thread."""
        return list(self._states.items())

    # --- events -----------------------------------------------------------------------------------

    def connecting(self, key: ConnectionKey, node: Node, now_ms: int) -> NodeConnectionState:
        """Start an attempt, or start afresh if the node has another endpoint than before."""
        node_state = self._states.get(key)
        if node_state is None or node_state.node[:3] != node[:3]:
            node_state = self._states[key] = NodeConnectionState(node)
        self._move(key, node_state, ConnectionState.CONNECTING)
        node_state.node = node
        node_state.attempt_ms = now_ms
        node_state.is_handshaking = False
        node_state.steps = 0
        node_state.deadline_ms = now_ms + self._setup_timeout.backoff_ms(
            node_state.slow_attempts, self._clock
        )
        return node_state

    def progressed(self, key: ConnectionKey, steps: int, now_ms: int) -> None:
        """Note how many steps of its set-up a connection has come: the next one has its own time.

        A step is the TCP connection, the TLS handshake, or an answer to the log-in.
        """
        node_state = self._states[key]
        if steps <= node_state.steps:
            return
        node_state.steps = steps
        timeout = self._setup_timeout
        end_ms = node_state.attempt_ms + max(timeout.initial_ms, timeout.max_ms)
        step_end_ms = now_ms + timeout.backoff_ms(node_state.slow_attempts, self._clock)
        node_state.deadline_ms = max(node_state.deadline_ms, min(end_ms, step_end_ms))

    def authenticating(self, key: ConnectionKey) -> None:
        """Note that the transport is up and the log-in begins."""
        self._move(key, self._states[key], ConnectionState.AUTHENTICATING)

    def authenticating_again(self, key: ConnectionKey, *, is_begun: bool) -> None:
        """Note that a READY connection begins or has ended to authenticate again."""
        self._states[key].is_authenticating_again = is_begun

    def checking_api_versions(self, key: ConnectionKey) -> None:
        """Note that the transport is up and the log-in, if there is one, over."""
        self._move(key, self._states[key], ConnectionState.CHECKING_API_VERSIONS)

    def ready(self, key: ConnectionKey) -> int:
        """Note that requests can be sent; return how many attempts had failed before."""
        node_state = self._states[key]
        self._move(key, node_state, ConnectionState.READY)
        failed, node_state.failed_attempts = node_state.failed_attempts, 0
        node_state.slow_attempts = 0
        node_state.retry_ms = None
        node_state.throttled_until_ms = 0
        node_state.last_error = None
        node_state.was_ready = True
        node_state.reported = None
        node_state.is_authenticating_again = False
        self._refusals.accepted(key.node_id)
        self.has_refusals = bool(self._refusals)
        return failed

    def renamed(self, before: ConnectionKey, key: ConnectionKey, node: Node) -> None:
        """Note that the node of a READY connection has turned out to be another, known one."""
        node_state = self._states[key] = self._states.pop(before)
        node_state.node = node
        self._refusals.accepted(key.node_id)
        self.has_refusals = bool(self._refusals)

    def disconnected(
        self, key: ConnectionKey, error: KafkaError, now_ms: int, *, timed_out: bool = False
    ) -> NodeConnectionState:
        """Note a failed attempt or a lost connection, and start the backoff."""
        node_state = self._states[key]
        node_state.is_authenticating_again = False
        if isinstance(error, AuthenticationError) and node_state.state is not ConnectionState.READY:
            return self._authentication_failed(key, node_state, error, now_ms)
        kind = diagnosis.failure_kind(error)
        node_state.closed_at_once = (
            node_state.closed_at_once + 1 if kind is FailureKind.NO_LOGIN else 0
        )
        # For a server that closes instead of answering each log-in may count as a wrong password.
        in_login = kind is FailureKind.CLOSED_IN_LOGIN
        backoff = TRANSIENT_BACKOFF if in_login else self._reconnect_backoff
        node_state.retry_ms = now_ms + backoff.backoff_ms(
            node_state.failed_attempts + node_state.closed_at_once, self._clock
        )
        if node_state.state is ConnectionState.READY:
            node_state.addresses.lost()
        else:
            node_state.addresses.failed()
            node_state.failed_attempts += 1
            node_state.slow_attempts += timed_out
        self._move(key, node_state, ConnectionState.DISCONNECTED)
        node_state.last_error = error
        return node_state

    def _authentication_failed(
        self,
        key: ConnectionKey,
        node_state: NodeConnectionState,
        error: AuthenticationError,
        now_ms: int,
    ) -> NodeConnectionState:
        node_state.retry_ms = self._refusals.refused(key.node_id, error, now_ms).until_ms
        self.has_refusals = True
        node_state.addresses.forget()
        node_state.failed_attempts += 1
        self._move(key, node_state, ConnectionState.AUTHENTICATION_FAILED)
        node_state.last_error = error
        return node_state

    def closed(self, key: ConnectionKey) -> None:
        """Note that this side closed the connection without an error: no backoff."""
        node_state = self._states.get(key)
        if node_state is not None and not node_state.is_down:
            node_state.is_authenticating_again = False
            self._move(key, node_state, ConnectionState.DISCONNECTED)
            node_state.addresses.forget()
            node_state.last_error = None

    def throttle(self, key: ConnectionKey, until_ms: int, now_ms: int) -> None:
        """Mute a connection, for at most ``MAX_THROTTLE_MS`` (KIP-219)."""
        node_state = self._states.get(key)
        if node_state is not None:
            until_ms = min(until_ms, now_ms + MAX_THROTTLE_MS)
            node_state.throttled_until_ms = max(node_state.throttled_until_ms, until_ms)

    def remove(self, key: ConnectionKey) -> None:
        """Forget a connection altogether."""
        self._states.pop(key, None)

    def forget_addresses(self) -> None:
        """Make every next attempt resolve its name again."""
        for node_state in self._states.values():
            node_state.addresses.forget()

    @staticmethod
    def _move(key: ConnectionKey, node_state: NodeConnectionState, state: ConnectionState) -> None:
        if state not in _TRANSITIONS[node_state.state]:
            raise IllegalStateError(
                f"connection to node {key.node_id} cannot go from {node_state.state.value} to "
                f"{state.value}"
            )
        node_state.state = state

    def __repr__(self) -> str:
        states = ", ".join(f"{k.node_id}/{k.channel.name}:{s.state.value}" for k, s in self.items())
        return f"<ClusterConnectionStates {states}>"
