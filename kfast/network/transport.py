"""Transport: one non-blocking byte stream to one address, of the kind of the security protocol.

Network thread only. Errors are ``OSError``, of which ``kfast.client.diagnosis`` makes messages, or
``KafkaError`` where the transport knows what is wrong. A transport never blocks, never retries and
knows nothing of frames. ``setup`` is called until it
returns 0: it returns the events to wait for, so that a transport with a handshake of its own (TLS)
fits the same loop.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from kfast.client.cluster import Node
from kfast.client.node_addresses import Address

EVENT_READ: Final = selectors.EVENT_READ
EVENT_WRITE: Final = selectors.EVENT_WRITE

OS_DEFAULT: Final = -1
"""Buffer size that leaves the choice to the operating system."""


class Transport(Protocol):
    """A connection as the network client uses it."""

    @property
    def is_raw(self) -> bool:
        """Whether the bytes of the descriptor are those of the stream, as without TLS."""
        ...

    @property
    def is_handshaking(self) -> bool:
        """Whether TCP is connected and a handshake of the transport's own is under way."""
        ...

    @property
    def has_pending(self) -> bool:
        """Whether ``recv_into`` would return something that no selector reports."""
        ...

    @property
    def wants_write(self) -> bool:
        """Whether the last ``recv_into`` has to be repeated once something can be written."""
        ...

    def fileno(self) -> int:
        """Return the descriptor to select on."""
        ...

    def setup(self) -> int:
        """Continue setting up; return the events to wait for, 0 when bytes can flow."""
        ...

    def recv_into(self, view: memoryview) -> int | None:
        """Read what is there into ``view``; 0 at the end of the stream, None if nothing is."""
        ...

    def send(self, data: memoryview) -> int | None:
        """Write what fits and return how much that was; None if nothing fits now."""
        ...

    def end_output(self) -> None:
        """End the outgoing half of the stream; it can still be read. Never fails."""
        ...

    def close(self) -> None:
        """Close at once; may be called again."""
        ...


TransportFactory = Callable[[Node, Address], Transport]
"""Starts a connection of a node to one of its addresses."""


@dataclass(slots=True, frozen=True)
class SocketSettings:
    """What is set on a socket before it connects."""

    receive_buffer_bytes: int = OS_DEFAULT
    send_buffer_bytes: int = OS_DEFAULT
    options: tuple[tuple[int, int, int | bytes], ...] = ()
    """Arguments of ``setsockopt``, applied last."""

    def apply(self, sock: socket.socket) -> None:
        """Set everything on a socket."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.receive_buffer_bytes != OS_DEFAULT:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)
        if self.send_buffer_bytes != OS_DEFAULT:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        for level, option, value in self.options:
            sock.setsockopt(level, option, value)


class PlaintextTransport:
    """A TCP connection without encryption, started at once and completed by ``setup``.

    Raises `OSError` if that fails at once (no route, no descriptors, a bad socket option).
    """

    # Attributes, which cost no call.
    is_raw: Final = True
    is_handshaking: Final = False
    has_pending: Final = False
    wants_write: Final = False

    def __init__(self, address: Address, settings: SocketSettings) -> None:
        self._is_connected = False
        self._sock = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            self._sock.setblocking(False)
            settings.apply(self._sock)
            result = self._sock.connect_ex(address.sockaddr)
            if result not in {0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR}:
                raise OSError(result, os.strerror(result))
        except BaseException:
            self._sock.close()
            raise

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._sock.fileno()

    def setup(self) -> int:
        """Return ``EVENT_WRITE`` until TCP is connected, then 0."""
        if self._is_connected:
            return 0
        result = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if result:
            raise OSError(result, os.strerror(result))
        try:
            self._sock.getpeername()
        except OSError as error:
            if error.errno == errno.ENOTCONN:
                return EVENT_WRITE
            raise
        self._is_connected = True
        return 0

    def take_socket(self) -> socket.socket:
        """Return the connected socket, which belongs to the caller from now on."""
        return self._sock

    def recv_into(self, view: memoryview) -> int | None:
        """Read what the socket has, at most ``len(view)`` bytes."""
        try:
            return self._sock.recv_into(view)
        except (BlockingIOError, InterruptedError):
            return None

    def send(self, data: memoryview) -> int | None:
        """Write what the socket takes."""
        try:
            return self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return None

    def end_output(self) -> None:
        """Send a FIN behind what was written."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def __repr__(self) -> str:
        return f"<PlaintextTransport fd={self.fileno()} connected={self._is_connected}>"
