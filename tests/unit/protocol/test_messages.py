"""The table of messages, and what a consumer relies on in their definitions."""

from __future__ import annotations

import pytest

from kfast._native.buffers import copy_of
from kfast._native.fetch_response import FetchResponseView
from kfast.errors import ProtocolError, UnsupportedVersionError
from kfast.protocol.api_keys import API_SPECS, API_VERSIONS, ApiKey
from kfast.protocol.messages import REQUESTS, response_reader
from kfast.protocol.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey
from kfast.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from kfast.protocol.messages.list_offsets import ListOffsetsRequest
from kfast.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kfast.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kfast.types import ZERO_UUID

TOPIC_ID = bytes(range(16))


def test_the_tables_agree() -> None:
    assert set(REQUESTS) == set(ApiKey) == set(API_SPECS) == set(API_VERSIONS)
    for key, request in REQUESTS.items():
        response = request.RESPONSE
        assert request.__name__ == f"{request.NAME}Request"
        assert response.__name__ == f"{request.NAME}Response"
        for cls in (request, response):
            assert key == cls.API_KEY
            assert API_SPECS[key] == (cls.MIN_VERSION, cls.MAX_VERSION, cls.FLEXIBLE_FROM)


@pytest.mark.parametrize("key", list(ApiKey))
def test_reading_a_response(key: ApiKey) -> None:
    read = response_reader(key)
    response_class = REQUESTS[key].RESPONSE
    for version in range(response_class.MIN_VERSION, response_class.MAX_VERSION + 1):
        frame = copy_of(b"head" + response_class().encode(version))
        decoded = read(frame, 4, version)
        if key is ApiKey.FETCH:
            assert isinstance(decoded, FetchResponseView)
            assert decoded.partitions == []
        else:
            assert decoded == response_class()
        with pytest.raises(ProtocolError):
            read(copy_of(b"head"), 4, version)


def test_a_response_of_an_unknown_api() -> None:
    with pytest.raises(UnsupportedVersionError):
        response_reader(0)


def test_a_consumer_is_no_replica_by_default() -> None:
    assert FetchRequest().replica_id == -1
    assert ListOffsetsRequest().replica_id == -1
    assert OffsetForLeaderEpochRequest().replica_id == -1
    assert FetchPartition().log_start_offset == -1
    assert FetchPartition().last_fetched_epoch == -1


@pytest.mark.parametrize("version", range(10, 19))
def test_fetch_request_names_topics_by_name_or_id(version: int) -> None:
    request = FetchRequest(
        max_wait_ms=500,
        topics=[FetchTopic("t1", TOPIC_ID, [FetchPartition(3, 1, 7)])],
        forgotten_topics_data=[ForgottenTopic("t2", TOPIC_ID, [1, 2])],
        rack_id="r",
    )
    decoded = FetchRequest.decode(request.encode(version), version)
    name, topic_id = ("t1", ZERO_UUID) if version <= 12 else ("", TOPIC_ID)
    assert (decoded.topics[0].topic, decoded.topics[0].topic_id) == (name, topic_id)
    assert decoded.topics[0].partitions == [FetchPartition(3, 1, 7)]
    assert decoded.forgotten_topics_data[0].topic == ("t2" if version <= 12 else "")
    assert decoded.forgotten_topics_data[0].partitions == [1, 2]
    assert decoded.rack_id == ("r" if version >= 11 else "")


def test_metadata_scope() -> None:
    for version in range(7, 14):
        everything = MetadataRequest.decode(MetadataRequest(topics=None).encode(version), version)
        assert everything.topics is None
        assert MetadataRequest.decode(MetadataRequest().encode(version), version).topics == []


def test_a_topic_without_name_needs_version_10() -> None:
    request = MetadataRequest([MetadataRequestTopic(TOPIC_ID, None)])
    assert MetadataRequest.decode(request.encode(12), 12) == request
    with pytest.raises(UnsupportedVersionError):
        request.encode(9)


def test_metadata_response() -> None:
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(1, "a", 9092, "r"), MetadataResponseBroker(2, "b", 9093)],
        cluster_id="c",
        controller_id=2,
        topics=[
            MetadataResponseTopic(
                name="t",
                topic_id=TOPIC_ID,
                partitions=[MetadataResponsePartition(5, 0, -1, 3, [1, 2], [1], [2])],
            ),
            MetadataResponseTopic(error_code=3, name="gone"),
        ],
        error_code=129,
    )
    assert MetadataResponse.decode(response.encode(13), 13) == response
    oldest = MetadataResponse.decode(response.encode(7), 7)
    assert oldest.error_code == 0
    assert oldest.topics[0].topic_id == ZERO_UUID
    assert oldest.topics[0].partitions == response.topics[0].partitions
    unknown_id = MetadataResponseTopic(error_code=100, name=None, topic_id=TOPIC_ID)
    with pytest.raises(UnsupportedVersionError):
        MetadataResponse(topics=[unknown_id]).encode(11)


def test_features_of_api_versions() -> None:
    response = ApiVersionsResponse(
        finalized_features_epoch=7, finalized_features=[FinalizedFeatureKey("group.version", 1, 1)]
    )
    assert ApiVersionsResponse.decode(response.encode(4), 4) == response
    assert ApiVersionsResponse.decode(response.encode(2), 2) == ApiVersionsResponse()


def test_records_may_be_null() -> None:
    for version in range(10, 19):
        partition = PartitionData(records=None, aborted_transactions=None)
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
        decoded = FetchResponse.decode(response.encode(version), version)
        assert decoded.responses[0].partitions == [partition]


def test_many_partitions() -> None:
    """M-11: a thousand topics with ten partitions each decode to what was encoded."""
    partitions = [
        MetadataResponsePartition(0, p, 1, 5, [1, 2, 3], [1, 2, 3], []) for p in range(10)
    ]
    topics = [
        MetadataResponseTopic(0, f"topic-{t}", TOPIC_ID, False, partitions) for t in range(1000)
    ]
    response = MetadataResponse(topics=topics)
    for version in (9, 12):
        decoded = MetadataResponse.decode(response.encode(version), version)
        assert [topic.name for topic in decoded.topics] == [topic.name for topic in topics]
        assert all(topic.partitions == partitions for topic in decoded.topics)
