"""LeaveGroup (key 13): members go at once instead of when their sessions end."""

from __future__ import annotations

from typing import Final

from kfast.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from tests.fake_broker.classic_groups import UNKNOWN_MEMBER_ID
from tests.fake_broker.context import Answer, RequestContext

INVALID_GROUP_ID: Final = 24
FIRST_VERSION_WITH_SEVERAL: Final = 3


def handle_leave_group(context: RequestContext, request: LeaveGroupRequest) -> Answer:
    """Answer one request."""
    groups = context.cluster.groups
    throttle = context.plan.throttle_time_ms
    group = groups.classic(request.group_id)
    error = context.group_error(request.group_id)
    if not error and not request.group_id:
        error = INVALID_GROUP_ID
    if error or group is None:
        return LeaveGroupResponse(throttle, error or UNKNOWN_MEMBER_ID)
    if context.version < FIRST_VERSION_WITH_SEVERAL:
        return LeaveGroupResponse(throttle, group.leave(request.member_id, None, groups.now_ms))
    return LeaveGroupResponse(
        throttle,
        members=[
            MemberResponse(
                member.member_id,
                member.group_instance_id,
                group.leave(member.member_id, member.group_instance_id, groups.now_ms),
            )
            for member in request.members
        ],
    )
