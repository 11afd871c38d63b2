"""Handshakes that fail for other reasons than a certificate, or take their time."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any

import pytest

from kfast.client.diagnosis import FailureKind, failure_kind
from kfast.errors import ConfigurationError, KafkaConnectionError
from kfast.network.transport import EVENT_READ
from kfast.security.tls.transport import TlsTransport
from tests.unit.network.serving import serving
from tests.unit.network.socket_errors import error_of
from tests.unit.security.tls.authority import (
    ca_pem,
    connected,
    receive,
    server_context,
    start,
    until_closed,
    wait,
)


def failure(
    handler: Callable[[socket.socket], None],
    context: ssl.SSLContext | None = None,
    **settings: Any,
) -> list[str]:
    """Return the lines of the error for a server; its port becomes 9092."""
    with (
        serving(handler, context) as port,
        pytest.raises(KafkaConnectionError) as caught,
        connected(port, **settings),
    ):
        pass
    assert caught.value.retriable
    return str(caught.value).replace(f":{port}", ":9092").splitlines()


def close(sock: socket.socket) -> None:
    sock.recv(4096)


def reset(sock: socket.socket) -> None:
    sock.recv(1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def answer(data: bytes) -> Callable[[socket.socket], None]:
    def handle(sock: socket.socket) -> None:
        sock.recv(1)  # what comes before it may be read in the moment in which it is sent
        sock.sendall(data)
        with contextlib.suppress(OSError):
            until_closed(sock)

    return handle


PLAINTEXT = [
    "127.0.0.1:9092 closed the TLS handshake: this looks like a plaintext listener",
    'try: security_protocol="PLAINTEXT", or the TLS port',
]


@pytest.mark.parametrize("handler", [close, reset, answer(b"\0\0\0\4\0\0\0\1")])
def test_a_plaintext_listener(handler: Callable[[socket.socket], None]) -> None:
    """S-02: Kafka closes without a byte; others reset, or answer with something else."""
    assert failure(handler) == PLAINTEXT


def test_a_web_server() -> None:
    """E-04"""
    assert failure(answer(b"HTTP/1.0 400 Bad Request\r\n\r\n")) == [
        "127.0.0.1:9092 answers HTTP, not Kafka",
        'found: "HTTP/1.0 400 Bad Request"',
        "try: the Kafka port is usually 9092",
    ]


def test_an_ssh_server() -> None:
    """E-04"""
    assert failure(answer(b"SSH-2.0-OpenSSH_9.2\r\n")) == [
        "127.0.0.1:9092 answers something other than Kafka",
        'found: "SSH-2.0-OpenSSH_9.2"',
        "try: check the address: the Kafka port is usually 9092",
    ]


@pytest.mark.parametrize(
    ("greeting", "protocol"),
    [(b"HTTP/1.1 400 Bad Request\r\n", "HTTP, not Kafka"), (b"SSH-2.0-x\r\n", "something other")],
)
def test_a_server_that_is_quicker_than_a_look_at_it(
    greeting: bytes, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E-04: OpenSSL has read the first bytes by then."""
    monkeypatch.setattr(TlsTransport, "_look_at_greeting", lambda *_: None)
    lines = failure(answer(greeting))
    assert lines[0].startswith(f"127.0.0.1:9092 answers {protocol}")
    assert lines[1] == f'found: "{greeting.decode().strip()}"'


def test_no_common_version() -> None:
    """S-01: there is no way to a weaker version."""
    context = server_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert failure(until_closed, context, ssl_enabled_protocols="TLSv1.3") == [
        "127.0.0.1:9092 and kfast have no TLS version in common",
        "found: this side allows TLSv1.3",
        "try: ssl_enabled_protocols",
    ]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_a_server_of_tls_1_1() -> None:
    """S-01"""
    context = server_context()
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    lines = failure(until_closed, context)
    assert lines[0] == "127.0.0.1:9092 and kfast have no TLS version in common"
    assert lines[1] == "found: this side allows TLSv1.2 and TLSv1.3"


def test_no_common_cipher() -> None:
    context = server_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    assert failure(until_closed, context, ssl_cipher_suites=suite) == [
        "127.0.0.1:9092 and kfast have no cipher suite in common",
        "cause: the broker ended the handshake (alert handshake_failure)",
        "found: this side allows TLSv1.2 and TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "try: ssl_cipher_suites, or ssl_enabled_protocols",
    ]


@pytest.mark.parametrize(
    ("settings", "version", "cipher"),
    [
        ({}, "TLSv1.3", None),
        ({"ssl_protocol": "TLSv1.2"}, "TLSv1.2", None),
        ({"ssl_enabled_protocols": "TLSv1.2"}, "TLSv1.2", None),
        (
            {"ssl_cipher_suites": ["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"]},
            "TLSv1.2",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
        ),
        (
            {"ssl_protocol": "TLSv1.2", "ssl_cipher_suites": "ECDHE-ECDSA-AES256-CCM:!aNULL"},
            "TLSv1.2",
            "ECDHE-ECDSA-AES256-CCM",
        ),
        (
            {"ssl_protocol": "TLSv1.2", "ssl_ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256"},
            "TLSv1.2",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ),
        ({"ssl_cipher_suites": "TLS_AES_256_GCM_SHA384"}, "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
    ],
)
def test_versions_and_ciphers(settings: dict[str, Any], version: str, cipher: str | None) -> None:
    """E-02: in the names of Java and in those of OpenSSL."""

    def tell(sock: socket.socket) -> None:
        assert isinstance(sock, ssl.SSLSocket)
        name = (sock.cipher() or ("",))[0]
        sock.sendall(f"{sock.version()} {name}".ljust(60).encode())
        sock.recv(1)

    context = server_context()
    context.set_ciphers("ALL")
    with serving(tell, context) as port, connected(port, **settings) as transport:
        found = receive(transport, 60).decode().split()
    assert found[0] == version
    assert cipher in {None, found[1]}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"ssl_ciphers": "NO-SUCH-CIPHER"}, "ssl_ciphers: this OpenSSL has no cipher suite NO-"),
        (
            {"ssl_cipher_suites": "TLS_RSA_WITH_NULL_WITH_X, TLS_AES_128_GCM_SHA256"},
            "ssl_cipher_suites: this OpenSSL has no cipher suite ",
        ),
        (
            {"ssl_cipher_suites": "TLS_AES_128_CCM_8_SHA256"},
            "ssl_cipher_suites: TLS_AES_128_CCM_8_SHA256 cannot be used",
        ),
        (
            {"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256", "ssl_protocol": "TLSv1.2"},
            "ssl_cipher_suites has cipher suites of TLSv1.3 only",
        ),
    ],
)
def test_ciphers_that_are_not_there(settings: dict[str, Any], text: str) -> None:
    """E-02: at construction."""
    with pytest.raises(ConfigurationError) as caught:
        start(9, **settings)
    assert str(caught.value).startswith(text)
    assert caught.value.hint


def recorded_flights() -> list[bytes]:
    """Return what a server of TLS 1.2 sends in a handshake, flight by flight."""
    client, server = (ssl.MemoryBIO(), ssl.MemoryBIO()), (ssl.MemoryBIO(), ssl.MemoryBIO())
    context = ssl.create_default_context(cadata=ca_pem())
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    ours = context.wrap_bio(*client, server_hostname="127.0.0.1")
    theirs = server_context().wrap_bio(*server, server_side=True)
    flights = []
    for _ in range(3):
        with contextlib.suppress(ssl.SSLWantReadError):
            ours.do_handshake()
        server[0].write(client[1].read())
        with contextlib.suppress(ssl.SSLWantReadError):
            theirs.do_handshake()
        flights.append(server[1].read())
        client[0].write(flights[-1])
    return [flight for flight in flights if flight]


@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_a_handshake_that_stops(count: int) -> None:
    """N-08: wherever it stops, its time is up with that of the set-up."""
    flight = recorded_flights()[0][:count]
    with serving(answer(flight)) as port:
        error = error_of(
            port,
            security_protocol="SSL",
            ssl_ca_pem=ca_pem(),
            socket_connection_setup_timeout_ms=50,
            socket_connection_setup_timeout_max_ms=50,
        )
    assert failure_kind(error) is FailureKind.NO_ANSWER
    assert f"127.0.0.1:{port} did not complete the TLS handshake within 0." in error.message


def test_a_handshake_of_single_bytes() -> None:
    """S-01: each is awaited, and the connection is the same in the end."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context().wrap_bio(incoming, outgoing, server_side=True)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        contextlib.closing(start(listener.getsockname()[1])) as transport,
        listener.accept()[0] as sock,
    ):
        count = 0
        while events := transport.setup():
            if events == EVENT_READ and not outgoing.pending:
                incoming.write(sock.recv(65_536))
                with contextlib.suppress(ssl.SSLWantReadError):
                    server.do_handshake()
            if events == EVENT_READ:
                sock.sendall(outgoing.read(1))
                count += 1
            wait(transport, events)
        assert count > 500, "a chain of certificates is longer"
        incoming.write(sock.recv(65_536))
        server.do_handshake()
        server.write(b"hello")
        sock.sendall(outgoing.read())
        assert receive(transport, 5) == b"hello"
