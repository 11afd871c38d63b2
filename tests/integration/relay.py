"""A relay between a consumer and a broker that cuts, splits and delays what it passes on."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

LIMIT_S = 30.0


@dataclass(slots=True)
class Relay:
    """Relays every connection to one address; settings count for what is relayed from now on."""

    target: tuple[str, int]
    listener: socket.socket
    cut_bytes: int | None = None
    """Each connection ends after about so many bytes to the consumer, by RST or by FIN."""
    most_bytes: int = 65_536
    """Most bytes that are passed on at a time."""
    delay_s: float = 0.0
    """Between two pieces."""
    connections: int = 0
    _sockets: list[socket.socket] = field(default_factory=list)
    _random: random.Random = field(default_factory=lambda: random.Random(7))

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listener.getsockname()[:2]
        return host, port

    def run(self) -> None:
        """Accept connections until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.target)
                self.connections += 1
                self._sockets += [client, server]
                for one, other, is_answer in ((client, server, False), (server, client, True)):
                    threading.Thread(
                        target=self._pass_on, args=(one, other, is_answer), daemon=True
                    ).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, is_answer: bool) -> None:
        left = None
        if is_answer and self.cut_bytes is not None:
            left = self._random.randint(1, 2 * self.cut_bytes)
        with contextlib.suppress(OSError):
            while data := one.recv(self.most_bytes if is_answer else 65_536):
                if left is not None and len(data) >= left:
                    other.sendall(data[:left])
                    break
                left = None if left is None else left - len(data)
                other.sendall(data)
                if is_answer and self.delay_s:
                    time.sleep(self.delay_s)
            if left is not None and self._random.random() < 0.5:
                reset = struct.pack("ii", 1, 0)
                other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        for sock in (one, other):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def close(self) -> None:
        """End everything."""
        for sock in (self.listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


@contextlib.contextmanager
def relaying(target: tuple[str, int]) -> Iterator[Relay]:
    """Provide a relay to an address."""
    listener = socket.create_server(("127.0.0.1", 0))
    relay = Relay(target, listener)
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        yield relay
    finally:
        relay.close()
        thread.join(LIMIT_S)
