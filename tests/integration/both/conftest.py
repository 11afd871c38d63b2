"""Tests that run against a real Kafka and against `kfast.testing.FakeKafka`.

A test of this folder shows that kfast is right with a real broker, and that the double is right
because the same test passes with it.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator

import pytest

from kfast.testing import FakeKafka
from tests.integration.both.brokers import (
    Broker,
    FakeBroker,
    FakeWriter,
    RealBroker,
    Writer,
)
from tests.integration.kafka_writer import KafkaWriter

TopicFactory = Callable[..., str]
_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def fake_kafka() -> Iterator[FakeBroker]:
    """A FakeKafka with the settings of groups that ``one_node`` has."""
    with FakeKafka() as kafka:
        settings = kafka.cluster.groups.settings
        settings.group_consumer_heartbeat_interval_ms = 500
        settings.group_consumer_session_timeout_ms = 5_000
        yield FakeBroker(kafka)


real_only = pytest.mark.parametrize("kafka", ["real"], indirect=True)
"""Of a test that needs more than the double does: Java's tools, the text of a broker's errors."""


@pytest.fixture(params=["real", "fake"])
def kafka(request: pytest.FixtureRequest) -> Broker:
    """A cluster of one node, which is a real Kafka or a FakeKafka."""
    if request.param == "real":
        return RealBroker(request.getfixturevalue("one_node"))
    broker: FakeBroker = request.getfixturevalue("fake_kafka")
    return broker


@pytest.fixture
def writer(kafka: Broker) -> Writer:
    """Write records to ``kafka``."""
    if isinstance(kafka, FakeBroker):
        return FakeWriter(kafka.cluster)
    return KafkaWriter(kafka.bootstrap_servers)


@pytest.fixture
def new_topic(kafka: Broker) -> TopicFactory:
    """Make a topic of its own on ``kafka``: ``new_topic(partitions=1) -> name``."""
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].split(" ")[0]
    prefix = re.sub(r"[^\w-]+", "-", test)[:80]

    def make(partitions: int = 1) -> str:
        name = f"{prefix}-{next(_numbers)}"
        kafka.create_topic(name, partitions)
        return name

    return make
