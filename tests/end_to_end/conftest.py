"""Stages: a fake cluster on real sockets, and consumers of it that are closed afterwards."""

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
