"""BootstrapDiagnosis: the one error that explains why no broker can be used.

Sans-IO. Keeps what the states of connections alone do not show: which bootstrap server worked,
since when no connection works, and whether brokers advertise addresses that cannot be reached. The
network thread reports events; any thread may call ``error``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from kfast.client import diagnosis
from kfast.client.cluster import Node
from kfast.client.connection_states import (
    ClusterConnectionStates,
    ConnectionState,
    NodeConnectionState,
)
from kfast.client.diagnosis import FailureKind
from kfast.client.metadata import Metadata
from kfast.client.node_selection import CONNECTING_GRACE_MS
from kfast.client.refusals import again
from kfast.client.request import Channel
from kfast.errors import AuthenticationError, KafkaError

_NEVER_ADVERTISED: Final = frozenset(
    {None, FailureKind.LOST, FailureKind.DENIED, FailureKind.EXHAUSTED, FailureKind.OTHER}
)
"""Of this machine or unknown: no fault of the address."""
_MAY_PASS: Final = frozenset(
    {
        None,
        FailureKind.CONNECT_TIMEOUT,
        FailureKind.NO_ANSWER,
        FailureKind.LOST,
        FailureKind.EXHAUSTED,
        FailureKind.OTHER,
    }
)


class BootstrapDiagnosis:
    """The failures of one client's connections."""

    def __init__(self, states: ClusterConnectionStates, metadata: Metadata) -> None:
        self._states = states
        self._metadata = metadata
        self._bootstrap: Node | None = None
        self._advertised_error: KafkaError | None = None
        self._trying_since_ms: int | None = None
        self.has_reached_broker = False
        """Whether a connection to a broker that metadata named ever worked."""

    # --- events -----------------------------------------------------------------------------------

    def connecting(self, now_ms: int) -> None:
        """Note an attempt."""
        if self._trying_since_ms is None:
            self._trying_since_ms = now_ms

    def ready(self, node: Node) -> None:
        """Note a connection that works."""
        if node.node_id < 0:
            self._bootstrap = node
        else:
            self._advertised_error = None
            self._trying_since_ms = None
            self.has_reached_broker = True

    def failed(self, node_state: NodeConnectionState, bootstrap_nodes: Collection[Node]) -> None:
        """Note a failed attempt; recognise a broker whose advertised address cannot be reached."""
        node, error = node_state.node, node_state.last_error
        if error is None or node.node_id < 0:
            return
        if self.advertised_error(node_state, bootstrap_nodes) is not None:
            self._advertised_error = self.advertised_error(node_state, bootstrap_nodes)

    def advertised_error(
        self, node_state: NodeConnectionState, bootstrap_nodes: Collection[Node]
    ) -> KafkaError | None:
        """Return the error for a broker that was never reached at the address it advertises.

        One that does not resolve is always the address's fault. Otherwise the broker may just be
        down: it is the address only if no broker of the cluster was ever reached.
        """
        node, error = node_state.node, node_state.last_error
        kind = diagnosis.failure_kind(error)
        if (
            error is None
            or self._bootstrap is None
            or node_state.was_ready
            or kind in _NEVER_ADVERTISED
            or any((node.host, node.port) == (b.host, b.port) for b in bootstrap_nodes)
        ):
            return None
        if kind is not FailureKind.UNRESOLVABLE and any(
            other.was_ready for key, other in self._states.items() if key.node_id >= 0
        ):
            return None
        return diagnosis.advertised_address_dead(self._bootstrap, node, error)

    # --- the error --------------------------------------------------------------------------------

    def error(self, bootstrap_nodes: Collection[Node], now_ms: int) -> KafkaError | None:
        """Return the best explanation; None while a connection works or none was tried."""
        data = [(key, s) for key, s in self._states.items() if key.channel is Channel.DATA]
        if any(s.state is ConnectionState.READY for key, s in data if key.node_id >= 0):
            return None
        if self._advertised_error is not None:
            return self._advertised_error
        if any(s.state is ConnectionState.READY for _, s in data):
            return self._metadata.last_error
        brokers = self._metadata.cluster.brokers
        if brokers:
            tried = [s for key, s in data if key.node_id in brokers]
            server_count = len(brokers)
        else:
            tried = [s for key, s in data if key.node_id < 0]
            server_count = len(bootstrap_nodes)
        failures = [
            (s.node, error) for s in tried if (error := self._failure_of(s, now_ms)) is not None
        ]
        if not failures:
            return None
        refusals = [error for _, error in failures if isinstance(error, AuthenticationError)]
        if refusals:
            return again(refusals[0])
        since_ms = now_ms if self._trying_since_ms is None else self._trying_since_ms
        return diagnosis.bootstrap_failed(failures, server_count, now_ms - since_ms)

    def all_servers_failed(self, bootstrap_nodes: Collection[Node]) -> bool:
        """Return whether every server was tried and failed in a way that waiting does not change.

        Servers are the brokers once metadata has named any. Time-outs and lost connections count
        as what may pass.
        """
        tried = {key.node_id: s for key, s in self._states.items() if key.channel is Channel.DATA}
        servers = (
            self._metadata.cluster.brokers.keys()
            or {node_id for node_id in tried if node_id >= 0}  # known before a rebootstrap
            or {node.node_id for node in bootstrap_nodes}
        )
        return bool(servers) and all(
            n in tried and _is_definite(tried[n].last_error) for n in servers
        )

    @staticmethod
    def _failure_of(node_state: NodeConnectionState, now_ms: int) -> KafkaError | None:
        if node_state.last_error is not None or node_state.is_down:
            return node_state.last_error
        pending_ms = now_ms - node_state.attempt_ms
        if pending_ms < CONNECTING_GRACE_MS:
            return None
        if node_state.addresses.needs_resolving:
            return diagnosis.look_up_timed_out(node_state.node, pending_ms)
        if node_state.is_logging_in:
            return diagnosis.login_timed_out(node_state.node, pending_ms)
        return diagnosis.setup_timed_out(
            node_state.node,
            pending_ms,
            is_connected=node_state.state is not ConnectionState.CONNECTING,
            is_handshaking=node_state.is_handshaking,
        )

    def __repr__(self) -> str:
        return f"<BootstrapDiagnosis from={self._bootstrap} since={self._trying_since_ms}>"


def _is_definite(error: KafkaError | None) -> bool:
    if error is None:
        return False
    return not error.retriable or diagnosis.failure_kind(error) not in _MAY_PASS
