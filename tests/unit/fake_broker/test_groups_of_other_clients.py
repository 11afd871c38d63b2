"""Groups on the socket server, joined by clients that know nothing of kfast.

What they make of the fake coordinator is the check on it: they come together, share the partitions,
commit, and take over what others leave.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kfast.types import TopicPartition
from tests.fake_broker.classic_groups import GroupState
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.releases import RELEASE_NAMES
from tests.fake_broker.server import FakeBrokerServer
from tests.reference.batches import Record
from tests.unit.fake_broker.clients import kafka

PARTITIONS = 4
RECORDS = 5
SHORTEST_POLL_MS = 500


def make_cluster(release: str = "4.3") -> FakeCluster:
    cluster = FakeCluster(2, release=release)
    cluster.features["group.version"] = 1
    cluster.create_topic("t", PARTITIONS)
    for partition in range(PARTITIONS):
        cluster.append("t", partition, [Record(value=b"v") for _ in range(RECORDS)])
    return cluster


@pytest.fixture
def cluster() -> FakeCluster:
    return make_cluster()


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[FakeBrokerServer]:
    with FakeBrokerServer(cluster) as running:
        yield running


def until(condition: Callable[[], bool], *consumers: Any) -> None:
    """Poll consumers in turn until a condition holds."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        for consumer in consumers:
            consumer.poll(0.05)


def everything() -> dict[TopicPartition, int]:
    return {TopicPartition("t", number): RECORDS for number in range(PARTITIONS)}


class KafkaPython:
    """A kafka-python consumer with the poll of the other one.

    It polls longer than asked: 3.0.12 may not finish a rebalance that outlives a short poll.
    """

    def __init__(self, server: FakeBrokerServer, **configs: Any) -> None:
        self.consumer = kafka.KafkaConsumer(
            "t",
            bootstrap_servers=server.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=100,
            retry_backoff_ms=20,
            **configs,
        )

    def poll(self, seconds: float) -> None:
        self.consumer.poll(timeout_ms=max(SHORTEST_POLL_MS, int(seconds * 1000)))

    def partitions(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


@pytest.mark.parametrize("release", RELEASE_NAMES)
def test_a_classic_member_of_kafka_python(release: str) -> None:
    cluster = make_cluster(release)
    with FakeBrokerServer(cluster) as server:
        consumer = KafkaPython(server)
        try:
            until(lambda: sum(positions(consumer).values()) == PARTITIONS * RECORDS, consumer)
        finally:
            consumer.close()
        assert cluster.groups.committed("g") == everything()
        group = cluster.groups.classic("g")
        assert group is not None
        assert group.state is GroupState.EMPTY


def positions(consumer: KafkaPython) -> dict[int, int]:
    inner = consumer.consumer
    return {one.partition: inner.position(one) or 0 for one in inner.assignment()}


def test_two_classic_members_of_kafka_python(
    cluster: FakeCluster, server: FakeBrokerServer
) -> None:
    first = KafkaPython(server)
    try:
        until(lambda: len(first.partitions()) == PARTITIONS, first)
        second = KafkaPython(server)
        until(lambda: len(first.partitions()) == len(second.partitions()) == 2, first, second)
        assert first.partitions() | second.partitions() == set(range(PARTITIONS))
        cluster.groups.move_coordinator("g", 3 - cluster.groups.coordinator("g"))
        second.close()
        until(lambda: len(first.partitions()) == PARTITIONS, first)
    finally:
        first.close()


def librdkafka(server: FakeBrokerServer, **configs: Any) -> Any:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            **{name.replace("_", "."): value for name, value in configs.items()},
        }
    )
    consumer.subscribe(["t"])
    return consumer


def owned(consumer: Any) -> set[int]:
    return {one.partition for one in consumer.assignment()}


@pytest.mark.parametrize(
    "configs",
    [
        {"group_protocol": "consumer"},
        {"group_protocol": "consumer", "group_remote_assignor": "range"},
        {"partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 100},
    ],
)
def test_two_members_of_librdkafka(
    cluster: FakeCluster, server: FakeBrokerServer, configs: dict[str, Any]
) -> None:
    """Groups only: librdkafka does not fetch from brokers that cannot be produced to."""
    cluster.groups.settings.group_consumer_heartbeat_interval_ms = 100
    first = librdkafka(server, **configs)
    try:
        until(lambda: len(owned(first)) == PARTITIONS, first)
        second = librdkafka(server, **configs)
        try:
            until(lambda: len(owned(first)) == len(owned(second)) == 2, first, second)
            assert owned(first) | owned(second) == set(range(PARTITIONS))
            offsets = second.assignment()
            for one in offsets:
                one.offset = one.partition
            second.commit(offsets=offsets, asynchronous=False)
            committed = second.committed(offsets, timeout=10)
            assert [one.offset for one in committed] == [one.partition for one in committed]
        finally:
            second.close()
        group = cluster.groups.classic("g")
        if group is not None:  # its LeaveGroup is of a version too old for the fake broker
            for member_id in list(group.members)[1:]:
                cluster.groups.expire_member("g", member_id)
        until(lambda: len(owned(first)) == PARTITIONS, first)
    finally:
        first.close()
