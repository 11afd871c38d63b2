"""DescribeGroups (key 15): state and members of classic groups, from their coordinator.

A group that does not exist is error GROUP_ID_NOT_FOUND from version 6 on (KIP-1043), below it a
group in state ``Dead``. A member's metadata and assignment are the bytes that the members exchange
(``consumer_protocol`` if the protocol type is "consumer").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.messages.metadata import OPERATIONS_NOT_ASKED
from kfast.protocol.schema import BOOL, BYTES, I16, I32, STR, ArrayOf, wire


@dataclass(slots=True)
class DescribedGroupMember:
    """One member of a classic group."""

    member_id: str = wire(STR)
    group_instance_id: str | None = wire(STR, "4+", nullable="4+", default=None, ignorable=True)
    client_id: str = wire(STR)
    client_host: str = wire(STR)
    member_metadata: bytes = wire(BYTES)
    member_assignment: bytes = wire(BYTES)


@dataclass(slots=True)
class DescribedGroup:
    """One classic group."""

    error_code: int = wire(I16)
    error_message: str | None = wire(STR, "6+", nullable="6+", default=None)
    group_id: str = wire(STR)
    group_state: str = wire(STR)
    protocol_type: str = wire(STR)
    protocol_data: str = wire(STR)
    members: list[DescribedGroupMember] = wire(ArrayOf(DescribedGroupMember))
    authorized_operations: int = wire(I32, "3+", default=OPERATIONS_NOT_ASKED)


@dataclass(slots=True)
class DescribeGroupsResponse(Message):
    """The groups."""

    API_KEY = ApiKey.DESCRIBE_GROUPS
    NAME = "DescribeGroups"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.DESCRIBE_GROUPS]

    throttle_time_ms: int = wire(I32, "1+", ignorable=True)
    groups: list[DescribedGroup] = wire(ArrayOf(DescribedGroup))


@dataclass(slots=True)
class DescribeGroupsRequest(RequestMessage):
    """Request."""

    API_KEY = ApiKey.DESCRIBE_GROUPS
    NAME = "DescribeGroups"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.DESCRIBE_GROUPS]
    RESPONSE: ClassVar[type[Message]] = DescribeGroupsResponse

    groups: list[str] = wire(ArrayOf(STR))
    include_authorized_operations: bool = wire(BOOL, "3+")
