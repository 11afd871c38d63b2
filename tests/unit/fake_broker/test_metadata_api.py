"""Metadata and ApiVersions as the fake broker answers them, and what tests can do to them."""

from __future__ import annotations

from typing import Any

import pytest

from kfast.protocol.messages.api_versions import ApiVersionsRequest
from kfast.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.fault_actions import PartitionError, TopLevelError
from tests.fake_broker.releases import RELEASE_NAMES, RELEASES, Api
from tests.unit.fake_broker.wire import ask


def metadata(
    cluster: FakeCluster,
    *topics: str,
    version: int = 13,
    node_id: int = 1,
    allow_auto_topic_creation: bool = False,
) -> Any:
    request = MetadataRequest(
        [MetadataRequestTopic(name=topic) for topic in topics] if topics else None,
        allow_auto_topic_creation,
    )
    return ask(cluster, request, version, node_id)


def leaders(response: MetadataResponse) -> list[tuple[int, int]]:
    return [
        (partition.leader_id, partition.leader_epoch) for partition in response.topics[0].partitions
    ]


@pytest.mark.parametrize("version", range(7, 14))
def test_brokers_topics_and_leaders_in_every_version(version: int) -> None:
    cluster = FakeCluster(3, racks=["a", "b", "c"])
    topic = cluster.create_topic("t", 4, replication=2)
    response = metadata(cluster, "t", version=version)
    assert [(broker.node_id, broker.host, broker.rack) for broker in response.brokers] == [
        (1, "broker-1", "a"),
        (2, "broker-2", "b"),
        (3, "broker-3", "c"),
    ]
    assert (response.cluster_id, response.controller_id) == ("fake-cluster", 1)
    assert leaders(response) == [(1, 0), (2, 0), (3, 0), (1, 0)]
    assert response.topics[0].partitions[2].replica_nodes == [3, 1]
    assert response.topics[0].topic_id == (topic.topic_id if version >= 10 else bytes(16))


def test_which_topics_are_answered() -> None:
    cluster = FakeCluster()
    topic = cluster.create_topic("a")
    cluster.create_topic("b", is_internal=True)
    assert [entry.name for entry in metadata(cluster).topics] == ["a", "b"]
    errors = [entry.error_code for entry in metadata(cluster, "a", "no", "bad/name", "..").topics]
    assert errors == [0, 3, 17, 17]
    assert ask(cluster, MetadataRequest([]), 13).topics == []
    by_id = [MetadataRequestTopic(topic.topic_id, None), MetadataRequestTopic(b"\x09" * 16, None)]
    found = ask(cluster, MetadataRequest(by_id), 12).topics
    assert [(entry.error_code, entry.name) for entry in found] == [(0, "a"), (100, None)]
    cluster.denied_topics.add("a")
    assert metadata(cluster, "a").topics[0].error_code == 29
    assert [entry.name for entry in metadata(cluster).topics] == ["b"]


def test_topics_are_created_only_if_both_sides_allow_it() -> None:
    cluster = FakeCluster()
    assert metadata(cluster, "new", allow_auto_topic_creation=True).topics[0].error_code == 3
    cluster.has_auto_creation = True
    assert metadata(cluster, "new").topics[0].error_code == 3
    assert metadata(cluster, "new", allow_auto_topic_creation=True).topics[0].error_code == 5
    assert metadata(cluster, "new").topics[0].error_code == 0


def test_a_stale_node_goes_on_telling_the_old_leaders() -> None:
    cluster = FakeCluster(2)
    cluster.create_topic("t", leaders=[1])
    cluster.freeze_metadata(2)
    cluster.move_leader("t", 0, 2)
    assert leaders(metadata(cluster, "t")) == [(2, 1)]
    assert leaders(metadata(cluster, "t", node_id=2)) == [(1, 0)]
    cluster.thaw_metadata()
    assert leaders(metadata(cluster, "t", node_id=2)) == [(2, 1)]


def test_addresses_can_lie_and_nodes_can_stop() -> None:
    cluster = FakeCluster(2)
    cluster.create_topic("t", 2)
    cluster.advertise(1, "kafka", 29092)
    assert (metadata(cluster).brokers[0].host, metadata(cluster).brokers[0].port) == (
        "kafka",
        29092,
    )
    connection = cluster.connect(1)
    cluster.stop_node(1)
    assert connection.is_closed
    assert connection.is_reset
    with pytest.raises(ConnectionRefusedError):
        cluster.connect(1)
    response = metadata(cluster, node_id=2)
    assert [broker.node_id for broker in response.brokers] == [2]
    assert leaders(response) == [(2, 1), (2, 0)]
    assert response.topics[0].partitions[0].offline_replicas == [1]
    cluster.stop_node(2)
    cluster.start_node(1)
    assert leaders(metadata(cluster)) == [(1, 3), (1, 2)]
    assert metadata(cluster).topics[0].partitions[0].offline_replicas == [2]


def test_a_node_can_die_before_the_cluster_notices() -> None:
    cluster = FakeCluster(2)
    cluster.create_topic("t", leaders=[1])
    cluster.stop_node(1, fails_over=False)
    response = metadata(cluster, node_id=2)
    assert leaders(response) == [(1, 0)]
    assert len(response.brokers) == 2


def test_topics_change() -> None:
    cluster = FakeCluster()
    first = cluster.create_topic("t")
    cluster.add_partitions("t", 3)
    assert len(metadata(cluster, "t").topics[0].partitions) == 3
    second = cluster.recreate_topic("t", 2)
    assert first.topic_id != second.topic_id
    assert len(metadata(cluster, "t").topics[0].partitions) == 2
    cluster.delete_topic("t")
    assert metadata(cluster, "t").topics[0].error_code == 3
    with pytest.raises(ValueError, match="exists"):
        cluster.create_topic(cluster.create_topic("u").name)


def test_injected_errors() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 2)
    cluster.faults.add(PartitionError(5, "t"), api=Api.METADATA)
    assert metadata(cluster, "t").topics[0].error_code == 5
    cluster.faults.add(PartitionError(72, "t", 1), api=Api.METADATA)
    topic = metadata(cluster, "t").topics[0]
    assert [topic.error_code, *(entry.error_code for entry in topic.partitions)] == [0, 0, 72]
    cluster.faults.add(TopLevelError(129), api=Api.METADATA)
    assert metadata(cluster, "t").error_code == 129
    cluster.move_leader("t", 0, -1)
    partition = metadata(cluster, "t").topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id) == (5, -1)


@pytest.mark.parametrize("release", RELEASE_NAMES)
def test_every_release_offers_its_ranges(release: str) -> None:
    cluster = FakeCluster(release=release)
    request = ApiVersionsRequest("kfast", "1.0")
    response = ask(cluster, request, RELEASES[release][Api.API_VERSIONS][1])
    assert {
        entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys
    } == RELEASES[release]


def test_ranges_can_be_changed_per_node() -> None:
    cluster = FakeCluster(2)
    cluster.set_versions(Api.FETCH, (4, 11))
    cluster.set_versions(Api.METADATA, None, node_id=2)
    assert cluster.api_versions(1)[Api.FETCH] == (4, 11)
    assert Api.METADATA in cluster.api_versions(1)
    assert Api.METADATA not in cluster.api_versions(2)


def test_api_versions_errors_and_features() -> None:
    cluster = FakeCluster()
    for name in ("under_score", "-dash", "trailing-", "", "a+b"):
        assert ask(cluster, ApiVersionsRequest(name, "1.0"), 4).error_code == 42
    cluster.features["group.version"] = 1
    response = ask(cluster, ApiVersionsRequest("kfast", "1.0.dev3"), 4)
    assert response.error_code == 0
    assert response.finalized_features[0].name == "group.version"
    cluster.faults.add(TopLevelError(35), api=Api.API_VERSIONS)
    answer = cluster.handle_request(1, bytes.fromhex("0000000f001200000000000100056b66617374"))
    assert answer == bytes.fromhex("00000010 00000001 0023 00000001 0012 0000 0004")
