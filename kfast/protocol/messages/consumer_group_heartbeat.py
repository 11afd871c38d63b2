"""ConsumerGroupHeartbeat (key 68): the one request of KIP-848 groups.

Join, heartbeat, acknowledgement and leave differ in ``member_epoch`` and in the fields that are
set: null, and -1 for the timeout, mean unchanged. So does a null ``assignment`` in the response;
otherwise it is the whole target assignment. Epoch and interval of an error response are invalid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import I16, I32, STR, UUID, ArrayOf, wire

JOIN_EPOCH: Final = 0
"""``member_epoch`` of a member that joins."""
LEAVE_EPOCH: Final = -1
"""``member_epoch`` of a member that leaves."""
TEMPORARY_LEAVE_EPOCH: Final = -2
"""``member_epoch`` of a static member that leaves temporarily."""


@dataclass(slots=True)
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = wire(UUID)
    partitions: list[int] = wire(ArrayOf(I32))


@dataclass(slots=True)
class Assignment:
    """The target assignment of a member, whole."""

    topic_partitions: list[TopicPartitions] = wire(ArrayOf(TopicPartitions))


@dataclass(slots=True)
class ConsumerGroupHeartbeatResponse(Message):
    """The member's epoch, and its target assignment if that changed."""

    API_KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
    NAME = "ConsumerGroupHeartbeat"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.CONSUMER_GROUP_HEARTBEAT]

    throttle_time_ms: int = wire(I32)
    error_code: int = wire(I16)
    error_message: str | None = wire(STR, nullable="0+", default=None)
    member_id: str | None = wire(STR, nullable="0+", default=None)
    member_epoch: int = wire(I32)
    heartbeat_interval_ms: int = wire(I32)
    assignment: Assignment | None = wire(Assignment, nullable="0+", default=None)


@dataclass(slots=True)
class ConsumerGroupHeartbeatRequest(RequestMessage):
    """Heartbeat; ``topic_partitions`` are those the member owns."""

    API_KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
    NAME = "ConsumerGroupHeartbeat"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.CONSUMER_GROUP_HEARTBEAT]
    RESPONSE: ClassVar[type[Message]] = ConsumerGroupHeartbeatResponse

    group_id: str = wire(STR)
    member_id: str = wire(STR)
    member_epoch: int = wire(I32)
    instance_id: str | None = wire(STR, nullable="0+", default=None)
    rack_id: str | None = wire(STR, nullable="0+", default=None)
    rebalance_timeout_ms: int = wire(I32, default=-1)
    subscribed_topic_names: list[str] | None = wire(ArrayOf(STR), nullable="0+", default=None)
    subscribed_topic_regex: str | None = wire(STR, "1+", nullable="1+", default=None)
    server_assignor: str | None = wire(STR, nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = wire(
        ArrayOf(TopicPartitions), nullable="0+", default=None
    )
