"""The stream of a TLS connection: records of any size, key updates, and how it ends."""

from __future__ import annotations

import contextlib
import re
import selectors
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfast.client.broker_connection import BrokerConnection, ConnectionSettings
from kfast.client.cluster import Node
from kfast.client.connection_states import ConnectionKey
from kfast.client.request import Channel
from kfast.network.kafka_channel import GATED_FRAME_BYTES, KafkaChannel
from kfast.network.selector import Selector
from kfast.network.transport import EVENT_READ, EVENT_WRITE
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.metadata import MetadataResponse
from kfast.security.tls.transport import TlsTransport
from tests.unit.network.bench_client import Bench
from tests.unit.network.serving import LIMIT_S, serving
from tests.unit.security.tls.authority import (
    certificate,
    chain_pem,
    connected,
    key_pem,
    receive,
    server_context,
    start,
    wait,
)

DATA = bytes(range(256)) * 300


@contextlib.contextmanager
def served(*steps: Callable[[ssl.SSLSocket], object]) -> Iterator[TlsTransport]:
    """Provide a connection to a server that does some steps and then reads until the end."""
    done = threading.Event()

    def handle(sock: socket.socket) -> None:
        assert isinstance(sock, ssl.SSLSocket)
        for step in steps:
            step(sock)
        done.set()
        with contextlib.suppress(OSError, ValueError):
            while sock.recv(65_536):
                pass

    context = server_context()
    context.num_tickets = 0  # what arrives is what a test sends
    with serving(handle, context) as port, connected(port) as transport:
        assert done.wait(LIMIT_S)
        yield transport


def send(*sizes: int) -> Callable[[ssl.SSLSocket], None]:
    """Return a step that sends ``DATA`` in records of these sizes; the last repeats."""

    def step(sock: ssl.SSLSocket) -> None:
        at, index = 0, 0
        while at < len(DATA):
            size = sizes[min(index, len(sizes) - 1)]
            sock.sendall(DATA[at : at + size])
            at, index = at + size, index + 1

    return step


def text(data: bytes) -> Callable[[ssl.SSLSocket], None]:
    return lambda sock: sock.sendall(data)


def say_goodbye(sock: ssl.SSLSocket) -> None:
    """Send close_notify; the peer's is not awaited."""
    sock.settimeout(0)
    with contextlib.suppress(ssl.SSLWantReadError):
        sock.unwrap()
    sock.settimeout(LIMIT_S)


def cut(sock: ssl.SSLSocket) -> None:
    """End the stream with a FIN and without close_notify."""
    socket.socket.shutdown(sock, socket.SHUT_WR)


def reset(sock: ssl.SSLSocket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket.socket.close(sock)


def pending(transport: TlsTransport) -> bool:
    return transport.has_pending


def waits_to_write(channel: KafkaChannel) -> bool:
    return channel.wants_write


# --- records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(16_384,), (1, 16_383), (4, 100), (5_000, 1), (70_000,)])
@pytest.mark.parametrize("room", [1 << 20, 4_096, 1_000])
def test_records_are_joined_and_split(sizes: tuple[int, ...], room: int) -> None:
    """S-01: whatever the records are, the bytes are the same."""
    if sizes[-1] == 1:
        sizes = (*sizes, 1, 1, 1, len(DATA))
    with served(send(*sizes)) as transport:
        found = b""
        while len(found) < len(DATA):
            found += receive(transport, min(room, len(DATA) - len(found)))
        assert found == DATA
        assert not pending(transport)


def test_one_call_takes_all_records_that_are_there() -> None:
    """S-01: one turn of the network thread for each would be slow."""
    with served(*[text(DATA[:1_000])] * 20) as transport:
        sock = transport._sock
        assert sock is not None
        while len(socket.socket.recv(sock, 1 << 20, socket.MSG_PEEK)) < 20_000:
            wait(transport)
        view = memoryview(bytearray(20_000))
        assert transport.recv_into(view) == 20_000
        assert bytes(view) == DATA[:1_000] * 20
        assert transport.recv_into(view) is None


def test_what_is_decrypted_is_pending() -> None:
    """S-01: no selector reports the rest of a record."""
    with served(text(DATA[:10_000])) as transport:
        wait(transport)
        assert not pending(transport)
        view = memoryview(bytearray(10_000))
        assert transport.recv_into(view[:4]) == 4
        assert pending(transport)
        with selectors.DefaultSelector() as selector:
            selector.register(transport, EVENT_READ)
            assert selector.select(0) == []
        assert transport.recv_into(view[4:]) == 9_996
        assert bytes(view) == DATA[:10_000]
        assert not pending(transport)


def channel_of(
    transport: TlsTransport, selector: Selector, gate: Callable[[int], bool] | None = None
) -> KafkaChannel:
    node = Node(-1, "127.0.0.1", 9)
    settings = ConnectionSettings("me", "1", 1 << 20)
    connection = BrokerConnection(node, Channel.DATA, settings)
    channel = KafkaChannel(ConnectionKey(-1, Channel.DATA), transport, connection, selector, gate)
    assert channel.set_up(0)
    channel.write(0)
    channel.update_interest()
    return channel


def test_a_gate_that_opens_lets_pending_bytes_in() -> None:
    """B-06: the rest of a record is read when there is memory, without an event of the selector."""
    size = GATED_FRAME_BYTES + 10
    has_memory = False
    with served(text(struct.pack(">i", size) + DATA[: size - 1])) as transport:
        selector = Selector()
        channel = channel_of(transport, selector, lambda _: has_memory)
        wait(transport)
        assert channel.read(0, []) == 4
        assert channel.is_gated
        assert not channel.has_unread, "not as long as the gate is shut"
        assert not channel.retry_gate(1)
        has_memory = True
        assert channel.retry_gate(2)
        assert channel.read(2, []) == size - 1
        assert not channel.has_unread
        channel.close()
        selector.close()


def test_reading_that_has_to_write_first() -> None:
    """S-01: a key update is answered before anything else is read."""
    with served() as transport:
        selector = Selector()
        channel = channel_of(transport, selector)

        def blocked(view: memoryview) -> int:
            raise ssl.SSLWantWriteError

        reading = transport._recv_into
        transport._recv_into = blocked
        assert channel.read(0, []) == 0
        assert waits_to_write(channel)
        channel.update_interest()
        assert selector.select(1_000) == ([(channel, EVENT_WRITE)], False)
        transport._recv_into = reading
        assert channel.read(0, []) == 0
        assert not waits_to_write(channel)
        channel.update_interest()
        assert selector.select(0) == ([], False)
        channel.close()
        selector.close()


@pytest.mark.parametrize("command", ["k", "K"], ids=["sent", "sent-and-wanted"])
def test_key_updates(tmp_path: Path, command: str) -> None:
    """S-01: Java sends one after some data; the stream goes on."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command: key updates of TLS were not tested")
    (tmp_path / "crt").write_text(chain_pem(certificate()))
    (tmp_path / "key").write_text(key_pem(certificate()))
    arguments = [openssl, "s_server", "-accept", "127.0.0.1:0", "-num_tickets", "0"]
    arguments += ["-cert", str(tmp_path / "crt"), "-key", str(tmp_path / "key")]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            for line in server.stdout:
                found = re.match(rb"ACCEPT 127\.0\.0\.1:(\d+)", line)
                if found:
                    break
            assert found is not None
            with connected(int(found[1])) as transport:
                for index in range(3):
                    if index:
                        server.stdin.write(f"{command}\n".encode())
                        server.stdin.flush()
                        # A line that is read together with the command is dropped with it.
                        wait(transport)
                        assert transport.recv_into(memoryview(bytearray(8))) is None
                    server.stdin.write(b"hello %d\n" % index)
                    server.stdin.flush()
                    assert receive(transport, 8) == b"hello %d\n" % index
        finally:
            server.kill()


def test_what_does_not_fit_is_sent_again() -> None:
    """S-01: OpenSSL wants the same bytes after it could not write them."""
    size = 3 << 20
    received = bytearray()
    go = threading.Event()

    def read_late(sock: socket.socket) -> None:
        go.wait(LIMIT_S)
        while len(received) < size:
            received.extend(sock.recv(65_536))
        sock.sendall(b"done")

    data = memoryview((DATA * 60)[:size])
    with serving(read_late, server_context()) as port, connected(port) as transport:
        at = 0
        while (sent := transport.send(data[at : at + 100_000])) is not None:
            at += sent
        go.set()
        while at < size:
            wait(transport, EVENT_WRITE)
            at += transport.send(data[at : at + 100_000]) or 0
        assert receive(transport, 4) == b"done"
    assert received == data


# --- ends -----------------------------------------------------------------------------------------


def until_the_end(transport: TlsTransport) -> tuple[bytes, str]:
    """Return what is received, and how the stream ended."""
    found = b""
    view = memoryview(bytearray(1_000))
    while True:
        try:
            count = transport.recv_into(view)
        except OSError as error:
            return found, str(error.strerror)
        if count is None:
            wait(transport)
        elif count == 0:
            return found, "end"
        else:
            found += view[:count]


def test_a_peer_that_ends_the_stream() -> None:
    """S-01: what came before is there, once; the end is found without another event."""
    with served(text(b"abc"), say_goodbye) as transport:
        wait(transport)
        view = memoryview(bytearray(10))
        while transport.recv_into(view[:3]) is None:
            wait(transport)
        while not transport.has_pending:
            assert transport.recv_into(view) in {None, 0}
        assert transport.recv_into(view) == 0
        assert transport.recv_into(view) == 0


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (say_goodbye, {"end"}),
        (cut, {"the stream ended without close_notify"}),
        # The second in the words of the system, which newer versions of OpenSSL pass on.
        (reset, {"the stream ended without close_notify", "Connection reset by peer"}),
    ],
)
@pytest.mark.parametrize("data", [b"", b"abc", DATA[:20_000]])
def test_ends_of_a_stream(
    ending: Callable[[ssl.SSLSocket], None], words: set[str], data: bytes
) -> None:
    """S-01: a stream that is cut is not mistaken for one that ended."""
    with served(text(data), ending) as transport:
        found, how = until_the_end(transport)
    assert how in words
    assert found == data or (ending is reset and data.startswith(found))


def test_a_stream_that_is_changed_on_its_way() -> None:
    """S-01: OpenSSL refuses the record, and the connection is lost."""

    def garble(sock: ssl.SSLSocket) -> None:
        socket.socket.sendall(sock, b"\x17\x03\x03\x00\x20" + bytes(32))

    with served(text(b"abc"), garble) as transport:
        found, how = until_the_end(transport)
    assert found == b"abc"
    assert how.startswith("TLS: ")


def ends_seen_by_server(close: Callable[[TlsTransport], None]) -> list[bytes | str]:
    """Return what a server receives of a connection that sends "last" and is closed."""
    seen: list[bytes | str] = []
    done = threading.Event()

    def handle(sock: socket.socket) -> None:
        try:
            while data := sock.recv(100):
                seen.append(data)
            seen.append("close_notify")
            with contextlib.suppress(OSError):
                sock.sendall(DATA)
        except OSError as error:
            seen.append(type(error).__name__)
        done.set()

    context = server_context()
    context.options &= ~ssl.Options(getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0))
    with serving(handle, context) as port, connected(port) as transport:
        transport.send(memoryview(b"last"))
        close(transport)
        assert done.wait(LIMIT_S)
    return seen


def test_closing_says_so() -> None:
    """S-01: the broker can tell it from a stream that was cut."""
    assert ends_seen_by_server(TlsTransport.close) == [b"last", "close_notify"]


def test_ending_the_output_leaves_what_arrives_to_be_discarded() -> None:
    """L-02: the broker reads the last request although its answers are not read any more."""

    def end(transport: TlsTransport) -> None:
        transport.end_output()
        found, how = until_the_end(transport)
        assert len(found) > len(DATA) // 2, "as it comes, encrypted"
        assert how == "end"

    assert ends_seen_by_server(end) == [b"last", "close_notify"]


def test_closing_in_the_middle_of_a_handshake() -> None:
    """L-01: nothing is awaited."""

    def silent(sock: socket.socket) -> None:
        sock.recv(65_536)
        sock.recv(1)

    with serving(silent) as port:
        transport = start(port)
        for _ in range(3):
            events = transport.setup()
            wait(transport, events | EVENT_WRITE)
        assert transport.is_handshaking
        transport.end_output()
        transport.close()
        transport.close()


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol", "writes"), [("PLAINTEXT", 3), ("SSL", 1)])
def test_requests_of_one_turn_share_a_record(protocol: str, writes: int) -> None:
    """S-01: and all of them are answered, in order."""
    bench = Bench({1: ("b1", 9092)}, security_protocol=protocol)
    server = bench.network.listen("b1")
    server.answers[ApiKey.METADATA] = lambda _: MetadataResponse()
    bench.make_ready()
    (transport,) = server.transports
    written: list[int] = []
    send = transport.send

    def count(data: memoryview) -> int | None:
        written.append(len(data))
        return send(data)

    transport.send = count  # type: ignore[method-assign]
    for _ in range(3):
        bench.ask()
    bench.poll()
    bench.poll()
    assert len(written) == writes
    assert len(server.requests(ApiKey.METADATA)) == 3
    assert len(bench.handler.responses) == 3


def test_requests_that_fill_a_record_are_not_joined() -> None:
    """S-01"""
    settings = ConnectionSettings("me", "1", 1 << 20, security_protocol="SASL_SSL")
    connection = BrokerConnection(Node(1, "b1", 9094), Channel.DATA, settings)
    pieces = [bytes([number]) * size for number, size in enumerate((10_000, 6_384, 1, 16_384, 5))]
    connection._outgoing.extend(map(memoryview, pieces))
    found = []
    while (data := connection.data_to_send()) is not None:
        found.append(bytes(data))
        connection.data_sent(len(data), 0)
    assert [len(each) for each in found] == [16_384, 1, 16_384, 5]
    assert b"".join(found) == b"".join(pieces)
