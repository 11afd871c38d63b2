"""NetworkClient: how connections come up, fail, back off and end."""

from __future__ import annotations

import itertools
import logging

import pytest

from kfast.client.api_versions import NodeApiVersions
from kfast.client.connection_states import ConnectionKey
from kfast.client.request import Channel
from kfast.client.request_manager import NEVER_MS
from kfast.errors import (
    IllegalStateError,
    InvalidMetadataError,
    KafkaConnectionError,
    UnsupportedVersionError,
)
from kfast.network.network_client import ThrottleLog
from kfast.network.transport import EVENT_READ
from kfast.protocol.api_keys import ApiKey
from kfast.testing.releases import RELEASES
from tests.unit.client.frames import metadata
from tests.unit.network.bench_client import Bench
from tests.unit.network.scripted import metadata_answer

ONE = {1: ("b1", 9092)}


def test_ready_connects_and_becomes_true() -> None:
    """N-14: ready, is_ready and connection_delay along the way."""
    bench = Bench(ONE)
    bench.network.listen("b1")
    client, now = bench.client, bench.clock.now
    assert not bench.is_ready(1)
    assert bench.network.attempts == []
    assert not client.ready(1, now)
    assert len(bench.network.attempts) == 1
    assert client.connection_delay(1, now) == NEVER_MS
    assert not client.ready(1, now), "asking again opens no second connection"
    bench.poll()
    assert client.ready(1, now)
    assert bench.is_ready(1)
    assert client.connection_delay(1, now) == 0
    assert client.connection_failed(1) is None
    assert client.connection_count == 1
    assert len(bench.network.attempts) == 1


def test_features_are_known_per_connection() -> None:
    """K-11: group.version tells whether KIP-848 is in force."""
    bench = Bench(ONE)
    bench.network.listen("b1")
    assert bench.client.finalized_feature(1, "group.version") is None, "no connection"
    bench.make_ready(1)
    assert bench.client.finalized_feature(1, "group.version") == 0, "not in force"
    assert bench.client.finalized_feature(1, "group.version", Channel.COORDINATOR) is None
    channel = bench.client._pool.get(ConnectionKey(1, Channel.DATA))
    assert channel is not None
    channel.connection.handshake.result = NodeApiVersions({18: (0, 4)}, {"group.version": 1})
    assert bench.client.finalized_feature(1, "group.version") == 1


def test_versions_are_known_per_connection() -> None:
    """N-01: asked on every connection; a missing API raises only when it is needed."""
    bench = Bench({1: ("b1", 9092), 2: ("b2", 9092)})
    bench.network.listen("b1", ranges=dict(RELEASES["2.1"]))
    bench.network.listen("b2", ranges={3: (0, 13), 18: (0, 4)})
    with pytest.raises(IllegalStateError):
        bench.client.api_version(1, ApiKey.FETCH)
    bench.make_ready(1)
    bench.make_ready(2)
    assert bench.client.api_version(1, ApiKey.FETCH) == 10
    assert bench.client.api_version(2, ApiKey.METADATA) == 13
    assert bench.client.api_version(2, ApiKey.METADATA, max_version=11) == 11
    with pytest.raises(UnsupportedVersionError) as caught:
        bench.client.api_version(2, ApiKey.FETCH)
    assert caught.value.node == 2


@pytest.mark.parametrize("release", RELEASES)
def test_brokers_of_all_releases_are_understood(release: str) -> None:
    """N-03: from the handshake to the first answer."""
    bench = Bench()
    bench.network.names["localhost"] = ["127.0.0.1"]
    server = bench.network.listen("127.0.0.1", ranges=dict(RELEASES[release]))
    server.answers[3] = metadata_answer({1: ("127.0.0.1", 9092)})
    bench.run_until(lambda: bench.metadata.cluster.brokers)
    bench.ask(1)
    bench.run_until(lambda: bench.handler.responses)


def test_a_server_that_closes_on_new_versions_is_asked_in_version_0() -> None:
    """N-02: the next connection asks version 0; the software name is never sent there."""
    bench = Bench(ONE)
    server = bench.network.listen("b1", ranges={1: (4, 11), 3: (0, 8), 18: (0, 0)})
    server.closes_at_once = True
    bench.client.ready(1, bench.clock.now)
    bench.poll()
    assert bench.client.connection_failed(1) is not None
    server.closes_at_once = False
    bench.clock.advance(100)
    bench.make_ready()
    assert [r.header.api_version for r in server.received] == [0]
    server.kill()
    bench.poll()
    bench.clock.advance(100)
    bench.make_ready()
    assert [r.header.api_version for r in server.received] == [0, 0], "it is remembered"


def test_refused_connections_back_off(caplog: pytest.LogCaptureFixture) -> None:
    """N-09: exponentially, with one warning however long it lasts (O-01)."""
    bench = Bench(ONE)
    with caplog.at_level(logging.DEBUG, logger="kfast"):
        for _ in range(8):
            assert not bench.client.ready(1, bench.clock.now)
            bench.poll()
            error = bench.client.connection_failed(1)
            assert isinstance(error, KafkaConnectionError)
            assert not bench.client.ready(1, bench.clock.now)
            bench.clock.advance(bench.client.connection_delay(1, bench.clock.now))
        server = bench.network.listen("b1")
        bench.make_ready()
    times = [at for at, _, _ in bench.network.attempts]
    assert [b - a for a, b in itertools.pairwise(times)] == [
        50, 100, 200, 400, 800, 1000, 1000, 1000,
    ]  # fmt: skip
    levels = [record.levelno for record in caplog.records]
    assert levels.count(logging.WARNING) == 1
    assert max(levels) == logging.WARNING
    assert "after 8 failed attempts" in caplog.text
    server.kill()
    bench.poll()
    assert bench.client.connection_delay(1, bench.clock.now) == 50, "READY starts the count over"


def test_set_up_time_is_bounded_and_grows() -> None:
    """N-08: a server that swallows packets; 10 s, 20 s, 30 s."""
    bench = Bench(ONE)
    bench.network.listen("b1", is_blackhole=True)
    took = []
    for _ in range(4):
        start = bench.clock.now
        bench.client.ready(1, start)
        while bench.client.connection_failed(1) is None:
            bench.poll(1_000_000)
        took.append(bench.clock.now - start)
        bench.clock.advance(bench.client.connection_delay(1, bench.clock.now))
    assert took == [10_000, 20_000, 30_000, 30_000]
    assert bench.network.selects < 20, "no busy loop (N-17)"


def test_a_server_that_accepts_and_never_answers_is_left() -> None:
    """N-08, N-17: the handshake counts as set-up."""
    bench = Bench(ONE)
    bench.network.listen("b1", is_silent=True)
    bench.client.ready(1, bench.clock.now)
    start = bench.clock.now
    while bench.client.connection_failed(1) is None:
        bench.poll(1_000_000)
    assert bench.clock.now - start == 10_000
    assert "did not answer within 10.0 s" in str(bench.client.connection_failed(1))
    assert bench.client.connection_count == 0


def test_each_step_of_a_set_up_has_the_whole_time() -> None:
    """Y-02: an answer to ApiVersions counts from when the connection was accepted."""
    bench = Bench(ONE)
    server = bench.network.listen("b1", is_blackhole=True)
    bench.client.ready(1, bench.clock.now)
    bench.clock.advance(8_000)
    server.is_blackhole, server.is_silent = False, True
    start = bench.clock.now
    while bench.client.connection_failed(1) is None:
        bench.poll(1_000_000)
    assert bench.clock.now - start == 10_000


def test_all_addresses_are_tried_at_once() -> None:
    """N-10: KIP-602; the second address does not wait for a backoff."""
    bench = Bench({1: ("host", 9092)})
    bench.network.names["host"] = ["::1", "10.0.0.1", "10.0.0.2"]
    bench.network.listen("10.0.0.2")
    bench.make_ready()
    assert [ip for _, ip, _ in bench.network.attempts] == ["::1", "10.0.0.1", "10.0.0.2"]
    assert bench.network.look_ups == ["host"]


def test_names_are_looked_up_again_after_all_failed_and_after_a_loss() -> None:
    """N-10: a host that moved is found; the lost address comes last."""
    bench = Bench({1: ("host", 9092)})
    bench.network.names["host"] = ["10.0.0.1"]
    bench.client.ready(1, bench.clock.now)
    bench.network.names["host"] = ["10.0.0.2", "10.0.0.3"]
    second = bench.network.listen("10.0.0.2")
    bench.network.listen("10.0.0.3")
    bench.clock.advance(50)
    bench.make_ready()
    assert bench.network.look_ups == ["host", "host"]
    second.kill()
    bench.poll()
    bench.clock.advance(50)
    bench.make_ready()
    assert bench.network.look_ups == ["host"] * 3
    assert bench.network.attempts[-1][1] == "10.0.0.3"


def test_a_look_up_that_takes_its_time_blocks_nothing() -> None:
    """N-08: it is asked for again, and counts as set-up."""
    bench = Bench({1: ("slow", 9092), 2: ("b2", 9092)})
    bench.network.names["slow"] = None
    bench.network.listen("b2")
    bench.client.ready(1, bench.clock.now)
    bench.make_ready(2)
    bench.network.names["slow"] = ["10.0.0.1"]
    bench.network.listen("10.0.0.1")
    bench.poll()
    bench.make_ready(1)
    assert len(bench.network.look_ups) < 10
    bench = Bench({1: ("slow", 9092)})
    bench.network.names["slow"] = None
    bench.client.ready(1, bench.clock.now)
    start = bench.clock.now
    while bench.client.connection_failed(1) is None:
        bench.poll(1_000_000)
    assert bench.clock.now - start == 10_000


def test_a_node_that_moved_is_followed() -> None:
    """N-10: the old connection goes, and its backoff with it."""
    bench = Bench(ONE)
    old = bench.network.listen("b1")
    bench.make_ready()
    bench.ask(1)
    bench.poll()
    bench.metadata.update(metadata(brokers={1: ("new", 9092)}), bench.clock.now)
    new = bench.network.listen("new")
    bench.poll()
    assert old.open_transports() == []
    assert [e.retriable for e in bench.handler.errors] == [True]
    bench.make_ready()
    assert len(new.open_transports()) == 1


def test_two_ids_on_one_endpoint() -> None:
    """N-10: connections belong to node ids."""
    bench = Bench({1: ("b1", 9092), 2: ("b1", 9092)})
    server = bench.network.listen("b1")
    bench.make_ready(1)
    bench.make_ready(2)
    assert len(server.open_transports()) == 2


def test_group_traffic_has_a_connection_of_its_own() -> None:
    """N-07: an answer comes while a long poll waits on the other connection."""
    bench = Bench(ONE)
    server = bench.network.listen("b1")
    bench.make_ready(1)
    bench.make_ready(1, Channel.COORDINATOR)
    bench.ask(1)
    bench.poll()
    server.answers[3] = metadata_answer(ONE)
    beat = bench.ask(1, channel=Channel.COORDINATOR)
    bench.poll()
    bench.poll()
    assert [request for request, _ in bench.handler.responses] == [beat]
    assert bench.in_flight(1) == 1
    assert len(server.open_transports()) == 2


def test_idle_connections_close_quietly(caplog: pytest.LogCaptureFixture) -> None:
    """N-11: after connections_max_idle_ms, without backoff, below INFO; re-opened on demand."""
    bench = Bench({1: ("b1", 9092), 2: ("b2", 9092), 3: ("b3", 9092)})
    servers = [bench.network.listen(f"b{n}") for n in (1, 2, 3)]
    with caplog.at_level(logging.INFO, logger="kfast"):
        bench.make_ready(2)
        bench.clock.advance(1_000)
        bench.make_ready(1)
        bench.make_ready(3)
        bench.ask(3, timeout_ms=10_000_000)
        start = bench.clock.now - 1_000
        bench.poll()
        bench.poll(100_000_000)
        assert bench.clock.now - start == 540_000
        assert [len(s.open_transports()) for s in servers] == [1, 0, 1], "the longest unused first"
        bench.poll(100_000_000)
        assert [len(s.open_transports()) for s in servers] == [0, 0, 1], "in flight is not idle"
    assert caplog.records == []
    assert bench.client.connection_failed(2) is None
    assert bench.client.connection_delay(2, bench.clock.now) == 0
    bench.make_ready(2)


def test_the_brokers_idle_close_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """N-11, O-01: nothing in flight, nothing to say."""
    bench = Bench(ONE)
    server = bench.network.listen("b1")
    with caplog.at_level(logging.INFO, logger="kfast"):
        bench.make_ready()
        server.open_transports()[0].end()
        bench.poll(1_000)
        assert bench.client.connection_count == 0
        bench.clock.advance(1_000)
        bench.make_ready()
    assert caplog.records == []
    assert not bench.metadata.is_update_needed


def test_negative_idle_time_means_never() -> None:
    bench = Bench(ONE, connections_max_idle_ms=-1)
    bench.network.listen("b1")
    bench.make_ready()
    bench.poll(10**9)
    assert bench.client.connection_count == 1


def test_connections_to_a_node_that_moved_are_closed() -> None:
    """N-14: both connections of a node; what is in flight fails retriably."""
    bench = Bench(ONE)
    server = bench.network.listen("b1")
    bench.make_ready(1)
    bench.make_ready(1, Channel.COORDINATOR)
    bench.ask(1)
    bench.poll()
    bench.network.listen("b22")
    bench.metadata.update(metadata(brokers={1: ("b22", 9092)}), bench.clock.now)
    bench.poll()
    assert server.open_transports() == []
    assert [e.retriable for e in bench.handler.errors] == [True]
    bench.make_ready(1)


def test_a_node_nobody_knows() -> None:
    bench = Bench(ONE)
    assert not bench.client.ready(77, bench.clock.now)
    assert bench.client.connection_failed(77) is None
    bench.ask(77)
    bench.poll()
    (error,) = bench.handler.errors
    assert isinstance(error, InvalidMetadataError)
    assert bench.metadata.is_update_needed


def test_dead_brokers_cost_nothing() -> None:
    """N-17: an idle hour with all brokers dead is a few thousand short wake-ups, not a loop."""
    bench = Bench(metadata_recovery_strategy="none")
    bench.network.names["localhost"] = ["127.0.0.1"]
    start = bench.clock.now
    while bench.clock.now - start < 3_600_000:
        bench.turn(60_000)
    hour = 3_600
    assert bench.network.selects < 3 * hour
    assert len(bench.network.attempts) < 1.3 * hour


def test_the_endpoint_is_registered_for_reading_only_when_nothing_waits() -> None:
    """N-16: one selector; a connection that has nothing to write does not wake it."""
    bench = Bench({1: ("b1", 9092), 2: ("b2", 9092)})
    servers = [bench.network.listen("b1"), bench.network.listen("b2")]
    bench.make_ready(1)
    bench.make_ready(2)
    for server in servers:
        assert bench.network.interest(server.transports[0]) == EVENT_READ


def test_the_begin_of_throttling_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """U-13: by each broker, and again after a minute without any."""
    log = ThrottleLog("app-1")
    for now_ms in range(0, 100_000, 100):
        log.note(1, "Fetch", 350, now_ms)
    assert caplog.messages == [
        "Broker 1 throttles Fetch for 350 ms: a quota of the user or of client.id app-1 is used "
        "up; the metrics have fetch-throttle-time-avg and fetch-throttle-time-max"
    ]
    log.note(2, "Fetch", 1, 99_900)
    assert len(caplog.messages) == 2
    log.note(1, "Fetch", 350, 99_900 + 59_999)
    assert len(caplog.messages) == 2
    log.note(1, "Fetch", 350, 99_900 + 120_000)
    assert len(caplog.messages) == 3
