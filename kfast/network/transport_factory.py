"""The transports of a consumer, by its ``security_protocol``.

``ssl`` is loaded only for those that use TLS.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kfast.client.cluster import Node
from kfast.client.node_addresses import Address
from kfast.errors import ConfigurationError
from kfast.network.transport import PlaintextTransport, SocketSettings, Transport, TransportFactory

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast.config import ConsumerConfig


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
