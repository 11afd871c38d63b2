"""Stages (a fake cluster on real sockets, consumers closed afterwards), and silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.end_to_end.stage import Stage
from tests.fake_broker.cluster import FakeCluster


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
