"""Commands of ``kfast``, run in this process against one cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kfast import cli
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer

PATIENCE_S = 60.0


class Shell:
    """Runs ``kfast`` with one cluster."""

    def __init__(self, cluster: FakeCluster, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        self.cluster = cluster
        self._captured = capfdbinary
        self.server = BrokerServer(cluster)
        self.error = b""

    def __call__(self, *words: str, status: int = 0) -> bytes:
        """Return what a command writes to standard output."""
        found = cli.main([words[0], "-b", self.server.bootstrap_servers, *words[1:]])
        out, self.error = self._captured.readouterr()
        assert found == status, self.error
        return out

    def later(self, act: Callable[[], object], count: int, path: Path) -> threading.Thread:
        """Do something once a file has so many lines."""

        def wait() -> None:
            until = time.monotonic() + PATIENCE_S
            while time.monotonic() < until:
                if path.read_bytes().count(b"\n") >= count:
                    break
                time.sleep(0.01)
            act()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread
