"""DescribeGroups (key 15): classic groups and their members.

A group that is not there, or is one of KIP-848, is error 69 from version 6 on, else ``Dead``.
"""

from __future__ import annotations

from typing import Final

from kfast.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tests.fake_broker.context import Answer, RequestContext
from tests.fake_broker.groups import GROUP_ID_NOT_FOUND

FIRST_VERSION_WITH_NOT_FOUND: Final = 6
HOST: Final = "/127.0.0.1"


def handle_describe_groups(context: RequestContext, request: DescribeGroupsRequest) -> Answer:
    """Answer one request."""
    return DescribeGroupsResponse(
        context.plan.throttle_time_ms, [_group(context, group_id) for group_id in request.groups]
    )


def _group(context: RequestContext, group_id: str) -> DescribedGroup:
    groups = context.cluster.groups
    error = context.group_error(group_id)
    if error:
        return DescribedGroup(error, None, group_id, "", "", "", [])
    if group_id not in groups.names() or groups.summary(group_id)[1] != "classic":
        if context.version >= FIRST_VERSION_WITH_NOT_FOUND:
            return DescribedGroup(
                GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", group_id, "Dead", "", "", []
            )
        return DescribedGroup(0, None, group_id, "Dead", "", "", [])
    state, _, protocol_type = groups.summary(group_id)
    group = groups.classic(group_id)
    members = [] if group is None else [*group.members.values()]
    return DescribedGroup(
        0,
        None,
        group_id,
        state,
        protocol_type,
        "" if group is None else group.protocol_name or "",
        [
            DescribedGroupMember(
                member.member_id,
                member.instance_id,
                groups.client_ids.get(member.member_id, ""),
                HOST,
                b"",
                member.assignment if state == "Stable" else b"",
            )
            for member in members
        ],
    )
