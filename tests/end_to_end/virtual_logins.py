"""Consumers that log in to brokers of a virtual network."""

from __future__ import annotations

from typing import Any

from kfast.protocol.api_keys import ApiKey
from kfast.testing.cluster import FakeCluster
from kfast.testing.sasl import SaslListener
from tests.end_to_end.virtual import T0, make_cluster
from tests.simulation.loopback_consumer import LoopbackConsumer

SASL: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_plain_username": "app",
    "sasl_plain_password": "secret",
}
SETUP = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


def secured(nodes: int = 1, **listener: Any) -> FakeCluster:
    cluster = make_cluster(nodes, leaders=[1])
    cluster.sasl = SaslListener(**listener)
    return cluster


def consumer(cluster: FakeCluster, **configs: Any) -> LoopbackConsumer:
    made = LoopbackConsumer(cluster, **{**SASL, **configs})
    made.assign(T0)
    return made


def look_up(reader: LoopbackConsumer, timeout_ms: int = 60_000) -> object:
    """Make one call that needs a broker."""
    now_ms = reader.clock.now
    return reader.wait(
        reader.lookups.look_up(frozenset({"t"}), now_ms, now_ms + timeout_ms), timeout_ms + 1
    )


def attempts(reader: LoopbackConsumer) -> list[int]:
    """Return when connections were tried, in ms since the first time."""
    times = [time_ms for time_ms, _, _ in reader.network.attempts]
    return [time_ms - times[0] for time_ms in times]
