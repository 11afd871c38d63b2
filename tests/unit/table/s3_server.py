"""The interface of S3 on this machine, served by moto, which keeps buckets per process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Serve S3 without buckets meanwhile; yield the options of s3fs for it."""
    from moto.core.base_backend import BackendDict  # noqa: PLC0415 - optional, and slow to import
    from moto.server import ThreadedMotoServer  # noqa: PLC0415

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    BackendDict.reset()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield {"endpoint_url": f"http://{host}:{port}", "key": "key", "secret": "secret"}
    finally:
        server.stop()
