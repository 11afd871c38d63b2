"""ConnectionProbe: sets up one connection, as a consumer does, and measures each step.

Owns resolver, selector, log-ins and a pool of channels of its own; the caller's thread drives them.
Addresses, TLS, log-in, recognition of foreign servers and all errors are those of consumers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from kfast._base.clock import ExponentialBackoff
from kfast.client.connection_states import ClusterConnectionStates, ConnectionKey, ConnectionState
from kfast.client.diagnosis import FailureKind, failure_kind
from kfast.client.request import Channel
from kfast.errors import AuthenticationError, SslAuthenticationError
from kfast.network.channel_pool import ChannelPool
from kfast.network.network_io import NetworkIO
from kfast.network.resolver import SystemResolver
from kfast.threads.consumer_runtime import make_login_parts
from kfast.threads.name_resolver import NameResolver

if TYPE_CHECKING:
    from types import TracebackType

    from kfast._base.clock import Clock
    from kfast.client.cluster import Node
    from kfast.client.connection_states import NodeConnectionState
    from kfast.config import ConsumerConfig
    from kfast.errors import KafkaError

_LONGEST_WAIT_MS: Final = 100
_ATTEMPTS: Final = 2
"""A broker that closes at the first request may know older versions only."""

_STEP_OF: Final = {
    FailureKind.UNRESOLVABLE: "dns",
    FailureKind.REFUSED: "tcp",
    FailureKind.UNREACHABLE: "tcp",
    FailureKind.CONNECT_TIMEOUT: "tcp",
    FailureKind.DENIED: "tcp",
    FailureKind.EXHAUSTED: "tcp",
    FailureKind.HTTP: "kafka",
    FailureKind.NOT_KAFKA: "kafka",
    FailureKind.TLS: "kafka",
    FailureKind.PLAINTEXT: "tls",
    FailureKind.TLS_MISMATCH: "tls",
    FailureKind.CLOSED_IN_LOGIN: "sasl",
}
"""What the error itself says about the step; for others it is the step that was under way."""


@dataclass(slots=True, frozen=True)
class ProbeStep:
    """One step: ``dns``, ``tcp``, ``tls``, ``sasl`` or ``kafka`` (the exchange of API versions)."""

    name: str
    ms: int
    outcome: str
    """Its success in words, such as the addresses of a name; empty if it failed."""
    error: KafkaError | None = None


class ConnectionProbe:
    """Probes single nodes; a context manager."""

    def __init__(self, config: ConsumerConfig, clock: Clock) -> None:
        self._clock = clock
        self._has_tls = config.security_protocol.endswith("SSL")
        io = NetworkIO.of(config, clock)
        wake = io.selector.wakeup
        self._resolver = NameResolver("kfast-probe-resolver", SystemResolver(), clock, wake)
        self._worker, self._logins = make_login_parts(config, clock, wake)
        self._mechanism = config.sasl_mechanism
        self._io = replace(io, resolver=self._resolver, logins=self._logins)
        timeout_ms = min(config.socket_connection_setup_timeout_ms, config.default_api_timeout_ms)
        timeout = ExponentialBackoff(timeout_ms, timeout_ms, jitter=0.0)
        self._states = ClusterConnectionStates(ExponentialBackoff(0, 0), timeout, clock)
        self._pool = ChannelPool(
            config, self._states, self._io, on_ready=_ignore, on_failure=_ignore
        )

    def probe(self, node: Node) -> list[ProbeStep]:
        """Connect to a node and close again; return the steps, the last one with the error.

        A step with TLS is there only with TLS, and one of a log-in only with SASL.
        """
        steps: list[ProbeStep] = []
        for _ in range(_ATTEMPTS):
            steps = self._attempt(node)
            if failure_kind(steps[-1].error) is not FailureKind.CLOSED_EARLY:
                break
        return steps

    def _attempt(self, node: Node) -> list[ProbeStep]:
        key = ConnectionKey(node.node_id, Channel.DATA)
        states, pool = self._states, self._pool
        states.remove(key)
        steps: list[ProbeStep] = []
        begun_ms = self._clock.now_ms()
        pool.connect(key, node, begun_ms)
        while True:
            connection = states.get(key)
            assert connection is not None
            now_ms = self._clock.now_ms()
            for name, result in self._passed(key, connection)[len(steps) :]:
                steps.append(ProbeStep(name, now_ms - begun_ms, result))
                begun_ms = now_ms
            if connection.state is ConnectionState.READY:
                pool.close_channel(key, "it was a probe")
                return steps
            if connection.last_error is not None:
                error = connection.last_error
                return self._failed(steps, connection, error, now_ms - begun_ms)
            wait_ms = min(_LONGEST_WAIT_MS, max(0, pool.next_deadline_ms(now_ms) - now_ms))
            events, _ = self._io.selector.select(0 if pool.unread else wait_ms)
            now_ms = self._clock.now_ms()
            pool.process(events, now_ms)
            pool.continue_look_ups(now_ms)
            if self._logins is not None:
                pool.continue_logins(now_ms)
            pool.flush_joined(now_ms)
            pool.end_overdue(now_ms)

    def _names(self) -> list[str]:
        tls = ["tls"] if self._has_tls else []
        sasl = ["sasl"] if self._logins is not None else []
        return ["dns", "tcp", *tls, *sasl, "kafka"]

    def _passed(self, key: ConnectionKey, connection: NodeConnectionState) -> list[tuple[str, str]]:
        """Return the steps that are over by now, and what they have found."""
        ips = connection.addresses.ips
        if connection.last_error is not None or (connection.addresses.needs_resolving and not ips):
            return []
        reached = {
            ConnectionState.CONNECTING: 2 if connection.is_handshaking else 1,
            ConnectionState.AUTHENTICATING: 3 if self._has_tls else 2,
            ConnectionState.CHECKING_API_VERSIONS: len(self._names()) - 1,
            ConnectionState.READY: len(self._names()),
        }.get(connection.state, 0)
        return [(name, self._result(name, key, connection)) for name in self._names()[:reached]]

    def _result(self, name: str, key: ConnectionKey, connection: NodeConnectionState) -> str:
        if name == "dns":
            return ", ".join(connection.addresses.ips)
        if name == "tcp":
            return f"connected to {connection.addresses.current.ip}"
        if name == "tls":
            return "certificate accepted, handshake complete"
        if name == "sasl":
            user = None if self._logins is None else self._logins.user.name
            return (
                f"logged in ({self._mechanism})"
                if user is None
                else (f'logged in as "{user}" ({self._mechanism})')
            )
        channel = self._pool.get(key)
        offered = None if channel is None else channel.connection.handshake.result
        return "" if offered is None else f"a Kafka broker with {len(offered.ranges)} APIs"

    def _failed(
        self, steps: list[ProbeStep], connection: NodeConnectionState, error: KafkaError, ms: int
    ) -> list[ProbeStep]:
        names = self._names()
        kind = failure_kind(error)
        if isinstance(error, AuthenticationError):
            named = "tls" if isinstance(error, SslAuthenticationError) else "sasl"
        else:
            named = "" if kind is None else _STEP_OF.get(kind, "")
        at = names.index(named) if named in names else min(len(steps), len(names) - 1)
        results = {"dns": ", ".join(connection.addresses.ips)}
        passed = [
            *steps,
            *(ProbeStep(name, 0, results.get(name, "")) for name in names[len(steps) : at]),
        ]
        return [*passed[:at], ProbeStep(names[at], ms, "", error)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for key in self._pool.open_keys():
            self._pool.close_channel(key, "the probe ends")
        self._io.selector.close()
        self._resolver.close()
        if self._worker is not None:
            self._worker.end()

    def __repr__(self) -> str:
        return f"<ConnectionProbe {self._pool!r}>"


def _ignore(*_: object) -> None:
    """Nothing depends on single events."""
