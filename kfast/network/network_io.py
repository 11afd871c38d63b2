"""NetworkIO: how a client connects and receives; the operating system's part, replaced by tests.

Transports are made by ``security_protocol``; ``ssl`` is loaded only for those that use TLS. Before
any socket is made it is checked that gevent and eventlet have not patched what a consumer needs.
A consumer has threads of its own that wait for sockets and locks of the operating system. On green
threads such a wait stops all of them, and nothing is left to end it. What was patched is asked of
gevent and eventlet themselves, which are never imported here. Any thread.

| patched | by | a consumer |
|---|---|---|
| threads | both | waits for ever |
| select, selectors | gevent | waits for ever: a wakeup does not arrive |
| ssl | eventlet | its network thread fails |
| other modules | both | works; its calls block the thread that makes them |
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kfast._base.clock import Clock, SystemClock
from kfast._base.signals import is_of_signal_handler
from kfast._base.version import installed_version
from kfast.client import diagnosis
from kfast.client.cluster import Node
from kfast.client.node_addresses import Address
from kfast.errors import ConfigurationError
from kfast.network.kafka_channel import ReceiveGate
from kfast.network.resolver import Resolver, SystemResolver
from kfast.network.selector import Selector, SelectorLike
from kfast.network.transport import PlaintextTransport, SocketSettings, Transport, TransportFactory

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig
    from kfast.security.sasl.login import SaslLogins

_GEVENT: Final = ("_thread", "threading", "select", "selectors")
_EVENTLET: Final = ("thread",)
_EVENTLET_TLS: Final = ("thread", "socket")
"""It patches ssl along with socket."""


@dataclass(frozen=True, slots=True)
class NetworkIO:
    """What a client connects and receives with."""

    selector: SelectorLike
    transport_factory: TransportFactory
    resolver: Resolver
    receive_gate: ReceiveGate | None = None
    """Called with the size of a frame of 64 KiB or more: whether there is memory for it. While it
    returns False the connection is not read; it is called again with every ``poll``."""
    client_version: str = "unknown"
    """Reported to brokers (KIP-511)."""
    logins: SaslLogins | None = None
    """Makes the log-ins; None for a security protocol without SASL."""
    credentials_version: Callable[[], int] = int
    """Gives another number when the files of certificates have been renewed."""

    @classmethod
    def of(cls, config: ConsumerConfig, clock: Clock | None = None) -> NetworkIO:
        """Return the operating system's sockets, with a configuration's settings.

        Its resolver blocks, nothing is held back, and there are no log-ins.
        """
        # Before sockets are made: these may raise.
        check_monkey_patching(has_tls=config.security_protocol.endswith("SSL"))
        connect = transport_factory(config, clock or SystemClock())
        try:
            selector = Selector()
        except OSError as error:
            if is_of_signal_handler(error):
                raise
            raise diagnosis.no_sockets(error) from error
        return cls(
            selector,
            connect,
            SystemResolver(),
            client_version=installed_version() or "unknown",
            credentials_version=getattr(connect, "credentials_version", int),
        )


def transport_factory(config: ConsumerConfig, clock: Clock) -> TransportFactory:
    """Return the factory for ``security_protocol``; `ConfigurationError` for bad TLS settings."""
    settings = SocketSettings(
        config.receive_buffer_bytes,
        config.send_buffer_bytes,
        _as_options(config.socket_options),
    )
    if config.security_protocol in {"SSL", "SASL_SSL"}:
        from kfast.security.tls.transport import TlsTransportFactory  # noqa: PLC0415 - loads ssl

        return TlsTransportFactory(config, settings, clock)

    def connect(node: Node, address: Address) -> Transport:  # noqa: ARG001 - TLS needs the node
        return PlaintextTransport(address, settings)

    return connect


def _as_options(
    options: Iterable[Iterable[int | bytes]],
) -> tuple[tuple[int, int, int | bytes], ...]:
    converted = []
    for level, option, value in options:
        if not isinstance(level, int) or not isinstance(option, int):
            raise ConfigurationError(
                f"bad value for socket_options: {(level, option, value)!r}",
                hint="give tuples of two integers and a value, as for socket.setsockopt",
            )
        converted.append((level, option, value))
    return tuple(converted)


def check_monkey_patching(*, has_tls: bool) -> None:
    """Raise `ConfigurationError` if modules that a consumer needs were replaced."""
    _check(
        "gevent",
        _patched("gevent.monkey", "is_module_patched", _GEVENT),
        "call gevent.monkey.patch_all(thread=False, select=False), and the consumer in "
        "gevent.get_hub().threadpool; or use the consumer in a process of its own",
    )
    _check(
        "eventlet",
        _patched("eventlet.patcher", "is_monkey_patched", _EVENTLET_TLS if has_tls else _EVENTLET),
        f"call eventlet.monkey_patch(thread=False{', socket=False' if has_tls else ''}), and the "
        "consumer in eventlet.tpool; or use the consumer in a process of its own",
    )


def _patched(module: str, function: str, names: tuple[str, ...]) -> list[str]:
    is_patched: Callable[[str], bool] | None = getattr(sys.modules.get(module), function, None)
    return [] if is_patched is None else [name for name in names if is_patched(name)]


def _check(name: str, patched: list[str], hint: str) -> None:
    if patched:
        raise ConfigurationError(
            f"a consumer does not work where {name} has patched {', '.join(patched)}",
            cause="its threads wait for sockets and locks of the operating system, which would "
            "stop all green threads",
            hint=hint,
        )
