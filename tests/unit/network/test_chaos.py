"""NetworkClient under seeded faults: whatever servers do, every request ends exactly once.

Each seed is one history of kills, silences, garbage, refusals, throttles, moves, rebootstraps and
shut gates. After it the network is healed, and the client must work again.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kfast.client.request import Channel
from kfast.errors import KafkaError
from kfast.protocol.message import Message
from tests.unit.client.frames import metadata, partition, topic
from tests.unit.network.bench_client import Bench
from tests.unit.network.scripted import Received, ScriptedServer

BROKERS = {n: (f"b{n}", 9092) for n in (1, 2, 3)}
STEPS = 150


class Chaos:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.bench = Bench(
            receive_gate=lambda size: self.is_gate_open,
            bootstrap_servers="b1:9092,b2:9092",
            request_timeout_ms=5_000,
            fetch_max_wait_ms=100,
            socket_connection_setup_timeout_ms=2_000,
            socket_connection_setup_timeout_max_ms=3_000,
        )
        self.is_gate_open = True
        self.is_healed = False
        self.servers = {n: self.bench.network.listen(f"b{n}") for n in BROKERS}
        for server in self.servers.values():
            server.answers[3] = self.answer
        self.asked = 0

    def answer(self, received: Received) -> Message | bytes | None:
        roll = 1.0 if self.is_healed else self.random.random()
        message = metadata(brokers=BROKERS)
        if roll < 0.1:
            return None
        if roll < 0.15:
            return self.random.randbytes(self.random.randrange(1, 40))
        if roll < 0.2:
            message = metadata(
                *(topic(f"topic-{n:0240}", partition(0)) for n in range(300)), brokers=BROKERS
            )
        elif roll < 0.3:
            message.throttle_time_ms = self.random.choice([50, 3_000, 2**31 - 1])
        elif roll < 0.33:
            message.error_code = 129
        return message

    def step(self) -> None:
        server = self.random.choice(list(self.servers.values()))
        fault = self.random.randrange(12)
        if fault == 0:
            server.kill()
        elif fault == 1:
            server.is_silent = not server.is_silent
        elif fault == 2:
            server.closes_at_once = not server.closes_at_once
        elif fault == 3:
            server.is_blackhole = not server.is_blackhole
        elif fault == 4:
            self.is_gate_open = not self.is_gate_open
        elif fault == 5:
            for transport in server.open_transports():
                transport.end()
        elif fault == 6:
            for transport in server.open_transports():
                transport.max_recv = self.random.choice([1, 7, 1 << 20])
                transport.send_budget = self.random.choice([0, 3, 1 << 20])
        elif fault == 7:
            self.toggle(server)
        for _ in range(self.random.randrange(4)):
            self.asked += 1
            self.bench.ask(
                self.random.choice([1, 2, 3, None]),
                channel=self.random.choice(list(Channel)),
                timeout_ms=self.random.choice([None, 300, 8_000]),
            )
        self.bench.turn(self.random.choice([0, 5, 200, 5_000]))

    def toggle(self, server: ScriptedServer) -> None:
        places = self.bench.network.servers
        place = next(f"b{n}" for n, known in self.servers.items() if known is server)
        if (place, 9092) in places:
            del places[place, 9092]
        else:
            places[place, 9092] = server

    def heal(self) -> None:
        self.is_healed = self.is_gate_open = True
        for n, server in self.servers.items():
            server.is_silent = server.closes_at_once = server.is_blackhole = False
            self.bench.network.servers[f"b{n}", 9092] = server
            server.kill()  # whatever state these connections are in


@pytest.mark.parametrize("seed", range(40))
def test_every_request_ends_once_and_the_client_recovers(seed: int) -> None:
    """N-18, N-15, N-05: no request is lost or answered twice, no error is anything but ours."""
    chaos = Chaos(seed)
    bench = chaos.bench
    for _ in range(STEPS):
        chaos.step()
    chaos.heal()
    selects, start = bench.network.selects, bench.clock.now
    bench.run_until(lambda: bench.handler.count >= chaos.asked, turns=2_000)
    for _ in range(100):
        bench.turn()
    assert bench.handler.count == chaos.asked
    ends = Counter(id(r) for r, _ in bench.handler.responses)
    ends.update(id(r) for r, _ in bench.handler.failures)
    assert set(ends.values()) == {1}
    assert all(isinstance(error, KafkaError) for error in bench.handler.errors)
    assert bench.network.selects - selects < 3 * (bench.clock.now - start) + 1_000, "a busy loop"
    bench.metadata.request_update()
    bench.run_until(lambda: set(bench.metadata.cluster.brokers) == set(BROKERS))
    for node_id in BROKERS:
        bench.run_until(lambda n=node_id: bench.client.ready(n, bench.clock.now))  # type: ignore[misc]
    before = len(bench.handler.responses)
    for target in (*BROKERS, None):
        bench.ask(target)
    bench.run_until(lambda: len(bench.handler.responses) == before + 4)
    bench.client.close(1_000)
    assert all(not server.open_transports() for server in chaos.servers.values())
