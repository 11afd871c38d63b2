"""The cluster that tests of groups begin with."""

from __future__ import annotations

import pytest

from tests.fake_broker.cluster import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    """Return one broker with a topic ``t`` of four partitions."""
    made = FakeCluster()
    made.create_topic("t", 4)
    return made
