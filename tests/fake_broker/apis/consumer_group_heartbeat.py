"""ConsumerGroupHeartbeat (key 68): join, stay, acknowledge and leave of KIP-848 groups.

The API is refused (35) where ``group.version`` is finalized at 0.
"""

from __future__ import annotations

from typing import Final

from kfast.protocol.messages.consumer_group_heartbeat import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeatRequest,
)
from tests.fake_broker.consumer_groups import UNSUPPORTED_VERSION, refusal, request_error
from tests.fake_broker.context import TOPIC_AUTHORIZATION_FAILED, Answer, RequestContext

GROUP_ID_NOT_FOUND: Final = 69
FEATURE: Final = "group.version"


def handle_consumer_group_heartbeat(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Answer:
    """Answer one request."""
    groups = context.cluster.groups
    error = _error(context, request)
    group = groups.consumer(request.group_id)
    is_joining = request.member_epoch == JOIN_EPOCH
    if not error and group is None:
        if is_joining and not groups.is_used_by_classic_members(request.group_id):
            group = groups.new_consumer(request.group_id)
        else:
            error = GROUP_ID_NOT_FOUND
    if error or group is None:
        answer = refusal(error)
    else:
        prefix = context.request.client_id or "member"
        answer = group.heartbeat(request, groups.new_member_id(prefix), groups.now_ms)
    groups.client_ids[answer.member_id or request.member_id] = context.request.client_id or ""
    answer.throttle_time_ms = context.plan.throttle_time_ms
    return answer


def _error(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> int:
    cluster = context.cluster
    if cluster.features.get(FEATURE, 1) < 1:
        return UNSUPPORTED_VERSION
    error = context.group_error(request.group_id)
    if error:
        return error
    if cluster.denied_topics.intersection(request.subscribed_topic_names or ()):
        return TOPIC_AUTHORIZATION_FAILED
    assignors = cluster.groups.settings.group_consumer_assignors
    return request_error(request, context.version, assignors)
