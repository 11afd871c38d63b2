"""Builds frames and Metadata answers for tests of the client layer."""

from __future__ import annotations

from collections.abc import Mapping

from kfast._native.buffers import OwnedBuffer, copy_of
from kfast.protocol.message import Message
from kfast.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kfast.testing.headers import encode_response

SIZE_PREFIX = 4


def body(message: Message, version: int) -> OwnedBuffer:
    """Return the body of a response as a received frame without header."""
    return copy_of(message.encode(version))


def frame(message: Message, version: int, correlation_id: int) -> bytes:
    """Return a whole response frame, size prefix included."""
    return encode_response(message, version, correlation_id)


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def partition(
    index: int, leader: int = 1, epoch: int = 0, *, error: int = 0, offline: tuple[int, ...] = ()
) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1, 2],
        offline_replicas=list(offline),
    )


def topic(
    name: str,
    *partitions: MetadataResponsePartition,
    id_number: int = 7,
    error: int = 0,
    is_internal: bool = False,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topic_id(id_number),
        is_internal=is_internal,
        partitions=list(partitions),
    )


BROKERS = {1: ("b1", 9092), 2: ("b2", 9092)}


def metadata(
    *topics: MetadataResponseTopic,
    brokers: Mapping[int, tuple[str, int]] = BROKERS,
    error: int = 0,
    cluster_id: str = "c",
) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=None)
            for node_id, (host, port) in brokers.items()
        ],
        cluster_id=cluster_id,
        controller_id=1,
        topics=list(topics),
        error_code=error,
    )
