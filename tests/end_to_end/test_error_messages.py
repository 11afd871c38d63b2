"""What the user reads when something is wrong, through the public API and real sockets.

For every case: the class, every line of the text, that it comes within the time the call was given,
that positions stay and other partitions go on. Nothing is ever printed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kfast
from kfast import TopicPartition
from kfast.errors import (
    InvalidTopicError,
    KafkaConnectionError,
    KafkaTimeoutError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import (
    HOST,
    T0,
    T1,
    cluster_of,
    consumer,
    dead_port,
    polled_until_error,
    raised,
    raw_server,
    read_until,
    warnings_of,
    web_server,
)
from tests.simulation.wire_faults import TLS_ALERT

NO_SUCH_HOST = "nosuchhost.invalid"
"""A name that never resolves (RFC 2606)."""

pytestmark = pytest.mark.usefixtures("nothing_is_printed")

TRIED = re.compile(r"tried 1 of 1 servers for \d+\.\d s")


# -- no broker -------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[kfast.KafkaConsumer, int], object]] = {
    "poll": lambda reader, ms: reader.poll(timeout_ms=ms),
    "position": lambda reader, ms: reader.position(T0, timeout_ms=ms),
    "beginning_offsets": lambda reader, ms: reader.beginning_offsets([T0], timeout_ms=ms),
    "end_offsets": lambda reader, ms: reader.end_offsets([T0], timeout_ms=ms),
    "offsets_for_times": lambda reader, ms: reader.offsets_for_times({T0: 0}, timeout_ms=ms),
    "partitions_for_topic": lambda reader, ms: reader.partitions_for_topic("t", timeout_ms=ms),
    "topics": lambda reader, ms: reader.topics(timeout_ms=ms),
}


@pytest.mark.parametrize("name", CALLS)
def test_connection_refused(name: str) -> None:
    """E-06: every blocking call says so within its time; construction does not connect."""
    address = f"{HOST}:{dead_port()}"
    with consumer(address) as reader:
        reader.assign([T0])
        call = CALLS[name]
        error, lines = raised(KafkaConnectionError, lambda: call(reader, 1050), within_ms=1050)
    assert lines[0] == f"cannot connect to {address}: connection refused"
    assert re.fullmatch(rf"cause: nothing listens there \({TRIED.pattern}\)", lines[1])
    assert lines[2:] == ["try: check bootstrap_servers, and that the broker runs"]
    assert error.retriable


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"poll"}))
def test_connection_refused_is_told_by_short_calls_too(name: str) -> None:
    """E-06: a call whose time is up tells what is known by then."""
    address = f"{HOST}:{dead_port()}"
    with consumer(address) as reader:
        reader.assign([T0])
        call = CALLS[name]
        _, lines = raised(KafkaConnectionError, lambda: call(reader, 200), within_ms=200)
    assert lines[0] == f"cannot connect to {address}: connection refused"


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"poll"}))
def test_a_first_broker_is_tried_for_its_own_time(name: str) -> None:
    """E-06: bootstrap_timeout_ms bounds a call that has a minute, while nothing was reached."""
    address = f"{HOST}:{dead_port()}"
    with consumer(address, bootstrap_timeout_ms=300) as reader:
        reader.assign([T0])
        call = CALLS[name]
        for _ in range(2):
            _, lines = raised(KafkaConnectionError, lambda: call(reader, 60_000), within_ms=300)
            assert lines[0] == f"cannot connect to {address}: connection refused"


def test_a_broker_that_was_reached_has_the_whole_time() -> None:
    """E-06: bootstrap_timeout_ms says nothing about brokers that are gone for a while."""
    cluster = cluster_of()
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, bootstrap_timeout_ms=1) as reader,
    ):
        reader.assign([T0])
        assert read_until(reader, {T0: 10})
        cluster.stop_node(1)
        timer = threading.Timer(0.4, lambda: cluster.start_node(1))
        timer.start()
        assert reader.end_offsets([T0], timeout_ms=20_000) == {T0: 10}
        timer.join()


@pytest.mark.parametrize("call", ["end_offsets", "beginning_offsets", "by time", "position"])
def test_look_ups_of_an_unknown_topic_end_early(call: str) -> None:
    """P-07, E-06: with the nearest name, long before the timeout."""
    cluster = cluster_of()
    cluster.create_topic("orders")
    missing = TopicPartition("oders", 0)
    calls: dict[str, Callable[[kfast.KafkaConsumer], object]] = {
        "end_offsets": lambda reader: reader.end_offsets([missing, T0]),
        "beginning_offsets": lambda reader: reader.beginning_offsets([missing]),
        "by time": lambda reader: reader.offsets_for_times({missing: 5}),
        "position": lambda reader: reader.position(missing),
    }
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([missing, T0])
        error, lines = raised(
            UnknownTopicOrPartitionError, lambda: calls[call](reader), within_ms=3_000
        )
    assert lines == ['no topic "oders" on this cluster (2 topics)', 'try: did you mean "orders"?']
    assert error.topic == "oders"


def test_polling_on_raises_again_and_ends_when_the_broker_comes() -> None:
    cluster = cluster_of()
    with BrokerServer(cluster) as server:
        cluster.stop_node(1)
        with consumer(server.bootstrap_servers) as reader:
            reader.subscribe(["t"])
            raised(KafkaConnectionError, lambda: reader.poll(timeout_ms=1050))
            raised(KafkaConnectionError, lambda: reader.poll(timeout_ms=0))
            cluster.start_node(1)
            seen = read_until(reader, {T0: 10, T1: 10})
    assert seen == {T0: list(range(10)), T1: list(range(10))}


def test_a_name_that_does_not_resolve() -> None:
    """E-04: the name, where it comes from and the resolver's own words."""
    with consumer(f"{NO_SUCH_HOST}:9092") as reader:
        reader.subscribe(["t"])
        error, lines = raised(
            KafkaConnectionError, lambda: reader.poll(timeout_ms=1200), within_ms=1200
        )
    assert lines[0] == f'cannot resolve "{NO_SUCH_HOST}" (from bootstrap_servers)'
    assert lines[1].startswith("cause: ")
    assert TRIED.search(lines[1])
    assert len(lines[1]) > len("cause: (tried 1 of 1 servers for 0.0 s)")
    assert lines[2] == "try: check the spelling of the name, and this machine's DNS"
    assert error.retriable


def test_several_servers_none_of_which_works() -> None:
    dead = f"{HOST}:{dead_port()}"
    with consumer(f"{NO_SUCH_HOST}:9092,{dead}") as reader:
        reader.subscribe(["t"])
        _, lines = raised(KafkaConnectionError, lambda: reader.poll(timeout_ms=1200))
    assert lines[0] == f"cannot connect to {dead}: connection refused"
    assert "tried 2 of 2 servers" in lines[1]
    assert lines[2] == f'found: cannot resolve "{NO_SUCH_HOST}" (from bootstrap_servers)'


@pytest.mark.parametrize("name", ["poll", "position", "end_offsets"])
def test_advertised_address_that_does_not_resolve(name: str) -> None:
    cluster = cluster_of()
    with BrokerServer(cluster) as server:
        cluster.advertise(1, "kafka.invalid", 29092)
        with consumer(server.bootstrap_servers) as reader:
            reader.assign([T0])
            call = CALLS[name]
            error, lines = raised(KafkaConnectionError, lambda: call(reader, 1200), within_ms=1200)
    assert lines[0] == (
        f"connected to {server.bootstrap_servers}, but that broker gives its address as "
        "kafka.invalid:29092, which does not resolve here"
    )
    assert lines[1] == "cause: advertised.listeners on broker 1 names a host of another network"
    assert lines[2].startswith("found: ")
    assert lines[3] == "try: set advertised.listeners, or connect from inside that network"
    assert error.retriable


def test_advertised_address_that_refuses() -> None:
    cluster = cluster_of()
    port = dead_port()
    with BrokerServer(cluster) as server:
        cluster.advertise(1, HOST, port)
        with consumer(server.bootstrap_servers) as reader:
            reader.subscribe(["t"])
            _, lines = raised(KafkaConnectionError, lambda: reader.poll(timeout_ms=1200))
        _, bulk_lines = raised(
            KafkaConnectionError,
            lambda: kfast.read_topic(
                "t",
                bootstrap_servers=server.bootstrap_servers,
                default_api_timeout_ms=1000,
                request_timeout_ms=1000,
            ),
        )
    assert lines == bulk_lines
    assert lines == [
        f"connected to {server.bootstrap_servers}, but that broker gives its address as "
        f"{HOST}:{port}, where nothing listens",
        "cause: advertised.listeners on broker 1 names a host of another network",
        "try: set advertised.listeners, or connect from inside that network",
    ]


# -- not a Kafka listener --------------------------------------------------------------------------


def first_poll(address: str, **configs: Any) -> list[str]:
    """Return the lines of what the first poll at an address raises."""
    with consumer(address, **configs) as reader:
        reader.subscribe(["t"])
        error, lines = raised(
            KafkaConnectionError, lambda: reader.poll(timeout_ms=1200), within_ms=1200
        )
    assert error.retriable
    return lines


def test_a_web_server() -> None:
    with web_server() as address:
        lines = first_poll(address)
    assert lines[0] == f"{address} answers HTTP, not Kafka"
    assert TRIED.search(lines[1])
    assert lines[2].startswith("found: ")
    assert lines[3] == "try: the Kafka port is usually 9092"


def test_a_web_server_with_a_status_line() -> None:
    with raw_server(b"HTTP/1.0 400\r\n\r\n") as address:
        lines = first_poll(address)
    assert lines[0] == f"{address} answers HTTP, not Kafka"
    assert lines[2] == 'found: "HTTP/1.0 400"'


def test_a_tls_listener() -> None:
    with raw_server(TLS_ALERT) as address:
        lines = first_poll(address)
    assert lines[0] == f"{address} answers TLS, not plaintext: this looks like a TLS listener"
    assert lines[-1] == 'try: security_protocol="SSL", or the plaintext port'


@pytest.mark.parametrize("reads_first", [True, False], ids=["after-reading", "at-once"])
def test_a_server_that_closes(reads_first: bool) -> None:
    with raw_server(b"", reads_first=reads_first) as address:
        lines = first_poll(address)
    assert lines[0] == f"{address} closed the connection without an answer"
    assert lines[1].startswith("cause: it expects TLS or SASL, or is no Kafka broker (tried 1 of 1")
    assert lines[-1].startswith("try: check security_protocol, and the port")


def test_a_server_that_never_answers() -> None:
    """N-08: reported by the poll in which bootstrap_timeout_ms passes."""
    with raw_server(None) as address:
        lines = first_poll(address, bootstrap_timeout_ms=300)
    assert re.fullmatch(
        rf"{address} accepted the connection but did not answer within \d\.\d s", lines[0]
    )
    assert lines[1].startswith("cause: it is no Kafka listener, or the broker is slow or hangs")
    assert lines[-1] == "try: check the address: the Kafka port is usually 9092"


def test_something_else_entirely() -> None:
    with raw_server(b"SSH-2.0-OpenSSH_9.6\r\n", reads_first=False) as address:
        lines = first_poll(address)
    assert lines[0] == f"{address} answers something other than Kafka"
    assert lines[2] == 'found: "SSH-2.0-OpenSSH_9.6"'


# -- topics and partitions -------------------------------------------------------------------------


def test_an_unknown_topic_gets_a_suggestion_and_is_never_created() -> None:
    """M-06: reading creates nothing, be the brokers ever so willing."""
    cluster = FakeCluster()
    cluster.has_auto_creation = True
    cluster.create_topic("orders", 6)
    cluster.create_topic("payments")
    with BrokerServer(cluster) as server:
        with consumer(server.bootstrap_servers) as reader:
            reader.subscribe(["oders"])
            error, lines = raised(
                UnknownTopicOrPartitionError, lambda: reader.poll(timeout_ms=200), within_ms=200
            )
            assert reader.partitions_for_topic("oders") is None
            reader.subscribe(["inventory"])
            _, far = raised(UnknownTopicOrPartitionError, lambda: reader.poll(timeout_ms=300))
            reader.unsubscribe()
            reader.subscribe(pattern="o.*x")
            assert not reader.poll(timeout_ms=100)
        with pytest.raises(UnknownTopicOrPartitionError) as bulk:
            kfast.read_topic("oders", bootstrap_servers=server.bootstrap_servers)
    assert lines == [
        'no topic "oders" on this cluster (2 topics)',
        'try: did you mean "orders"?',
    ]
    assert str(bulk.value).splitlines() == lines
    assert error.topic == "oders"
    assert far == [
        'no topic "inventory" on this cluster (2 topics)',
        "try: create it first, or check that this user may describe it; reading creates none",
    ]
    assert set(cluster.topics) == {"orders", "payments"}


def test_an_unknown_topic_does_not_hold_up_the_others_and_is_read_once_it_appears() -> None:
    """M-05, M-07: it is reported once, then waited for."""
    cluster = cluster_of()
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, metadata_max_age_ms=200) as reader,
    ):
        reader.subscribe(["t", "later"])
        _, lines, seen = polled_until_error(UnknownTopicOrPartitionError, reader)
        assert lines[0] == 'no topic "later" on this cluster (1 topic)'
        assert seen == {T0: list(range(10)), T1: list(range(10))}
        assert not reader.poll(timeout_ms=50)
        cluster.create_topic("later")
        cluster.append("later", 0, [b"x"])
        tp = TopicPartition("later", 0)
        assert read_until(reader, {tp: 1}) == {tp: [0]}


def check_timeout_names_the_cause(call: Callable[[], object]) -> None:
    """Check what a look-up of a partition that does not exist ends with."""
    error, lines = raised(KafkaTimeoutError, call, within_ms=200)
    assert "orders-77" in lines[0]
    assert lines[1] == "cause: orders has partitions 0-5: there is no partition 77"
    assert (error.topic, error.partition) == ("orders", 77)


def test_a_partition_that_is_not_there() -> None:
    cluster = cluster_of()
    cluster.create_topic("orders", 6)
    missing = TopicPartition("orders", 77)
    expected = [
        "orders has partitions 0-5: there is no partition 77",
        "try: name only partitions that exist",
    ]
    with BrokerServer(cluster) as server:
        with consumer(server.bootstrap_servers) as reader:
            reader.assign([missing, T0])
            error, lines, seen = polled_until_error(UnknownTopicOrPartitionError, reader)
            assert lines == expected
            assert (error.topic, error.partition) == ("orders", 77)
            assert seen == {T0: list(range(10))}
            cluster.append("t", 0, [b"more"])
            assert read_until(reader, {T0: 1}) == {T0: [10]}
            check_timeout_names_the_cause(lambda: reader.position(missing, timeout_ms=200))
            check_timeout_names_the_cause(lambda: reader.end_offsets([missing], timeout_ms=200))
        _, lines = raised(
            UnknownTopicOrPartitionError,
            lambda: kfast.read_topic([missing], bootstrap_servers=server.bootstrap_servers),
        )
    assert lines == expected


def test_a_topic_without_permission() -> None:
    """S-08: named, raised at every poll, other topics go on."""
    cluster = cluster_of(1)
    cluster.create_topic("secret")
    cluster.denied_topics.add("secret")
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.subscribe(["t", "secret"])
        error, lines, seen = polled_until_error(TopicAuthorizationError, reader)
        seen = seen or read_until(reader, {T0: 10})
    assert lines[0] == "this connection may not describe topic secret"
    assert error.topic == "secret"
    assert seen == {T0: list(range(10))}


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "ä"])
def test_illegal_topic_names(name: str) -> None:
    """E-05: refused without asking a broker."""
    with consumer(f"{HOST}:9") as reader:
        for call in (
            lambda: reader.subscribe([name]),
            lambda: reader.assign([TopicPartition(name, 0)]),
            lambda: reader.partitions_for_topic(name),
        ):
            error, lines = raised(InvalidTopicError, call)
            assert lines[0].endswith("cannot be the name of a topic")
            assert not error.retriable
            assert len(lines[0]) < 120


# -- the log ---------------------------------------------------------------------------------------


def test_a_dead_broker_is_one_warning_however_often_it_is_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """O-01: one line per change of state; attempts in between are not worth one each."""
    cluster = cluster_of(1)
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([T0])
        read_until(reader, {T0: 10})
        assert warnings_of(caplog) == []
        made = cluster.connections_made
        cluster.stop_node(1, fails_over=False)
        for _ in range(10):
            reader.poll(timeout_ms=100)
        dead = warnings_of(caplog)
        cluster.start_node(1)
        cluster.append("t", 0, [b"x"])
        assert read_until(reader, {T0: 1}) == {T0: [10]}
        assert cluster.connections_made > made
    assert 1 <= len(dead) <= 2
    assert all(server.bootstrap_servers in line for line in dead)
