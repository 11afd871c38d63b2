"""A server in a thread, which treats each connection in some way."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Final

LIMIT_S: Final = 20.0

Handler = Callable[[socket.socket], None]


@contextlib.contextmanager
def serving(handler: Handler, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Run ``handler`` for every connection, in one thread, after its TLS handshake; give the port.

    Without a context it gets the TCP connection. What it raises of the network is its own affair.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def run() -> None:
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    sock, _ = listener.accept()
                    sock.settimeout(LIMIT_S)
                    with sock:
                        if context is None:
                            handler(sock)
                            continue
                        with context.wrap_socket(sock, server_side=True) as tls:
                            handler(tls)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            stop.set()
            with contextlib.suppress(OSError):
                socket.create_connection(listener.getsockname()).close()
            thread.join()
