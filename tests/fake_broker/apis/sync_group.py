"""SyncGroup (key 14): parked until the leader has handed the assignments in."""

from __future__ import annotations

from typing import Final

from kfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.fake_broker.classic_groups import UNKNOWN_MEMBER_ID
from tests.fake_broker.context import Answer, RequestContext
from tests.fake_broker.parked import Parked

INVALID_GROUP_ID: Final = 24


def handle_sync_group(context: RequestContext, request: SyncGroupRequest) -> Answer:
    """Answer one request, at once or when the assignments are there."""
    groups = context.cluster.groups
    throttle = context.plan.throttle_time_ms
    group = groups.classic(request.group_id)
    error = context.group_error(request.group_id)
    if not error and not request.group_id:
        error = INVALID_GROUP_ID
    if error or group is None:
        return SyncGroupResponse(throttle, error or UNKNOWN_MEMBER_ID)
    groups.client_ids[request.member_id] = context.request.client_id or ""
    outcome = group.sync(request, context.version, groups.now_ms)
    if isinstance(outcome, Parked):
        return outcome.until(groups.next_deadline_ms, throttle)
    outcome.throttle_time_ms = throttle
    return outcome
