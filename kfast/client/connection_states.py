"""ClusterConnectionStates: state, back-off, throttling and last error of every connection.

Sans-IO, network thread only, time is an argument. A connection is one (node id, channel); its
endpoint is part of the state, so a node id that moves to another host starts afresh.

=====================  ================================================  ========================
state                  meaning                                           may become
=====================  ================================================  ========================
DISCONNECTED           no socket; may be in reconnect back-off           CONNECTING
CONNECTING             name look-up, TCP set-up or TLS handshake under   CHECKING_API_VERSIONS,
                       way                                               DISCONNECTED
CHECKING_API_VERSIONS  connected, ApiVersions in flight                  READY, DISCONNECTED
READY                  requests can be sent                              DISCONNECTED
=====================  ================================================  ========================

Failed attempts back off from ``reconnect_backoff_ms``, and may take longer each time
(``socket_connection_setup_timeout_ms``, KIP-601); both start over when READY is reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from kfast._clock import Clock, ExponentialBackoff
from kfast.client.cluster import Node
from kfast.client.node_addresses import NodeAddresses
from kfast.client.request import Channel
from kfast.client.request_manager import NEVER_MS
from kfast.errors import IllegalStateError, KafkaError

MAX_THROTTLE_MS: Final = 60_000
"""Longest time a broker can mute a connection; 2^31-1 ms has been seen on the wire."""


class ConnectionState(Enum):
    """See the table of the module."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking api versions"
    READY = "ready"


_TRANSITIONS: Final[dict[ConnectionState, frozenset[ConnectionState]]] = {
    ConnectionState.DISCONNECTED: frozenset({ConnectionState.CONNECTING}),
    ConnectionState.CONNECTING: frozenset(
        {ConnectionState.CHECKING_API_VERSIONS, ConnectionState.DISCONNECTED}
    ),
    ConnectionState.CHECKING_API_VERSIONS: frozenset(
        {ConnectionState.READY, ConnectionState.DISCONNECTED}
    ),
    ConnectionState.READY: frozenset({ConnectionState.DISCONNECTED}),
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
    """When set-up has taken too long; meaningful while setting up."""
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
    is_reported: bool = False
    """Whether a warning that the node cannot be reached is logged already; READY resets it."""


class ClusterConnectionStates:
    """All connections by node and channel. The clock is a source of jitter only."""

    def __init__(
        self, reconnect_backoff: ExponentialBackoff, setup_timeout: ExponentialBackoff, clock: Clock
    ) -> None:
        self._reconnect_backoff = reconnect_backoff
        self._setup_timeout = setup_timeout
        self._clock = clock
        self._states: dict[ConnectionKey, NodeConnectionState] = {}

    # --- state ------------------------------------------------------------------------------------

    def get(self, key: ConnectionKey) -> NodeConnectionState | None:
        """Return the state of a connection that was ever tried."""
        return self._states.get(key)

    def state(self, key: ConnectionKey) -> ConnectionState:
        """Return the state of a connection; DISCONNECTED if it was never tried."""
        known = self._states.get(key)
        return ConnectionState.DISCONNECTED if known is None else known.state

    def is_ready(self, key: ConnectionKey, now_ms: int) -> bool:
        """Return whether requests can be sent: READY and not throttled."""
        known = self._states.get(key)
        return (
            known is not None
            and known.state is ConnectionState.READY
            and known.throttled_until_ms <= now_ms
        )

    def can_connect(self, key: ConnectionKey, now_ms: int) -> bool:
        """Return whether an attempt may start: DISCONNECTED and the backoff is over."""
        known = self._states.get(key)
        return known is None or (
            known.state is ConnectionState.DISCONNECTED
            and (known.retry_ms is None or known.retry_ms <= now_ms)
        )

    def delay(self, key: ConnectionKey, now_ms: int) -> int:
        """Return ms until a connect or a send may be tried; ``NEVER_MS`` while setting up."""
        known = self._states.get(key)
        if known is None:
            return 0
        if known.state is ConnectionState.DISCONNECTED:
            return 0 if known.retry_ms is None else max(0, known.retry_ms - now_ms)
        if known.state is ConnectionState.READY:
            return max(0, known.throttled_until_ms - now_ms)
        return NEVER_MS

    def is_unreachable(self, key: ConnectionKey, now_ms: int) -> bool:
        """Return whether the last attempt failed and the next one has to wait."""
        known = self._states.get(key)
        return (
            known is not None
            and known.state is ConnectionState.DISCONNECTED
            and known.failed_attempts > 0
            and not self.can_connect(key, now_ms)
        )

    def setting_up(self) -> Iterator[tuple[ConnectionKey, NodeConnectionState]]:
        """Yield the connections between DISCONNECTED and READY."""
        for key, known in list(self._states.items()):
            state = known.state
            if state is not ConnectionState.READY and state is not ConnectionState.DISCONNECTED:
                yield key, known

    def items(self) -> Iterable[tuple[ConnectionKey, NodeConnectionState]]:
        """Return all connections ever tried, as a copy that may be read from any thread."""
        return list(self._states.items())

    # --- events -----------------------------------------------------------------------------------

    def connecting(self, key: ConnectionKey, node: Node, now_ms: int) -> NodeConnectionState:
        """Start an attempt, or start afresh if the node has another endpoint than before."""
        known = self._states.get(key)
        if known is None or known.node[:3] != node[:3]:
            known = self._states[key] = NodeConnectionState(node)
        self._move(key, known, ConnectionState.CONNECTING)
        known.node = node
        known.attempt_ms = now_ms
        known.is_handshaking = False
        known.deadline_ms = now_ms + self._setup_timeout.backoff_ms(
            known.slow_attempts, self._clock
        )
        return known

    def checking_api_versions(self, key: ConnectionKey) -> None:
        """Note that the transport is up."""
        self._move(key, self._states[key], ConnectionState.CHECKING_API_VERSIONS)

    def ready(self, key: ConnectionKey) -> int:
        """Note that requests can be sent; return how many attempts had failed before."""
        known = self._states[key]
        self._move(key, known, ConnectionState.READY)
        failed, known.failed_attempts = known.failed_attempts, 0
        known.slow_attempts = 0
        known.retry_ms = None
        known.throttled_until_ms = 0
        known.last_error = None
        known.was_ready = True
        known.is_reported = False
        return failed

    def disconnected(
        self, key: ConnectionKey, error: KafkaError, now_ms: int, *, timed_out: bool = False
    ) -> NodeConnectionState:
        """Note a failed attempt or a lost connection, and start the backoff."""
        known = self._states[key]
        known.retry_ms = now_ms + self._reconnect_backoff.backoff_ms(
            known.failed_attempts, self._clock
        )
        if known.state is ConnectionState.READY:
            known.addresses.lost()
        else:
            known.addresses.failed()
            known.failed_attempts += 1
            known.slow_attempts += timed_out
        self._move(key, known, ConnectionState.DISCONNECTED)
        known.last_error = error
        return known

    def closed(self, key: ConnectionKey) -> None:
        """Note that this side closed the connection without an error: no backoff."""
        known = self._states.get(key)
        if known is not None and known.state is not ConnectionState.DISCONNECTED:
            self._move(key, known, ConnectionState.DISCONNECTED)
            known.addresses.forget()
            known.last_error = None

    def throttle(self, key: ConnectionKey, until_ms: int, now_ms: int) -> None:
        """Mute a connection, for at most ``MAX_THROTTLE_MS`` (KIP-219)."""
        known = self._states.get(key)
        if known is not None:
            until_ms = min(until_ms, now_ms + MAX_THROTTLE_MS)
            known.throttled_until_ms = max(known.throttled_until_ms, until_ms)

    def remove(self, key: ConnectionKey) -> None:
        """Forget a connection altogether."""
        self._states.pop(key, None)

    def forget_addresses(self) -> None:
        """Make every next attempt resolve its name again."""
        for known in self._states.values():
            known.addresses.forget()

    @staticmethod
    def _move(key: ConnectionKey, known: NodeConnectionState, state: ConnectionState) -> None:
        if state not in _TRANSITIONS[known.state]:
            raise IllegalStateError(
                f"connection to node {key.node_id} cannot go from {known.state.value} to "
                f"{state.value}"
            )
        known.state = state

    def __repr__(self) -> str:
        states = ", ".join(f"{k.node_id}/{k.channel.name}:{s.state.value}" for k, s in self.items())
        return f"<ClusterConnectionStates {states}>"
