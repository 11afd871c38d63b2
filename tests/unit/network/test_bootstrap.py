"""NetworkClient: the way from bootstrap servers to brokers and back, and why it fails."""

from __future__ import annotations

import logging
import socket

import pytest

from kfast.client.bootstrap_diagnosis import BootstrapDiagnosis
from kfast.client.request_manager import NEVER_MS
from tests.unit.client.frames import metadata
from tests.unit.network.bench_client import Bench
from tests.unit.network.scripted import metadata_answer

UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def diagnosed(bench: Bench, turns: int = 5) -> str:
    for _ in range(turns):
        bench.turn()
    error = bench.client.bootstrap_error()
    assert error is not None
    assert len(str(error).splitlines()) <= 6
    return str(error)


# --- bootstrap and rebootstrap --------------------------------------------------------------------


def test_from_bootstrap_to_brokers() -> None:
    """N-13: the first request goes to a bootstrap server, later ones to brokers only."""
    bench = Bench(bootstrap_servers="s1:9092,s2:9092")
    for name in ("s1", "s2"):
        bench.network.listen(name).answers[3] = metadata_answer({1: ("b1", 9092)})
    bench.network.listen("b1")
    assert bench.client.bootstrap_error() is None
    assert bench.client.least_loaded_node(bench.clock.now) in {-1, -2}
    bench.run_until(lambda: bench.metadata.cluster.brokers)
    assert bench.client.least_loaded_node(bench.clock.now) == 1
    assert len(bench.network.attempts) == 1, "one bootstrap server is enough"
    bench.turn(0)
    assert bench.client.connection_count == 0, "its connection is not kept"
    assert bench.client.bootstrap_error() is None
    assert not bench.client.has_reached_broker
    bench.make_ready(1)
    assert bench.client.has_reached_broker


@pytest.mark.parametrize("is_busy", [False, True])
def test_the_connection_to_a_bootstrap_server_becomes_that_of_the_broker(is_busy: bool) -> None:
    """N-13: a broker at the address of a server is not connected to a second time."""
    bench = Bench(bootstrap_servers="s1:9092")
    server = bench.network.listen("s1")
    server.answers[3] = metadata_answer({1: ("s1", 9092), 2: ("b2", 9092)})
    bench.network.listen("b2")
    if is_busy:
        bench.run_until(lambda: bench.client.connection_count)
        bench.ask(None)
    bench.run_until(lambda: bench.metadata.cluster.brokers)
    bench.turn(0)
    assert bench.is_ready(1)
    assert bench.client.has_reached_broker
    assert len(bench.network.attempts) == bench.client.connection_count == 1
    bench.ask(1)
    bench.run_until(lambda: bench.handler.count == 1 + is_busy)
    assert bench.handler.responses[-1][1].node_id == 1
    assert len(bench.network.attempts) == 1
    server.kill()
    bench.poll(100)
    assert bench.client.connection_failed(1) is not None
    assert not bench.is_ready(1)


def test_a_broker_that_is_connected_keeps_its_connection() -> None:
    """N-13: the one to the bootstrap server is closed then."""
    bench = Bench(bootstrap_servers="s1:9092")
    server = bench.network.listen("s1")
    server.answers[3] = metadata_answer({1: ("b1", 9092)})
    bench.network.listen("b1")
    bench.run_until(lambda: bench.metadata.cluster.brokers)
    bench.make_ready(1)
    server.answers[3] = metadata_answer({1: ("b1", 9092), 2: ("s1", 9092)})
    bench.network.servers["b1", 9092].answers[3] = server.answers[3]
    bench.metadata.request_update()
    bench.run_until(lambda: len(bench.metadata.cluster.brokers) == 2)
    bench.turn(0)
    assert bench.client.connection_count == 1


def test_an_attempt_under_way_is_no_error_yet() -> None:
    """E-04: nothing is wrong with a server that was asked a moment ago."""
    bench = Bench(bootstrap_servers="s1:9092")
    bench.network.listen("s1", is_silent=True)
    bench.turn(10)
    assert bench.client.bootstrap_error() is None
    bench.clock.advance(1_000)
    assert bench.client.bootstrap_error() is not None


def test_a_dead_bootstrap_server_is_passed_over() -> None:
    """N-13: the next one, without waiting for the first."""
    bench = Bench(bootstrap_servers="s1:9092,s2:9092,s3:9092")
    bench.network.listen("s3").answers[3] = metadata_answer({1: ("b1", 9092)})
    start = bench.clock.now
    bench.run_until(lambda: bench.metadata.cluster.brokers)
    assert bench.clock.now - start < 1_000


def test_a_bootstrap_server_that_swallows_packets_costs_a_moment() -> None:
    """N-13: not the whole set-up time."""
    bench = Bench(bootstrap_servers="s1:9092,s2:9092")
    bench.clock.random_value = 0.0
    bench.network.listen("s1", is_blackhole=True)
    bench.network.listen("s2", is_blackhole=True)
    bench.turn(1)
    (first,) = [ip for _, ip, _ in bench.network.attempts]
    other = bench.network.servers[{"s1": "s2", "s2": "s1"}[first], 9092]
    other.is_blackhole = False
    other.answers[3] = metadata_answer({1: ("b1", 9092)})
    start = bench.clock.now
    bench.run_until(lambda: bench.metadata.cluster.brokers)
    assert bench.clock.now - start <= 1_500


def test_brokers_that_all_moved_are_found_again() -> None:
    """M-10: KIP-899: no known broker reachable leads back to bootstrap_servers, with fresh DNS."""
    bench = Bench(bootstrap_servers="boot:9092")
    bench.network.names["boot"] = ["10.0.0.1"]
    old = bench.network.listen("10.0.0.1")
    old.answers[3] = metadata_answer({1: ("b1", 9092)})
    broker = bench.network.listen("b1")
    bench.run_until(lambda: bench.metadata.cluster.brokers)
    bench.make_ready(1)
    broker.kill()
    bench.network.servers.clear()
    bench.network.names["boot"] = ["10.0.0.9"]
    new = bench.network.listen("10.0.0.9")
    new.answers[3] = metadata_answer({1: ("new1", 9092)})
    bench.network.listen("new1").answers[3] = metadata_answer({1: ("new1", 9092)})
    bench.metadata.request_update()
    bench.run_until(lambda: bench.metadata.cluster.brokers.get(1, (0, ""))[1] == "new1")
    bench.make_ready(1)


def test_strategy_none_keeps_the_known_brokers() -> None:
    """M-10: for ever."""
    bench = Bench(metadata_recovery_strategy="none", bootstrap_servers="boot:9092")
    boot = bench.network.listen("boot")
    boot.answers[3] = metadata_answer({1: ("b1", 9092)})
    bench.run_until(lambda: bench.metadata.cluster.brokers)
    bench.metadata.request_update()
    before = len(boot.received)
    for _ in range(300):
        bench.turn()
    assert len(boot.received) == before
    assert bench.metadata.cluster.brokers
    assert {ip for _, ip, _ in bench.network.attempts[5:]} == {"b1"}


def test_a_lost_connection_alone_is_no_reason_to_start_over() -> None:
    """M-10: a broker that restarts is reconnected to, its route stays."""
    bench = Bench({1: ("b1", 9092)})
    server = bench.network.listen("b1")
    server.answers[3] = metadata_answer({1: ("b1", 9092)})
    bench.make_ready(1)
    server.kill()
    bench.metadata.request_update()
    for _ in range(10):
        bench.turn()
        assert bench.metadata.cluster.brokers
    assert bench.is_ready(1)


def test_brokers_that_lead_nowhere_are_no_reason_to_hurry() -> None:
    """M-10, N-17: going round between bootstrap and dead brokers is paced."""
    bench = Bench(bootstrap_servers="boot:9092")
    bench.network.listen("boot").answers[3] = metadata_answer({1: ("dead", 9092)})
    start = bench.clock.now
    while bench.clock.now - start < 60_000:
        bench.turn(60_000)
        bench.metadata.request_update()
    assert len(bench.network.attempts) < 300
    assert bench.network.selects < 2_000


def test_a_rebootstrap_on_request_of_a_broker() -> None:
    """M-10: KIP-1102: connections close, what is in flight fails retriably, topics stay known."""
    bench = Bench(bootstrap_servers="boot:9092")
    bench.network.listen("boot").answers[3] = metadata_answer({1: ("b1", 9092)})
    broker = bench.network.listen("b1")
    bench.run_until(lambda: bench.metadata.cluster.brokers)
    bench.make_ready(1)
    broker.answers[3] = lambda received: metadata(error=129)
    bench.metadata.request_update()
    bench.clock.advance(1_000)
    before = len(bench.network.servers["boot", 9092].received)
    bench.run_until(lambda: len(bench.network.servers["boot", 9092].received) > before)
    assert broker.open_transports() == []
    bench.run_until(lambda: bench.metadata.cluster.brokers)


def test_canonical_bootstrap_names() -> None:
    """N-10: KIP-235: a name stands for the canonical host of each address."""
    bench = Bench(
        bootstrap_servers="boot:9092",
        client_dns_lookup="resolve_canonical_bootstrap_servers_only",
    )
    bench.network.canonical["boot"] = ["h1.example", "h2.example"]
    bench.network.listen("h2.example").answers[3] = metadata_answer({1: ("b1", 9092)})
    bench.run_until(lambda: bench.metadata.cluster.brokers)
    assert "boot" not in bench.network.look_ups


# --- why nothing works ----------------------------------------------------------------------------


def test_nothing_listens() -> None:
    """E-04: with address, cause, and for how long."""
    bench = Bench(bootstrap_servers="127.0.0.1:9092")
    text = diagnosed(bench)
    assert text.startswith("cannot connect to 127.0.0.1:9092: connection refused\n")
    assert "nothing listens there (tried 1 of 1 servers for " in text


def test_names_that_do_not_resolve() -> None:
    """E-04: the name as given, the resolver's words."""
    bench = Bench(bootstrap_servers="nosuchhost:9092")
    bench.network.names["nosuchhost"] = UNKNOWN
    text = diagnosed(bench)
    assert text.startswith('cannot resolve "nosuchhost" (from bootstrap_servers)\n')
    assert "Name or service not known" in text


def test_an_http_server() -> None:
    bench = Bench(bootstrap_servers="localhost:8080")
    bench.network.listen("localhost", 8080, greeting=b"HTTP/1.0 400 Bad Request\r\n\r\n")
    text = diagnosed(bench)
    assert text.startswith("localhost:8080 answers HTTP, not Kafka\n")
    assert '"HTTP/1.0 400 Bad Request"' in text


def test_a_tls_listener() -> None:
    bench = Bench(bootstrap_servers="b:9093")
    bench.network.listen("b", 9093, greeting=b"\x15\x03\x03\x00\x02\x02\x0a")
    text = diagnosed(bench)
    assert "this looks like a TLS listener" in text
    assert text.endswith('try: security_protocol="SSL", or the plaintext port')


def test_a_server_that_closes_at_once() -> None:
    bench = Bench(bootstrap_servers="b:9093")
    bench.network.listen("b", 9093, closes_at_once=True)
    text = diagnosed(bench)
    assert text.startswith("b:9093 closed the connection without an answer\n")
    assert text.endswith("try: check security_protocol, and the port: usually 9092")


def test_a_server_that_says_nothing() -> None:
    """E-04: already while it is being waited for."""
    bench = Bench(bootstrap_servers="b:9092")
    bench.network.listen("b", is_silent=True)
    bench.turn()
    bench.turn()
    text = diagnosed(bench, 1)
    assert "b:9092 accepted the connection but did not answer within" in text
    bench.run_until(lambda: bench.client.connection_delay(-1, bench.clock.now) < NEVER_MS)
    assert "did not answer within 10.0 s" in diagnosed(bench, 0)


def test_a_server_that_swallows_packets() -> None:
    bench = Bench(bootstrap_servers="b:9092")
    bench.network.listen("b", is_blackhole=True)
    assert "cannot connect to b:9092: no answer within" in diagnosed(bench)


@pytest.mark.parametrize("is_resolvable", [False, True])
def test_a_dead_advertised_address(is_resolvable: bool) -> None:
    """E-04: names both addresses; whatever point of its retries the client is at."""
    bench = Bench(bootstrap_servers="localhost:9092")
    bench.network.listen("localhost").answers[3] = metadata_answer({1: ("kafka", 29092)})
    if not is_resolvable:
        bench.network.names["kafka"] = UNKNOWN
    bench.run_until(lambda: bench.metadata.cluster.brokers)
    bench.client.ready(1, bench.clock.now)
    for _ in range(60):
        bench.turn(20)
        bench.metadata.request_update()
        text = str(bench.client.bootstrap_error())
        assert text.startswith(
            "connected to localhost:9092, but that broker gives its address as kafka:29092, "
        )
        assert ("which does not resolve here" in text) is not is_resolvable
    assert "advertised.listeners" in text
    failed = bench.client.connection_failed(1)
    assert failed is None or "localhost:9092" in failed.message


def test_one_broker_down_is_not_an_advertised_address() -> None:
    """E-04: the others were reached, so the address is not to blame."""
    bench = Bench(bootstrap_servers="boot:9092")
    brokers = {1: ("b1", 9092), 2: ("b2", 9092)}
    bench.network.listen("boot").answers[3] = metadata_answer(brokers)
    bench.network.listen("b1").answers[3] = metadata_answer(brokers)
    bench.run_until(lambda: bench.metadata.cluster.brokers)
    bench.make_ready(1)
    assert not bench.client.ready(2, bench.clock.now)
    error = bench.client.connection_failed(2)
    assert error is not None
    assert error.message == "cannot connect to broker 2 (b2:9092): connection refused"
    assert bench.client.bootstrap_error() is None, "one broker works"


def test_a_cluster_that_went_away() -> None:
    """E-04: brokers that worked and are gone are named as such."""
    bench = Bench({1: ("b1", 9092)}, metadata_recovery_strategy="none")
    server = bench.network.listen("b1")
    server.answers[3] = metadata_answer({1: ("b1", 9092)})
    bench.make_ready(1)
    del bench.network.servers["b1", 9092]
    server.kill()
    bench.metadata.request_update()
    assert "cannot connect to broker 1 (b1:9092): connection refused" in diagnosed(bench)


def test_the_best_of_several_servers() -> None:
    bench = Bench(bootstrap_servers="a:9092,b:8080,c:9092")
    bench.network.names["c"] = UNKNOWN
    bench.network.listen("b", 8080, greeting=b"HTTP/1.0 400\r\n")
    text = diagnosed(bench)
    assert text.startswith("b:8080 answers HTTP, not Kafka\n")
    assert "tried 3 of 3 servers" in text


def test_a_refused_metadata_request_is_the_reason() -> None:
    bench = Bench(bootstrap_servers="b:9092")
    bench.network.listen("b", ranges={3: (0, 5), 18: (0, 4)})
    text = diagnosed(bench)
    assert "does not support Metadata" in text


def test_warnings_are_few(caplog: pytest.LogCaptureFixture) -> None:
    """O-01: one warning per server for ten minutes of failure; the rest is debug."""
    bench = Bench(bootstrap_servers="a:9092,b:9092")
    start = bench.clock.now
    with caplog.at_level(logging.INFO, logger="kfast"):
        while bench.clock.now - start < 600_000:
            bench.turn(60_000)
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 2
    assert len(caplog.records) < 10


def test_a_state_has_a_repr() -> None:
    bench = Bench(bootstrap_servers="a:9092")
    bench.turn()
    for thing in (bench.client, bench.metadata, bench.manager, bench.client._pool):
        assert type(thing).__name__ in repr(thing)
    assert BootstrapDiagnosis.__name__ in repr(bench.client._diagnosis)


# --- what is certain ------------------------------------------------------------------------------


def test_it_is_certain_when_every_server_was_tried_and_refuses() -> None:
    """E-13: one that was not tried, or that has not answered yet, may work."""
    bench = Bench(bootstrap_servers="s1:9092,s2:9092")
    bench.network.names["s2"] = UNKNOWN
    before = bench.client.all_servers_failed
    diagnosed(bench)
    assert (before, bench.client.all_servers_failed) == (False, True)
    waiting = Bench(bootstrap_servers="s1:9092,s2:9092")
    waiting.network.listen("s2", is_silent=True)
    for _ in range(60):
        waiting.turn(100)
        waiting.metadata.request_update()
        assert not waiting.client.all_servers_failed
    assert waiting.client.bootstrap_error() is not None


def test_it_is_certain_when_no_advertised_address_works() -> None:
    """E-13: whatever point of its retries, or of a rebootstrap, the client is at."""
    brokers = {1: ("b1", 9092), 2: ("b2", 9092)}
    bench = Bench(bootstrap_servers="boot:9092")
    bench.network.listen("boot").answers[3] = metadata_answer(brokers)
    bench.run_until(lambda: bench.metadata.cluster.brokers)
    seen = []
    for node_id in brokers:
        seen.append(bench.client.all_servers_failed)
        bench.client.ready(node_id, bench.clock.now)
    for _ in range(60):
        bench.turn(20)
        bench.metadata.request_update()
        seen.append(bench.client.all_servers_failed)
    assert seen == [False, False] + 60 * [True]
