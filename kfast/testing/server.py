"""BrokerServer: a fake cluster on sockets.

Owns one thread and all sockets: a listener per running node on 127.0.0.1 on a free port, which the
node keeps over stop and start, and one socket per client connection. Bytes go into
``BrokerConnection``, and come out of it at the times it says. A stopped node's listener is closed,
so that connections are refused.

An exception in the thread (a bug of the fake) ends it and is raised again by ``stop``.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import struct
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from kfast.testing.cluster import FakeCluster
from kfast.testing.connection import BrokerConnection

HOST: Final = "127.0.0.1"
RECEIVE_BYTES: Final = 256 * 1024
STOP_TIMEOUT_S: Final = 10.0
HANDSHAKE_TIMEOUT_S: Final = 5.0

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


@dataclass(slots=True, eq=False)
class _Peer:
    """One accepted socket, its connection, and bytes the socket did not take yet."""

    sock: socket.socket
    connection: BrokerConnection
    unsent: bytes | memoryview = b""
    interest: int = selectors.EVENT_READ
    has_input_ended: bool = False


@dataclass(slots=True)
class _Listener:
    """The listening socket of one running node."""

    node_id: int
    sock: socket.socket = field(repr=False)


class BrokerServer:
    """Serves a cluster until the ``with`` block ends.

    Parameters
    ----------
    cluster : FakeCluster
        Its nodes get the host and port they listen on.
    tls : ssl.SSLContext or None
        Makes every listener one for TLS.
    """

    def __init__(self, cluster: FakeCluster, tls: ssl.SSLContext | None = None) -> None:
        self.cluster = cluster
        self._tls = tls
        self._selector = selectors.DefaultSelector()
        self._listeners: dict[int, _Listener] = {}
        self._peers: set[_Peer] = set()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._synced = threading.Condition()
        self._is_stopping = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="fake-kafka", daemon=True)

    @property
    def bootstrap_servers(self) -> str:
        """Return "host:port,..." of all nodes, running or not."""
        return ",".join(f"{node.host}:{node.port}" for node in self.cluster.nodes.values())

    def bootstrap_server(self, node_id: int) -> str:
        """Return "host:port" of one node."""
        node = self.cluster.nodes[node_id]
        return f"{node.host}:{node.port}"

    def start(self) -> Self:
        """Open the listeners and start the thread."""
        self._wake_reader.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
        for node in self.cluster.nodes.values():
            node.host, node.port = HOST, 0
        self._update_listeners()
        self.cluster.changes.add_listener(self._cluster_changed)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close all sockets; raise the exception that ended the thread, if one did."""
        self._is_stopping = True
        self.wakeup()
        self._thread.join(STOP_TIMEOUT_S)
        self.cluster.changes.remove_listener(self._cluster_changed)
        self._wake_reader.close()
        self._wake_writer.close()
        if self._thread.is_alive():
            raise RuntimeError("the thread of the fake brokers did not end")
        if self._failure is not None:
            raise self._failure

    def wakeup(self) -> None:
        """Let the thread look at the cluster again."""
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"\0")

    def _cluster_changed(self) -> None:
        """Wake the thread; wait for it if nodes were stopped or started."""
        self.wakeup()
        if threading.current_thread() is not self._thread:
            with self._synced:
                self._synced.wait_for(
                    lambda: self._has_right_listeners() or not self._thread.is_alive(),
                    STOP_TIMEOUT_S,
                )

    def _has_right_listeners(self) -> bool:
        running = {node.node_id for node in self.cluster.nodes.values() if node.is_running}
        return running == set(self._listeners)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # -- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._turn()
        except BaseException as error:
            self._failure = error
        finally:
            for peer in list(self._peers):
                self._close(peer)
            for listener in self._listeners.values():
                listener.sock.close()
            self._selector.close()

    def _turn(self) -> None:
        with self.cluster.lock:
            self._update_listeners()
        with self._synced:
            self._synced.notify_all()
        for key, events in self._selector.select(self._timeout_s()):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._wake_reader.recv(RECEIVE_BYTES)
            elif isinstance(key.data, _Listener):
                self._accept(key.data)
            elif events & selectors.EVENT_READ:
                self._receive(key.data)
        for peer in list(self._peers):
            self._pump(peer)

    def _timeout_s(self) -> float | None:
        now = _now_ms()
        times = [
            event_ms
            for peer in self._peers
            if not peer.unsent and (event_ms := peer.connection.next_event_ms()) is not None
        ]
        return max(0, min(times) - now) / 1000 if times else None

    def _update_listeners(self) -> None:
        for node in self.cluster.nodes.values():
            listener = self._listeners.get(node.node_id)
            if node.is_running and listener is None:
                sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((HOST, node.port))
                sock.listen(64)
                sock.setblocking(False)
                node.port = sock.getsockname()[1]
                listener = _Listener(node.node_id, sock)
                self._listeners[node.node_id] = listener
                self._selector.register(sock, selectors.EVENT_READ, listener)
            elif not node.is_running and listener is not None:
                self._selector.unregister(listener.sock)
                listener.sock.close()
                del self._listeners[node.node_id]

    def _accept(self, listener: _Listener) -> None:
        try:
            sock, _ = listener.sock.accept()
        except OSError:
            return
        if self._tls is not None:
            sock.settimeout(HANDSHAKE_TIMEOUT_S)
            try:
                sock = self._tls.wrap_socket(sock, server_side=True)
            except OSError:
                sock.close()
                return
        try:
            connection = BrokerConnection.accept(self.cluster, listener.node_id, _now_ms())
        except ConnectionRefusedError:
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = _Peer(sock, connection)
        self._peers.add(peer)
        self._selector.register(sock, peer.interest, peer)

    def _receive(self, peer: _Peer) -> None:
        try:
            data = peer.sock.recv(RECEIVE_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:
            peer.connection.client_closed()
            self._close(peer)
            return
        if data:
            peer.connection.receive(data, _now_ms())
            if isinstance(peer.sock, ssl.SSLSocket):
                self._receive(peer)  # there may be more that the selector does not report
        else:
            peer.has_input_ended = True
            peer.connection.input_ended(_now_ms())
            self._set_interest(peer)

    def _pump(self, peer: _Peer) -> None:
        """Send the chunks that are due; close the socket of a closed and empty connection."""
        if peer not in self._peers:
            return
        try:
            while True:
                data = peer.unsent or peer.connection.next_chunk(_now_ms())
                if not data:
                    break
                sent = peer.sock.send(data)
                peer.unsent = memoryview(data)[sent:]
                if peer.unsent:
                    break
        except (BlockingIOError, ssl.SSLWantWriteError):
            peer.unsent = data or b""
        except OSError:
            peer.connection.client_closed()
            self._close(peer)
            return
        if peer.connection.is_closed and not peer.unsent:
            self._close(peer)
            return
        self._set_interest(peer)

    def _set_interest(self, peer: _Peer) -> None:
        interest = 0 if peer.has_input_ended else selectors.EVENT_READ
        interest |= selectors.EVENT_WRITE if peer.unsent else 0
        if interest == peer.interest:
            return
        if not interest:
            self._selector.unregister(peer.sock)
        elif not peer.interest:
            self._selector.register(peer.sock, interest, peer)
        else:
            self._selector.modify(peer.sock, interest, peer)
        peer.interest = interest

    def _close(self, peer: _Peer) -> None:
        self._peers.discard(peer)
        if peer.interest:
            self._selector.unregister(peer.sock)
        if peer.connection.is_reset:
            peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        if not peer.connection.is_closed:
            peer.connection.close()
        peer.sock.close()

    def __repr__(self) -> str:
        return f"<BrokerServer {self.bootstrap_servers} {len(self._peers)} connections>"


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
