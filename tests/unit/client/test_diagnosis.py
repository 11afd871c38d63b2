"""E-04: connection errors say what failed, why, and what to do."""

from __future__ import annotations

import errno
import pickle
import socket

import pytest

from kfast.client import diagnosis
from kfast.client.cluster import Node
from kfast.client.diagnosis import FailureKind, failure_kind
from kfast.errors import KafkaConnectionError, KafkaError

BOOTSTRAP = Node(-1, "localhost", 9092)
BROKER = Node(1, "kafka", 29092)
REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def check_shape(error: KafkaError) -> list[str]:
    lines = str(error).splitlines()
    assert 2 <= len(lines) <= 6
    assert lines[-1].startswith("try: ")
    assert error.retriable
    assert isinstance(error, KafkaConnectionError)
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert failure_kind(copy) is failure_kind(error)
    return lines


def test_connection_refused() -> None:
    error = diagnosis.connect_failed(Node(-1, "127.0.0.1", 9092), REFUSED)
    lines = check_shape(error)
    assert lines[0] == "cannot connect to 127.0.0.1:9092: connection refused"
    assert lines[1] == "cause: nothing listens there"
    assert failure_kind(error) is FailureKind.REFUSED


def test_all_addresses_are_named() -> None:
    error = diagnosis.connect_failed(BOOTSTRAP, REFUSED, ["::1", "127.0.0.1"])
    assert "(tried ::1, 127.0.0.1)" in (error.cause or "")


def test_ipv6_addresses_are_bracketed() -> None:
    error = diagnosis.connect_failed(Node(-1, "::1", 9092), REFUSED)
    assert "[::1]:9092" in error.message


def test_a_broker_is_named_by_id_and_address() -> None:
    """O-02: node id and address."""
    error = diagnosis.connect_failed(BROKER, REFUSED)
    assert error.message == "cannot connect to broker 1 (kafka:29092): connection refused"
    assert error.node == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.EHOSTUNREACH, FailureKind.UNREACHABLE),
        (errno.ENETUNREACH, FailureKind.UNREACHABLE),
        (errno.ETIMEDOUT, FailureKind.CONNECT_TIMEOUT),
        (errno.EMFILE, FailureKind.EXHAUSTED),
        (errno.EADDRNOTAVAIL, FailureKind.EXHAUSTED),
        (errno.ENOBUFS, FailureKind.EXHAUSTED),
        (errno.EACCES, FailureKind.DENIED),
        (errno.EPERM, FailureKind.DENIED),
        (errno.EAFNOSUPPORT, FailureKind.DENIED),
        (errno.ENOPROTOOPT, FailureKind.OTHER),
    ],
)
def test_other_failures_keep_the_systems_words(code: int, kind: FailureKind) -> None:
    error = diagnosis.connect_failed(BOOTSTRAP, OSError(code, "Some Words"))
    assert failure_kind(error) is kind
    assert error.message.endswith("some words")
    check_shape(error)


@pytest.mark.parametrize("code", sorted(errno.errorcode))
def test_only_a_missing_route_is_called_that(code: int) -> None:
    """Y-09: of an error that is not known nothing is asserted but the system's words."""
    error = diagnosis.connect_failed(BOOTSTRAP, OSError(code, "Some Words"), ["::1", "127.0.0.1"])
    names = {"ENETUNREACH", "EHOSTUNREACH", "ENETDOWN", "EHOSTDOWN"}
    assert ("route" in (error.cause or "")) is (errno.errorcode[code] in names)
    if failure_kind(error) is FailureKind.OTHER:
        assert error.cause == "tried ::1, 127.0.0.1"
    check_shape(error)
    lines = check_shape(diagnosis.no_sockets(OSError(code, "Some Words")))
    assert lines[0] == "cannot open sockets: some words"


def test_unresolvable_names() -> None:
    error = diagnosis.unresolvable(Node(-1, "nosuchhost", 9092), UNKNOWN)
    lines = check_shape(error)
    assert lines[0] == 'cannot resolve "nosuchhost" (from bootstrap_servers)'
    assert lines[1] == "cause: Name or service not known"
    assert "broker 1" in diagnosis.unresolvable(BROKER, UNKNOWN).message


def test_time_outs() -> None:
    silent = diagnosis.setup_timed_out(BOOTSTRAP, 10_000, is_connected=True)
    check_shape(silent)
    assert "accepted the connection but did not answer within 10.0 s" in silent.message
    swallowed = diagnosis.setup_timed_out(BOOTSTRAP, 10_000, is_connected=False)
    check_shape(swallowed)
    assert "no answer within 10.0 s" in swallowed.message
    half = diagnosis.setup_timed_out(BOOTSTRAP, 10_000, is_handshaking=True)
    check_shape(half)
    assert half.message.endswith("did not complete the TLS handshake within 10.0 s")


def test_foreign_servers() -> None:
    http = diagnosis.not_kafka(Node(-1, "localhost", 8080), b"HTTP/1.0 400 Bad\r\n")
    lines = check_shape(http)
    assert lines[0] == "localhost:8080 answers HTTP, not Kafka"
    assert lines[1] == 'found: "HTTP/1.0 400 Bad"'
    assert lines[-1] == "try: the Kafka port is usually 9092"
    tls = diagnosis.not_kafka(BOOTSTRAP, b"\x15\x03\x03\x00")
    assert "looks like a TLS listener" in check_shape(tls)[0]
    assert tls.hint == 'security_protocol="SSL", or the plaintext port'
    sasl = diagnosis.not_kafka(BOOTSTRAP, b"\x15\x03\x03\x00", "SASL_PLAINTEXT")
    assert sasl.hint == 'security_protocol="SASL_SSL", or the plaintext port'
    closed = diagnosis.closed_early(BOOTSTRAP)
    assert closed.hint == "check security_protocol, and the port: usually 9092"
    check_shape(diagnosis.not_kafka(BOOTSTRAP, b"\x00\x01\xff"))
    check_shape(diagnosis.not_kafka(BOOTSTRAP, b""))
    check_shape(diagnosis.closed_early(BOOTSTRAP))


def test_one_server_that_failed() -> None:
    refused = diagnosis.connect_failed(Node(-1, "127.0.0.1", 9092), REFUSED)
    error = diagnosis.bootstrap_failed([(BOOTSTRAP, refused)], 1, 1_040)
    assert check_shape(error)[:2] == [
        "cannot connect to 127.0.0.1:9092: connection refused",
        "cause: nothing listens there (tried 1 of 1 servers for 1.0 s)",
    ]


def test_the_most_telling_of_several_servers_is_named() -> None:
    nodes = [Node(-1 - n, f"h{n}", 9092) for n in range(5)]
    failures = [(node, diagnosis.connect_failed(node, REFUSED)) for node in nodes]
    failures[2] = (nodes[2], diagnosis.not_kafka(nodes[2], b"HTTP/1.0 400\r\n"))
    error = diagnosis.bootstrap_failed(failures, 5, 2_000)
    lines = check_shape(error)
    assert lines[0] == "h2:9092 answers HTTP, not Kafka"
    assert "tried 5 of 5 servers for 2.0 s" in lines[1]
    failures = failures[:2] + failures[3:]
    lines = check_shape(diagnosis.bootstrap_failed(failures, 5, 2_000))
    assert "h0:9092" in lines[0]
    assert "h1:9092" in lines[2]
    assert "and 1 more" in lines[2]


def test_wholly_unresolvable_servers() -> None:
    """E-04: all names are listed."""
    nodes = [Node(-1, "a", 1), Node(-2, "b", 1)]
    failures: list[tuple[Node, KafkaError]] = [
        (node, diagnosis.unresolvable(node, UNKNOWN)) for node in nodes
    ]
    error = diagnosis.bootstrap_failed(failures, 2, 500)
    assert check_shape(error)[0] == 'cannot resolve any of "a", "b" (from bootstrap_servers)'


def test_a_dead_advertised_address() -> None:
    unknown = diagnosis.unresolvable(BROKER, UNKNOWN)
    lines = check_shape(diagnosis.advertised_address_dead(BOOTSTRAP, BROKER, unknown))
    assert lines[0] == (
        "connected to localhost:9092, but that broker gives its address as kafka:29092, "
        "which does not resolve here"
    )
    assert lines[1] == "cause: advertised.listeners on broker 1 names a host of another network"
    assert lines[-1] == "try: set advertised.listeners, or connect from inside that network"
    refused = diagnosis.connect_failed(BROKER, REFUSED)
    error = diagnosis.advertised_address_dead(BOOTSTRAP, BROKER, refused)
    assert "where nothing listens" in error.message
