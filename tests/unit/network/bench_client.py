"""A network client on a scripted network, driven in virtual time."""

from __future__ import annotations

from collections.abc import Callable

from kfast.client.connection_states import ConnectionKey
from kfast.client.metadata import Metadata
from kfast.client.metadata_manager import MetadataManager
from kfast.client.request import Channel, UnsentRequest
from kfast.network.kafka_channel import ReceiveGate
from kfast.network.network_client import NetworkClient
from kfast.network.network_io import NetworkIO
from kfast.protocol.messages.metadata import MetadataRequest
from tests.fake_clock import FakeClock
from tests.unit.client.frames import metadata
from tests.unit.configs import config
from tests.unit.network.scripted import Outcomes, ScriptedNetwork


class Bench:
    """Everything needed to watch one client.

    Parameters
    ----------
    brokers : dict or None
        Brokers the metadata knows from the start; None leaves the client with bootstrap servers.
    """

    def __init__(
        self,
        brokers: dict[int, tuple[str, int]] | None = None,
        *,
        receive_gate: ReceiveGate | None = None,
        **settings: object,
    ) -> None:
        self.clock = FakeClock()
        self.network = ScriptedNetwork(self.clock)
        self.config = config(None, **settings)
        self.metadata = Metadata(self.config, self.clock)
        self.manager = MetadataManager(self.config, self.metadata)
        self.handler = Outcomes()
        if brokers is not None:
            self.metadata.update(metadata(brokers=brokers), self.clock.now)
        self.client = NetworkClient(
            self.config,
            self.metadata,
            self.clock,
            NetworkIO(self.network, self.network.connect, self.network, receive_gate, "0.1.0"),
        )

    def in_flight(self, *node_ids: int) -> int:
        """Return the requests sent and not answered, of these nodes or of all."""
        pool = self.client._pool
        keys = [key for key in pool.open_keys() if not node_ids or key.node_id in node_ids]
        return sum(map(pool.in_flight, keys))

    def is_ready(self, node_id: int, channel: Channel = Channel.DATA) -> bool:
        """Return whether a request sent now would be written now."""
        return self.client._is_usable(ConnectionKey(node_id, channel), self.clock.now)

    def poll(self, timeout_ms: int = 0) -> None:
        self.client.poll(timeout_ms, self.clock.now)

    def turn(self, timeout_ms: int = 1_000) -> None:
        """One turn of a network thread's loop, with the metadata manager as its only manager."""
        result = self.manager.poll(self.clock.now)
        for request in result.requests:
            self.client.send(request, self.clock.now)
        self.poll(min(timeout_ms, result.next_poll_ms))

    def run_until(self, condition: Callable[[], object], turns: int = 200) -> None:
        for _ in range(turns):
            if condition():
                return
            self.turn()
        raise AssertionError(f"not reached in {turns} turns: {self.client!r}")

    def make_ready(self, node_id: int = 1, channel: Channel = Channel.DATA) -> None:
        for _ in range(20):
            if self.client.ready(node_id, self.clock.now, channel):
                return
            self.poll(100)
        raise AssertionError(f"node {node_id} does not get ready: {self.client!r}")

    def ask(
        self,
        node_id: int | None = 1,
        *,
        channel: Channel = Channel.DATA,
        timeout_ms: int | None = None,
        handler: Outcomes | None = None,
        max_version: int | None = None,
        min_version: int | None = None,
    ) -> UnsentRequest:
        """Send a Metadata request, the simplest there is."""
        request = UnsentRequest(
            MetadataRequest(topics=[]),
            handler or self.handler,
            node_id=node_id,
            channel=channel,
            timeout_ms=timeout_ms,
            max_version=max_version,
            min_version=min_version,
        )
        self.client.send(request, self.clock.now)
        return request
