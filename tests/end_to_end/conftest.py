"""Stages (a fake cluster on real sockets, consumers closed afterwards), silence, and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer
from tests.end_to_end.ingests import Table, Truth
from tests.end_to_end.stage import Stage


@pytest.fixture
def make_stage() -> Iterator[Callable[..., Stage]]:
    """Give a function that puts a cluster on sockets until the test ends."""
    with ExitStack() as stack:

        def make(cluster: FakeCluster, **configs: Any) -> Stage:
            return stack.enter_context(Stage(cluster, **configs))

        yield make


@pytest.fixture
def nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Check that the library wrote nothing to stdout or stderr."""
    yield
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


@pytest.fixture
def truth() -> Truth:
    """Give a cluster with a topic of two partitions, of 50 and 30 records."""
    found = Truth()
    found.write(0, 50)
    found.write(1, 30)
    return found


@pytest.fixture
def table(truth: Truth, tmp_path: Path) -> Iterator[Table]:
    """Give a folder for a table of it, while the cluster is on sockets."""
    with BrokerServer(truth.cluster) as server:
        yield Table(tmp_path / "t", server.bootstrap_servers)
