"""Errors of sockets."""

from __future__ import annotations

from kfast._base.clock import SystemClock
from kfast.client.metadata import Metadata
from kfast.client.request import UnsentRequest
from kfast.errors import KafkaError
from kfast.network.network_client import NetworkClient
from kfast.protocol.messages.metadata import MetadataRequest
from tests.unit.configs import config
from tests.unit.network.scripted import Outcomes

LIMIT_MS = 20_000
"""Upper bound of any wait in this file; nothing here is expected to take long."""


def error_of(port: int, **settings: object) -> KafkaError:
    """Return what a client comes to that is pointed at a port."""
    settings = {"bootstrap_servers": f"127.0.0.1:{port}", **settings}
    made, clock = config(None, **settings), SystemClock()
    client = NetworkClient(made, Metadata(made, clock), clock)
    handler = Outcomes()
    try:
        deadline_ms = clock.now_ms() + LIMIT_MS
        client.send(UnsentRequest(MetadataRequest(topics=[]), handler), clock.now_ms())
        while clock.now_ms() < deadline_ms:
            client.poll(100, clock.now_ms())
            if client.connection_failed(-1) is not None:
                break
        error = client.bootstrap_error()
    finally:
        client.close(0)
    assert error is not None
    return error
