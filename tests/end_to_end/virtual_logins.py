"""Consumers that log in to brokers of a virtual network."""

from __future__ import annotations

from typing import Any

from tests.end_to_end.virtual import T0, make_cluster
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.loopback_consumer import LoopbackConsumer
from tests.fake_broker.releases import Api
from tests.fake_broker.sasl import SaslListener

SASL: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_plain_username": "app",
    "sasl_plain_password": "secret",
}
SETUP = (Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)


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
