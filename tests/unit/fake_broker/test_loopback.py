"""The loopback network: a NetworkClient on the fake cluster, in one thread and virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kfast.client.metadata import Metadata
from kfast.client.request import ClientResponse, UnsentRequest
from kfast.config import ConsumerConfig
from kfast.errors import KafkaError
from kfast.network.channel_pool import NetworkIO
from kfast.network.network_client import NetworkClient
from kfast.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.fault_actions import Delay, Drop, Trickle
from tests.fake_broker.loopback import LoopbackNetwork
from tests.fake_broker.releases import Api
from tests.fake_clock import FakeClock


class Client:
    """A NetworkClient, and the outcome of what it sends."""

    def __init__(self, cluster: FakeCluster, **configs: Any) -> None:
        self.clock = FakeClock()
        self.network = LoopbackNetwork(cluster, self.clock)
        configs.setdefault("bootstrap_servers", self.network.bootstrap_servers)
        config = ConsumerConfig(configs)
        self.client = NetworkClient(
            config,
            Metadata(config, self.clock),
            self.clock,
            NetworkIO(self.network, self.network.connect, self.network, client_version="0"),
        )
        self.outcomes: list[ClientResponse | KafkaError] = []

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        self.outcomes.append(response)

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        self.outcomes.append(error)

    def ask(self, **settings: Any) -> ClientResponse | KafkaError:
        """Send a Metadata request and return what became of it."""
        self.outcomes.clear()
        self.client.send(UnsentRequest(MetadataRequest([]), self, **settings), self.clock.now)
        for _ in range(10_000):
            self.client.poll(60_000, self.clock.now)
            if self.outcomes:
                return self.outcomes[0]
        raise AssertionError("no outcome")


def brokers(outcome: ClientResponse | KafkaError) -> list[int]:
    assert isinstance(outcome, ClientResponse)
    assert isinstance(outcome.message, MetadataResponse)
    return [broker.node_id for broker in outcome.message.brokers]


def test_a_request_is_answered_without_time_passing() -> None:
    client = Client(FakeCluster(3))
    before = client.clock.now
    assert brokers(client.ask()) == [1, 2, 3]
    assert client.clock.now == before


def test_time_moves_exactly_to_what_happens_next() -> None:
    cluster = FakeCluster()
    cluster.faults.add(Delay(1234), api=Api.METADATA)
    client = Client(cluster)
    before = client.clock.now
    assert brokers(client.ask()) == [1]
    assert client.clock.now == before + 1234


@pytest.mark.parametrize("size", [1, 2, 7])
def test_bytes_may_be_cut_anywhere(size: int) -> None:
    client = Client(FakeCluster())
    client.network.max_recv_bytes = client.network.max_send_bytes = size
    assert brokers(client.ask()) == [1]


def test_a_request_times_out_in_virtual_time() -> None:
    cluster = FakeCluster()
    cluster.faults.add(Trickle(), api=Api.METADATA)
    client = Client(cluster)
    before = client.clock.now
    outcome = client.ask(timeout_ms=5000)
    assert isinstance(outcome, KafkaError)
    assert client.clock.now == before + 5000


def test_refused_blackholed_and_unknown_addresses() -> None:
    cluster = FakeCluster(2)
    cluster.stop_node(1)
    client = Client(cluster)
    assert brokers(client.ask(timeout_ms=60_000)) == [2]
    client = Client(FakeCluster(), socket_connection_setup_timeout_ms=1000)
    client.network.blackholes.add(client.network.ip(1))
    assert isinstance(client.ask(timeout_ms=5000), KafkaError)
    assert len(client.network.attempts) > 1
    client = Client(FakeCluster(), bootstrap_servers="elsewhere:9092")
    assert isinstance(client.ask(timeout_ms=5000), KafkaError)
    assert client.network.attempts == []


def test_a_dropped_connection_is_seen_by_the_client() -> None:
    for is_reset in (False, True):
        cluster = FakeCluster()
        cluster.faults.add(Drop(9, is_reset=is_reset), api=Api.METADATA)
        client = Client(cluster)
        assert isinstance(client.ask(), KafkaError)
        assert brokers(client.ask()) == [1]


def test_scheduled_actions_run_at_their_time() -> None:
    client = Client(FakeCluster())
    times: list[int] = []
    start = client.clock.now
    for delay_ms in (300, 100, 200):
        client.network.schedule(delay_ms, lambda: times.append(client.clock.now - start))
    client.client.poll(250, client.clock.now)
    while client.clock.now < start + 250:
        client.client.poll(start + 250 - client.clock.now, client.clock.now)
    assert times == [100, 200]
