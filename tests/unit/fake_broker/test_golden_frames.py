"""The fake cluster against frames of a real client and a real broker, byte for byte."""

from __future__ import annotations

import pytest

from kfast.protocol.messages.fetch import FetchRequest
from kfast.protocol.messages.metadata import MetadataRequest
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.releases import Api
from tests.unit.fake_broker.wire import fetch_request, frame

TOPIC_ID = bytes(range(1, 17))

API_VERSIONS_V0 = bytes.fromhex("0000000f001200000000000100056b66617374")
API_VERSIONS_V3 = bytes.fromhex(
    "0000001d001200030000000100056b6661737400066b6661737406302e312e3000"
)
METADATA_V12 = bytes.fromhex(
    "000000280003000c0000000100056b6661737400020000000000000000000000000000000003743100000000"
)
FETCH_V11 = bytes.fromhex(
    "000000580001000b0000000100056b66617374ffffffff000001f4000000010320000001000000000000000000"
    "000001000274310000000100000000000000050000000000000064ffffffffffffffff00100000000000000002"
    "7231"
)
FETCH_V12 = bytes.fromhex(
    "000000550001000c0000000100056b6661737400ffffffff000001f40000000103200000010000000000000000"
    "020374310200000000000000050000000000000064ffffffffffffffffffffffff0010000000000103723100"
)
FETCH_V17 = bytes.fromhex(
    "0000005e000100110000000100056b6661737400000001f40000000103200000010000000000000000020102"
    "030405060708090a0b0c0d0e0f100200000000000000050000000000000064ffffffffffffffffffffffff00"
    "10000000000103723100"
)


def make_cluster() -> FakeCluster:
    cluster = FakeCluster(2)
    topic = cluster.create_topic("t1", leaders=[1], leader_epoch=5)
    topic.topic_id = TOPIC_ID
    return cluster


@pytest.mark.parametrize(
    ("request_frame", "version"), [(FETCH_V11, 11), (FETCH_V12, 12), (FETCH_V17, 17)]
)
def test_fetch_of_the_java_client_is_understood(request_frame: bytes, version: int) -> None:
    cluster = make_cluster()
    assert cluster.handle_request(1, request_frame) is not None
    (entry,) = cluster.requests
    assert (entry.version, entry.client_id) == (version, "kfast")
    request = entry.message
    assert isinstance(request, FetchRequest)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.topic, topic.topic_id) == (("t1", bytes(16)) if version < 13 else ("", TOPIC_ID))
    assert (partition.partition, partition.current_leader_epoch, partition.fetch_offset) == (
        0,
        5,
        100,
    )
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 52428800)
    assert (request.rack_id, request.isolation_level) == ("r1", 1)


def test_metadata_of_the_java_client_is_understood() -> None:
    cluster = make_cluster()
    assert cluster.handle_request(1, METADATA_V12) is not None
    (request,) = cluster.requests.messages(MetadataRequest)
    assert request.topics is not None
    assert [topic.name for topic in request.topics] == ["t1"]
    assert not request.allow_auto_topic_creation


@pytest.mark.parametrize("request_frame", [API_VERSIONS_V0, API_VERSIONS_V3])
def test_api_versions_of_the_java_client_is_answered(request_frame: bytes) -> None:
    answer = make_cluster().handle_request(1, request_frame)
    assert answer is not None
    assert answer[4:10] == bytes.fromhex("00000001 0000")


def test_unknown_api_versions_version_is_refused_as_a_broker_does() -> None:
    asked = bytes.fromhex("0000001d001200090000000100056b6661737400066b6661737406302e312e3000")
    answer = make_cluster().handle_request(1, asked)
    assert answer == bytes.fromhex("00000010 00000001 0023 00000001 0012 0000 0004")


def test_old_release_refuses_an_unknown_version_with_an_empty_list() -> None:
    answer = FakeCluster(release="2.1").handle_request(1, API_VERSIONS_V3)
    assert answer == bytes.fromhex("0000000a 00000001 0023 00000000")


def test_wrong_leader_is_answered_with_a_hint_as_a_broker_does() -> None:
    cluster = make_cluster()
    cluster.nodes[2].host = "b2"
    cluster.partition("t1", 0).replicas = [2]
    cluster.move_leader("t1", 0, 2)
    request = fetch_request(cluster, 16, {("t1", 0): 100})
    answer = cluster.handle_request(1, frame(request, 16))
    assert answer is not None
    # A broker leaves the list of aborted transactions of an error null.
    assert answer[9:] == bytes.fromhex(
        "00000000000000000000020102030405060708090a0b0c0d0e0f1002000000000006ffffffffffffffffffff"
        "ffffffffffffffffffffffffffff00ffffffff0101010900000002000000060000"
        "01000e0200000002036232000023840000"
    )


def test_requests_of_unknown_apis_and_versions_close_the_connection() -> None:
    cluster = make_cluster()
    for api, version in [(500, 0), (Api.METADATA, 99), (Api.SASL_HANDSHAKE, 1)]:
        head = int(api).to_bytes(2, "big") + version.to_bytes(2, "big")
        asked = head + bytes.fromhex("00000001ffff00")
        assert cluster.handle_request(1, len(asked).to_bytes(4, "big") + asked) is None
        assert list(cluster.requests)[-1].message is None
