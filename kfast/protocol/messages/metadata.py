"""Metadata (key 3): brokers, topics, partitions and their leaders (KIP-516 adds topic ids).

``leader_epoch`` may be stale below version 9 during a reassignment. Topics can be requested by id
from version 12 on; versions 10 and 11 carry the id in the request and ignore it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import BOOL, I16, I32, STR, UUID, ArrayOf, wire

OPERATIONS_NOT_ASKED: Final = -2147483648
"""Value of the authorized-operations bit fields when they were not requested."""


@dataclass(slots=True)
class MetadataResponseBroker:
    """One broker and its advertised address."""

    node_id: int = wire(I32)
    host: str = wire(STR)
    port: int = wire(I32)
    rack: str | None = wire(STR, "1+", nullable="1+", default=None, ignorable=True)


@dataclass(slots=True)
class MetadataResponsePartition:
    """One partition; ``leader_id`` -1 means none. Errors 5 and 72 still list the replicas."""

    error_code: int = wire(I16)
    partition_index: int = wire(I32)
    leader_id: int = wire(I32)
    leader_epoch: int = wire(I32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = wire(ArrayOf(I32))
    isr_nodes: list[int] = wire(ArrayOf(I32))
    offline_replicas: list[int] = wire(ArrayOf(I32), "5+", ignorable=True)


@dataclass(slots=True)
class MetadataResponseTopic:
    """One topic; ``name`` is null for an unknown id, ``topic_id`` zero for an unknown name."""

    error_code: int = wire(I16)
    name: str | None = wire(STR, nullable="12+")
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    is_internal: bool = wire(BOOL, "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = wire(ArrayOf(MetadataResponsePartition))
    topic_authorized_operations: int = wire(I32, "8+", default=OPERATIONS_NOT_ASKED)


@dataclass(slots=True)
class MetadataResponse(Message):
    """The cluster's metadata, as cached by one broker."""

    API_KEY = ApiKey.METADATA
    NAME = "Metadata"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.METADATA]

    throttle_time_ms: int = wire(I32, "3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = wire(ArrayOf(MetadataResponseBroker))
    cluster_id: str | None = wire(STR, "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = wire(I32, "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = wire(ArrayOf(MetadataResponseTopic))
    cluster_authorized_operations: int = wire(I32, "8-10", default=OPERATIONS_NOT_ASKED)
    error_code: int = wire(I16, "13+", ignorable=True)


@dataclass(slots=True)
class MetadataRequestTopic:
    """A requested topic, by name or (version 12+) by id with ``name`` null."""

    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    name: str | None = wire(STR, nullable="10+")


@dataclass(slots=True)
class MetadataRequest(RequestMessage):
    """Request; ``topics`` null means all, an empty list none (brokers only)."""

    API_KEY = ApiKey.METADATA
    NAME = "Metadata"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.METADATA]
    RESPONSE: ClassVar[type[Message]] = MetadataResponse

    topics: list[MetadataRequestTopic] | None = wire(ArrayOf(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = wire(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = wire(BOOL, "8-10")
    include_topic_authorized_operations: bool = wire(BOOL, "8+")
