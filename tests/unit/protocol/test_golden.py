"""Frames as the Java client writes them: client id ``kfast``, correlation id 1."""

from __future__ import annotations

import pytest

from kfast._native.buffers import copy_of
from kfast._native.fetch_response import parse_fetch_response
from kfast.protocol.headers import encode_request
from kfast.protocol.message import Message
from kfast.protocol.messages.api_versions import ApiVersionsRequest
from kfast.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kfast.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kfast.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kfast.testing.headers import decode_request_header

TOPIC_ID = bytes(range(1, 17))


def fetch_request() -> FetchRequest:
    """Return max wait 500, read_committed, t1-0 at offset 100 and leader epoch 5, rack r1."""
    partition = FetchPartition(
        partition=0, current_leader_epoch=5, fetch_offset=100, partition_max_bytes=1048576
    )
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=52428800,
        isolation_level=1,
        session_id=0,
        session_epoch=0,
        topics=[FetchTopic(topic="t1", topic_id=TOPIC_ID, partitions=[partition])],
        rack_id="r1",
    )


REQUESTS: list[tuple[Message, int, str]] = [
    (ApiVersionsRequest(), 0, "0000000f001200000000000100056b66617374"),
    (
        ApiVersionsRequest("kfast", "0.1.0"),
        3,
        "0000001d001200030000000100056b6661737400066b6661737406302e312e3000",
    ),
    (
        MetadataRequest([MetadataRequestTopic(name="t1")], allow_auto_topic_creation=False),
        12,
        "000000280003000c0000000100056b6661737400020000000000000000000000000000000003743100000000",
    ),
    (
        fetch_request(),
        11,
        "000000580001000b0000000100056b66617374ffffffff000001f400000001032000000100000000000000"
        "0000000001000274310000000100000000000000050000000000000064ffffffffffffffff001000000000"
        "000000027231",
    ),
    (
        fetch_request(),
        12,
        "000000550001000c0000000100056b6661737400ffffffff000001f4000000010320000001000000000000"
        "0000020374310200000000000000050000000000000064ffffffffffffffffffffffff0010000000000103"
        "723100",
    ),
    (
        fetch_request(),
        17,
        "0000005e000100110000000100056b6661737400000001f400000001032000000100000000000000000201"
        "02030405060708090a0b0c0d0e0f100200000000000000050000000000000064ffffffffffffffffffffff"
        "ff0010000000000103723100",
    ),
    (
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=300000,
            subscribed_topic_names=["t1"],
            topic_partitions=[],
        ),
        1,
        "00000026004400010000000100056b66617374000267026d000000000000000493e00203743100000100",
    ),
    (
        ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=4),
        1,
        "00000023004400010000000100056b66617374000267026d000000040000ffffffff0000000000",
    ),
]


@pytest.mark.parametrize(
    ("message", "version", "frame"), REQUESTS, ids=[f"{m.NAME}-{v}" for m, v, _ in REQUESTS]
)
def test_request_frames(message: Message, version: int, frame: str) -> None:
    """D-23: requests have the bytes of the Java client."""
    assert encode_request(message, version, 1, "kfast").hex() == frame


@pytest.mark.parametrize(("message", "version", "frame"), REQUESTS)
def test_request_frames_are_read_back(message: Message, version: int, frame: str) -> None:
    data = bytes.fromhex(frame)[4:]
    header = decode_request_header(data)
    assert header[:4] == (message.API_KEY, version, 1, "kfast")
    decoded = type(message).decode(data, version, header.body_offset)
    assert decoded.encode(version) == data[header.body_offset :]


@pytest.mark.parametrize(
    ("assignment", "encoded"),
    [
        (
            Assignment([TopicPartitions(TOPIC_ID, [0, 2])]),
            "00000000000000026d000000040000138801020102030405060708090a0b0c0d0e0f1003000000000000"
            "0002000000",
        ),
        (None, "00000000000000000000000400001388ff00"),
    ],
)
def test_nullable_struct(assignment: Assignment | None, encoded: str) -> None:
    """D-23: a nullable struct has a one-byte prefix."""
    response = ConsumerGroupHeartbeatResponse(
        member_id="m" if assignment else None,
        member_epoch=4,
        heartbeat_interval_ms=5000,
        assignment=assignment,
    )
    assert response.encode(1).hex() == encoded
    assert ConsumerGroupHeartbeatResponse.decode(bytes.fromhex(encoded), 1) == response


FETCH_V16 = (
    "00000000000000000000020102030405060708090a0b0c0d0e0f1002000000000006ffffffffffffffffffffffff"
    "ffffffffffffffffffffffff01ffffffff01010109000000020000000600000100"
    + "0e0200000002036232000023"
    "840000"
)


def test_fetch_response_with_leader_hint() -> None:
    """D-23: error 6 with a current_leader tag and a node_endpoints tag (KIP-951)."""
    partition = PartitionData(
        partition_index=0,
        error_code=6,
        high_watermark=-1,
        records=b"",
        current_leader=LeaderIdAndEpoch(2, 6),
    )
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])],
        node_endpoints=[NodeEndpoint(2, "b2", 9092)],
    )
    assert response.encode(16).hex() == FETCH_V16
    assert FetchResponse.decode(bytes.fromhex(FETCH_V16), 16) == response


def test_fetch_response_with_leader_hint_in_the_compiled_parser() -> None:
    view = parse_fetch_response(copy_of(bytes.fromhex(FETCH_V16)), 0, 16)
    (partition,) = view.partitions
    assert (partition.topic, partition.topic_id, partition.partition) == (None, TOPIC_ID, 0)
    assert (partition.error_code, partition.high_watermark) == (6, -1)
    assert partition.current_leader == (2, 6)
    assert partition.diverging_epoch is None
    assert partition.records_start == partition.records_end
    assert view.node_endpoints == [(2, "b2", 9092, None)]
