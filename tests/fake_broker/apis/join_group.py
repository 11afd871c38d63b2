"""JoinGroup (key 11): parked until the group has joined."""

from __future__ import annotations

from typing import Final

from kfast.protocol.messages.join_group import JoinGroupRequest
from tests.fake_broker.classic_groups import INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID
from tests.fake_broker.classic_members import join_error
from tests.fake_broker.context import Answer, RequestContext
from tests.fake_broker.parked import Parked

INVALID_GROUP_ID: Final = 24


def handle_join_group(context: RequestContext, request: JoinGroupRequest) -> Answer:
    """Answer one request, at once or when everyone is there."""
    groups = context.cluster.groups
    throttle = context.plan.throttle_time_ms
    error = context.group_error(request.group_id)
    if not error and not request.group_id:
        error = INVALID_GROUP_ID
    if not error and request.member_id and groups.classic(request.group_id) is None:
        error = UNKNOWN_MEMBER_ID
    if not error and groups.is_used_by_consumers(request.group_id):
        error = INCONSISTENT_GROUP_PROTOCOL
    if error:
        answer = join_error(error, request.member_id, context.version)
        answer.throttle_time_ms = throttle
        return answer
    group = groups.classic_or_new(request.group_id)
    prefix = request.group_instance_id or context.request.client_id or "member"
    outcome = group.join(request, context.version, groups.new_member_id(prefix), groups.now_ms)
    if isinstance(outcome, Parked):
        return outcome.until(groups.next_deadline_ms, throttle)
    outcome.throttle_time_ms = throttle
    return outcome
