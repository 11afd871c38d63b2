"""Transport, selector, resolver and client on real loopback sockets."""

from __future__ import annotations

import contextlib
import errno
import http.server
import selectors
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from kfast._base.clock import SystemClock
from kfast.client.cluster import Node
from kfast.client.diagnosis import FailureKind, failure_kind
from kfast.client.metadata import Metadata
from kfast.client.node_addresses import Address
from kfast.errors import ConfigurationError
from kfast.network.network_client import NetworkClient
from kfast.network.network_io import transport_factory
from kfast.network.resolver import SystemResolver
from kfast.network.selector import Selector
from kfast.network.transport import (
    EVENT_READ,
    EVENT_WRITE,
    PlaintextTransport,
    SocketSettings,
)
from tests.unit.configs import config
from tests.unit.network.serving import serving
from tests.unit.network.socket_errors import LIMIT_MS, error_of


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


@pytest.fixture
def selector() -> Iterator[Selector]:
    made = Selector()
    yield made
    made.close()


def address_of(sock: socket.socket) -> Address:
    return Address(socket.AF_INET, sock.getsockname())


def connect(
    sock: socket.socket, selector: Selector, settings: SocketSettings
) -> PlaintextTransport:
    transport = PlaintextTransport(address_of(sock), settings)
    wanted = 0
    while events := transport.setup():
        selector.set_interest(transport, events, wanted, "t")
        wanted = events
        selector.select(LIMIT_MS)
    selector.set_interest(transport, 0, wanted, "t")
    return transport


# --- transport ------------------------------------------------------------------------------------


def test_bytes_flow(listener: socket.socket, selector: Selector) -> None:
    """N-14: connect, send, receive, end."""
    transport = connect(listener, selector, SocketSettings())
    server, _ = listener.accept()
    with server, contextlib.closing(transport):
        view = memoryview(bytearray(16))
        assert transport.recv_into(view) is None, "nothing there is not an error"
        assert transport.send(memoryview(b"ping")) == 4
        assert server.recv(16) == b"ping"
        server.sendall(b"pong!")
        selector.set_interest(transport, EVENT_READ, 0, "t")
        assert selector.select(LIMIT_MS) == ([("t", EVENT_READ)], False)
        assert transport.recv_into(view[:2]) == 2
        assert transport.recv_into(view[2:]) == 3
        assert bytes(view[:5]) == b"pong!"
        server.close()
        selector.select(LIMIT_MS)
        assert transport.recv_into(view) == 0
        selector.set_interest(transport, 0, EVENT_READ, "t")


def test_a_full_socket_takes_no_more(listener: socket.socket, selector: Selector) -> None:
    transport = connect(listener, selector, SocketSettings(send_buffer_bytes=4096))
    server, _ = listener.accept()
    with server, contextlib.closing(transport):
        data = memoryview(bytes(1 << 20))
        for _ in range(1_000):
            if transport.send(data) is None:
                break
        else:
            pytest.fail("the socket never fills up")


def test_socket_settings(listener: socket.socket, selector: Selector) -> None:
    """N-16: TCP_NODELAY is on, sizes are applied, -1 keeps the system's, options come last."""
    plain = connect(listener, selector, SocketSettings())
    sized = connect(
        listener,
        selector,
        SocketSettings(
            receive_buffer_bytes=16_384,
            send_buffer_bytes=16_384,
            options=((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0),),
        ),
    )
    with contextlib.closing(plain), contextlib.closing(sized):
        for transport in (plain, sized):
            assert transport._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for name in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            default = plain._sock.getsockopt(socket.SOL_SOCKET, name)
            applied = sized._sock.getsockopt(socket.SOL_SOCKET, name)
            assert applied < default
            assert applied in {16_384, 32_768}, "Linux doubles what is asked for"
        assert plain._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not sized._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def connect_somewhere_closed(address: Address, selector: Selector) -> None:
    transport = PlaintextTransport(address, SocketSettings())
    with contextlib.closing(transport):
        while transport.setup():
            selector.select(1)


def test_refusal_is_an_oserror(selector: Selector) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError) as caught:
            connect_somewhere_closed(address_of(unused), selector)
        assert caught.value.errno == errno.ECONNREFUSED


def test_a_bad_option_leaks_no_socket(listener: socket.socket) -> None:
    with pytest.raises(OSError, match=r"\w"):
        PlaintextTransport(address_of(listener), SocketSettings(options=((9_999, 9_999, 1),)))


def test_the_factory_follows_the_configuration(listener: socket.socket) -> None:
    """N-16: configuration keys reach the socket."""
    clock = SystemClock()
    factory = transport_factory(config(receive_buffer_bytes=16_384, send_buffer_bytes=-1), clock)
    node = Node(1, "127.0.0.1", listener.getsockname()[1])
    transport = factory(node, address_of(listener))
    assert isinstance(transport, PlaintextTransport)
    with contextlib.closing(transport):
        applied = transport._sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert applied in {16_384, 32_768}
    with pytest.raises(ConfigurationError):
        transport_factory(config(socket_options=[("x", 1, 1)]), clock)


# --- selector -------------------------------------------------------------------------------------


def test_wakeup_from_another_thread(selector: Selector) -> None:
    """N-14: once per wait, however often it is called; before the wait counts too."""
    thread = threading.Thread(target=selector.wakeup)
    thread.start()
    assert selector.select(LIMIT_MS) == ([], True)
    thread.join()
    for _ in range(100):
        selector.wakeup()
    assert selector.select(LIMIT_MS) == ([], True)
    assert selector.select(0) == ([], False)
    selector.wakeup()
    assert selector.select(LIMIT_MS) == ([], True)


def test_wakeup_after_close_does_nothing() -> None:
    selector = Selector()
    selector.close()
    selector.wakeup()
    selector.close()


def test_no_wakeup_is_lost(selector: Selector) -> None:
    """L-06: many threads, one sleeper; every piece of work is seen without a time-out."""
    work: list[int] = []
    count = 300

    def add() -> None:
        for _ in range(count):
            work.append(1)
            selector.wakeup()

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    seen = 0
    while seen < 3 * count:
        if len(work) == seen:
            _, is_woken = selector.select(LIMIT_MS)
            assert is_woken
        seen = len(work)
    for thread in threads:
        thread.join()


def test_interest_can_be_taken_back(listener: socket.socket, selector: Selector) -> None:
    transport = connect(listener, selector, SocketSettings())
    server, _ = listener.accept()
    with server, contextlib.closing(transport):
        both = EVENT_READ | EVENT_WRITE
        selector.set_interest(transport, both, 0, "t")
        assert selector.select(LIMIT_MS) == ([("t", EVENT_WRITE)], False)
        selector.set_interest(transport, EVENT_READ, both, "t")
        server.sendall(b"x")
        assert selector.select(LIMIT_MS) == ([("t", EVENT_READ)], False)
        selector.set_interest(transport, 0, EVENT_READ, "t")
        assert selector.select(0) == ([], False), "unread, and yet no busy loop"
        server.close()
        assert selector.select(0) == ([], False)


# --- resolver -------------------------------------------------------------------------------------


def test_literal_addresses() -> None:
    """E-04: IPv4 and IPv6."""
    resolver = SystemResolver()
    assert resolver.resolve("127.0.0.1", 9092) == [Address(socket.AF_INET, ("127.0.0.1", 9092))]
    (six,) = resolver.resolve("::1", 9092) or ()
    assert six.family == socket.AF_INET6
    assert six.ip == "::1"


@pytest.mark.parametrize("name", ["kfast-no-such-host.invalid", "a" * 64 + ".example"])
def test_names_that_do_not_resolve(name: str) -> None:
    """E-04: always an OSError."""
    with pytest.raises(OSError, match=r"\w"):
        SystemResolver().resolve(name, 9092)


def test_canonical_names() -> None:
    assert SystemResolver().canonical_hosts("127.0.0.1", 9092)


# --- the client -----------------------------------------------------------------------------------


def test_a_real_http_server() -> None:
    """E-04: one that reads a line before it answers; told at once, not by a time-out."""

    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            error = error_of(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()
    assert failure_kind(error) is FailureKind.HTTP
    assert "answers HTTP, not Kafka" in error.message


def test_a_real_tls_alert() -> None:
    def answer(sock: socket.socket) -> None:
        sock.recv(5)
        sock.sendall(b"\x15\x03\x03\x00\x02\x02\x0a")

    with serving(answer) as port:
        assert failure_kind(error_of(port)) is FailureKind.TLS


def test_a_real_close() -> None:
    with serving(lambda sock: None) as port:
        assert failure_kind(error_of(port)) is FailureKind.CLOSED_EARLY


def test_a_real_reset() -> None:
    def reset(sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with serving(reset) as port:
        assert failure_kind(error_of(port)) is FailureKind.CLOSED_EARLY


def test_real_silence() -> None:
    """N-08: bounded by the set-up time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        error = error_of(
            listener.getsockname()[1],
            socket_connection_setup_timeout_ms=50,
            socket_connection_setup_timeout_max_ms=50,
        )
    assert failure_kind(error) is FailureKind.NO_ANSWER


def test_a_real_refusal() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = error_of(unused.getsockname()[1])
    assert failure_kind(error) is FailureKind.REFUSED


def test_the_default_selector_is_closed_with_the_client() -> None:
    made, clock = config(), SystemClock()
    client = NetworkClient(made, Metadata(made, clock), clock)
    client.wakeup()
    client.poll(LIMIT_MS, clock.now_ms())
    client.close(0)
    client.wakeup()
    assert isinstance(client._selector, Selector)
    assert isinstance(client._selector._selector, selectors.BaseSelector)
