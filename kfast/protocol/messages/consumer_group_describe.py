"""ConsumerGroupDescribe (key 69): state and members of KIP-848 groups, from their coordinator.

A group that does not exist, and one of another type, is error GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.messages.metadata import OPERATIONS_NOT_ASKED
from kfast.protocol.schema import BOOL, I8, I16, I32, STR, UUID, ArrayOf, wire


@dataclass(slots=True)
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = wire(UUID)
    topic_name: str = wire(STR)
    partitions: list[int] = wire(ArrayOf(I32))


@dataclass(slots=True)
class Assignment:
    """Partitions of a member."""

    topic_partitions: list[TopicPartitions] = wire(ArrayOf(TopicPartitions))


@dataclass(slots=True)
class Member:
    """One member; ``member_type`` 0 is one of the classic protocol, 1 one of KIP-848."""

    member_id: str = wire(STR)
    instance_id: str | None = wire(STR, nullable="0+", default=None)
    rack_id: str | None = wire(STR, nullable="0+", default=None)
    member_epoch: int = wire(I32)
    client_id: str = wire(STR)
    client_host: str = wire(STR)
    subscribed_topic_names: list[str] = wire(ArrayOf(STR))
    subscribed_topic_regex: str | None = wire(STR, nullable="0+", default=None)
    assignment: Assignment = wire(Assignment)
    target_assignment: Assignment = wire(Assignment)
    member_type: int = wire(I8, "1+", default=-1, ignorable=True)


@dataclass(slots=True)
class DescribedGroup:
    """One KIP-848 group."""

    error_code: int = wire(I16)
    error_message: str | None = wire(STR, nullable="0+", default=None)
    group_id: str = wire(STR)
    group_state: str = wire(STR)
    group_epoch: int = wire(I32)
    assignment_epoch: int = wire(I32)
    assignor_name: str = wire(STR)
    members: list[Member] = wire(ArrayOf(Member))
    authorized_operations: int = wire(I32, default=OPERATIONS_NOT_ASKED)


@dataclass(slots=True)
class ConsumerGroupDescribeResponse(Message):
    """The groups."""

    API_KEY = ApiKey.CONSUMER_GROUP_DESCRIBE
    NAME = "ConsumerGroupDescribe"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.CONSUMER_GROUP_DESCRIBE]

    throttle_time_ms: int = wire(I32)
    groups: list[DescribedGroup] = wire(ArrayOf(DescribedGroup))


@dataclass(slots=True)
class ConsumerGroupDescribeRequest(RequestMessage):
    """Request."""

    API_KEY = ApiKey.CONSUMER_GROUP_DESCRIBE
    NAME = "ConsumerGroupDescribe"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.CONSUMER_GROUP_DESCRIBE]
    RESPONSE: ClassVar[type[Message]] = ConsumerGroupDescribeResponse

    group_ids: list[str] = wire(ArrayOf(STR))
    include_authorized_operations: bool = wire(BOOL)
