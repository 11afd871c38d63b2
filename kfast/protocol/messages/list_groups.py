"""ListGroups (key 16): the groups that one broker is the coordinator of.

Filters by state from version 4 on (KIP-518), by type from 5 on (KIP-848); without names in a filter
it does not filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import I16, I32, STR, ArrayOf, wire


@dataclass(slots=True)
class ListedGroup:
    """One group; state and type are empty from brokers that do not report them."""

    group_id: str = wire(STR)
    protocol_type: str = wire(STR)
    group_state: str = wire(STR, "4+", ignorable=True)
    group_type: str = wire(STR, "5+", ignorable=True)


@dataclass(slots=True)
class ListGroupsResponse(Message):
    """Groups of this coordinator that the user may describe."""

    API_KEY = ApiKey.LIST_GROUPS
    NAME = "ListGroups"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.LIST_GROUPS]

    throttle_time_ms: int = wire(I32, "1+", ignorable=True)
    error_code: int = wire(I16)
    groups: list[ListedGroup] = wire(ArrayOf(ListedGroup))


@dataclass(slots=True)
class ListGroupsRequest(RequestMessage):
    """Request."""

    API_KEY = ApiKey.LIST_GROUPS
    NAME = "ListGroups"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.LIST_GROUPS]
    RESPONSE: ClassVar[type[Message]] = ListGroupsResponse

    states_filter: list[str] = wire(ArrayOf(STR), "4+")
    types_filter: list[str] = wire(ArrayOf(STR), "5+")
