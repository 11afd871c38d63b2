"""Asking the fake cluster in its own language: one request in, one decoded response out."""

from __future__ import annotations

from typing import Any

from kfast.protocol.headers import decode_response_header, encode_request
from kfast.protocol.message import RequestMessage
from kfast.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kfast.types import ZERO_UUID
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.connection import FakeConnection

CLIENT_ID = "kfast"


def frame(message: RequestMessage, version: int, correlation_id: int = 1) -> bytes:
    return encode_request(message, version, correlation_id, CLIENT_ID)


def decode(request: RequestMessage, version: int, answer: bytes) -> Any:
    """Return the response in a whole frame."""
    _, start = decode_response_header(answer[4:], request.API_KEY, version)
    return request.RESPONSE.decode(answer[4:], version, start)


def ask(cluster: FakeCluster, message: RequestMessage, version: int, node_id: int = 1) -> Any:
    """Return the response to a request on a connection of its own."""
    answer = cluster.handle_request(node_id, frame(message, version))
    assert answer is not None
    return decode(message, version, answer)


def ask_on(
    connection: FakeConnection, message: RequestMessage, version: int, now_ms: int = 0
) -> Any:
    """Return the response to a request on an open connection, after all its waits."""
    connection.receive(frame(message, version), now_ms)
    return decode(message, version, connection.drain(now_ms))


def fetch_request(
    cluster: FakeCluster,
    version: int,
    offsets: dict[tuple[str, int], int],
    *,
    partition_max_bytes: int = 1 << 20,
    **settings: Any,
) -> FetchRequest:
    """Return a Fetch of partitions at offsets, by name or id as the version wants it."""
    topics: dict[str, FetchTopic] = {}
    for (name, partition), offset in offsets.items():
        topic_id = cluster.topic_id(name) if version >= 13 else ZERO_UUID
        topic = topics.setdefault(name, FetchTopic(name, topic_id))
        topic.partitions.append(
            FetchPartition(partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        )
    settings.setdefault("max_wait_ms", 500)
    settings.setdefault("min_bytes", 1)
    return FetchRequest(topics=list(topics.values()), **settings)


def answers(response: FetchResponse) -> dict[int, PartitionData]:
    """Return the partition answers of a Fetch of one topic."""
    return {
        partition.partition_index: partition
        for topic in response.responses
        for partition in topic.partitions
    }
