"""Heartbeat (key 12): keeps the session of a classic member alive."""

from __future__ import annotations

from typing import Final

from kfast.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.fake_broker.classic_groups import UNKNOWN_MEMBER_ID
from tests.fake_broker.context import Answer, RequestContext

INVALID_GROUP_ID: Final = 24


def handle_heartbeat(context: RequestContext, request: HeartbeatRequest) -> Answer:
    """Answer one request."""
    groups = context.cluster.groups
    group = groups.classic(request.group_id)
    error = context.group_error(request.group_id)
    if not error and not request.group_id:
        error = INVALID_GROUP_ID
    if not error:
        error = UNKNOWN_MEMBER_ID
        if group is not None:
            error = group.heartbeat(
                request.member_id, request.group_instance_id, request.generation_id, groups.now_ms
            )
    return HeartbeatResponse(context.plan.throttle_time_ms, error)
