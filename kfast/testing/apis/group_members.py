"""Requests of group members: FindCoordinator (key 10), JoinGroup (11), Heartbeat (12), LeaveGroup
(13), SyncGroup (14) and ConsumerGroupHeartbeat (68, KIP-848).

JoinGroup is parked until all members have joined, SyncGroup until the leader has sent the
assignments. ConsumerGroupHeartbeat is refused (35) where ``group.version`` is finalized at 0.
Share groups and transactions have no coordinator here (42).
"""

from __future__ import annotations

from typing import Final

from kfast.errors import ErrorCode
from kfast.protocol.messages.consumer_group_heartbeat import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeatRequest,
)
from kfast.protocol.messages.find_coordinator import (
    GROUP_KEY_TYPE,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kfast.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kfast.protocol.messages.join_group import JoinGroupRequest
from kfast.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from kfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kfast.testing.answers import Answer, Parked
from kfast.testing.context import RequestContext
from kfast.testing.groups.classic_member import join_error
from kfast.testing.groups.consumer_group import refusal, request_error

FIRST_VERSION_WITH_SEVERAL_KEYS: Final = 4
FIRST_VERSION_WITH_SEVERAL_MEMBERS: Final = 3
FEATURE: Final = "group.version"


def handle_find_coordinator(context: RequestContext, request: FindCoordinatorRequest) -> Answer:
    """Name the node that coordinates a group; any node does (KIP-699)."""
    if context.version >= FIRST_VERSION_WITH_SEVERAL_KEYS:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[_coordinator(context, request.key_type, key) for key in keys]
        )
    coordinator = _coordinator(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        0,
        coordinator.error_code,
        coordinator.error_message,
        coordinator.node_id,
        coordinator.host,
        coordinator.port,
    )


def _coordinator(context: RequestContext, key_type: int, key: str) -> Coordinator:
    groups = context.cluster.groups
    error = context.plan.top_level_error
    if key_type != GROUP_KEY_TYPE:
        error = error or ErrorCode.INVALID_REQUEST
    if key in groups.denied:
        error = error or ErrorCode.GROUP_AUTHORIZATION_FAILED
    if error:
        return Coordinator(key, -1, "", -1, error, None)
    node_id = groups.coordinator(key)
    host, port = context.cluster.nodes[node_id].address
    return Coordinator(key, node_id, host, port, 0, None)


# --- the classic protocol -------------------------------------------------------------------------


def _group_error(context: RequestContext, group_id: str) -> int:
    error = context.group_error(group_id)
    return error if error or group_id else ErrorCode.INVALID_GROUP_ID


def handle_join_group(context: RequestContext, request: JoinGroupRequest) -> Answer:
    """Answer at once or when all members have joined."""
    groups = context.cluster.groups
    error = _group_error(context, request.group_id)
    if not error and request.member_id and groups.classic(request.group_id) is None:
        error = ErrorCode.UNKNOWN_MEMBER_ID
    if not error and groups.is_used_by_consumers(request.group_id):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error:
        return join_error(error, request.member_id, context.version)
    group = groups.classic_or_new(request.group_id)
    prefix = request.group_instance_id or context.request.client_id or "member"
    outcome = group.join(request, context.version, groups.new_member_id(prefix), groups.now_ms)
    return outcome.until(groups.next_deadline_ms) if isinstance(outcome, Parked) else outcome


def handle_sync_group(context: RequestContext, request: SyncGroupRequest) -> Answer:
    """Answer at once or when the assignments are there."""
    groups = context.cluster.groups
    group = groups.classic(request.group_id)
    error = _group_error(context, request.group_id)
    if error or group is None:
        return SyncGroupResponse(error_code=error or ErrorCode.UNKNOWN_MEMBER_ID)
    groups.client_ids[request.member_id] = context.request.client_id or ""
    outcome = group.sync(request, context.version, groups.now_ms)
    return outcome.until(groups.next_deadline_ms) if isinstance(outcome, Parked) else outcome


def handle_heartbeat(context: RequestContext, request: HeartbeatRequest) -> Answer:
    """Keep the session of a member alive."""
    groups = context.cluster.groups
    group = groups.classic(request.group_id)
    error = _group_error(context, request.group_id)
    if error or group is None:
        return HeartbeatResponse(error_code=error or ErrorCode.UNKNOWN_MEMBER_ID)
    error = group.heartbeat(
        request.member_id, request.group_instance_id, request.generation_id, groups.now_ms
    )
    return HeartbeatResponse(error_code=error)


def handle_leave_group(context: RequestContext, request: LeaveGroupRequest) -> Answer:
    """Remove members at once instead of when their sessions end."""
    now_ms = context.cluster.groups.now_ms
    group = context.cluster.groups.classic(request.group_id)
    error = _group_error(context, request.group_id)
    if error or group is None:
        return LeaveGroupResponse(error_code=error or ErrorCode.UNKNOWN_MEMBER_ID)
    if context.version < FIRST_VERSION_WITH_SEVERAL_MEMBERS:
        return LeaveGroupResponse(error_code=group.leave(request.member_id, None, now_ms))
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member.member_id,
                member.group_instance_id,
                group.leave(member.member_id, member.group_instance_id, now_ms),
            )
            for member in request.members
        ],
    )


# --- the consumer protocol (KIP-848) --------------------------------------------------------------


def handle_consumer_group_heartbeat(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Answer:
    """Let a member join, stay, acknowledge its assignment or leave."""
    groups = context.cluster.groups
    error = _heartbeat_error(context, request)
    group = groups.consumer(request.group_id)
    if not error and group is None:
        is_joining = request.member_epoch == JOIN_EPOCH
        if is_joining and not groups.is_used_by_classic_members(request.group_id):
            group = groups.new_consumer(request.group_id)
        else:
            error = ErrorCode.GROUP_ID_NOT_FOUND
    if error or group is None:
        answer = refusal(error)
    else:
        prefix = context.request.client_id or "member"
        answer = group.heartbeat(request, groups.new_member_id(prefix), groups.now_ms)
    groups.client_ids[answer.member_id or request.member_id] = context.request.client_id or ""
    return answer


def _heartbeat_error(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> int:
    cluster = context.cluster
    if cluster.features.get(FEATURE, 1) < 1:
        return ErrorCode.UNSUPPORTED_VERSION
    error = context.group_error(request.group_id)
    if error:
        return error
    if cluster.denied_topics.intersection(request.subscribed_topic_names or ()):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assignors = cluster.groups.settings.group_consumer_assignors
    return request_error(request, context.version, assignors)
