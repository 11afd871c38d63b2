"""ListGroups (key 16), DescribeGroups (15) and ConsumerGroupDescribe (69, KIP-848).

A node lists the groups it coordinates, without those the client may not use. DescribeGroups of a
group that does not exist, or is one of KIP-848, is error 69 from version 6 on, else ``Dead``;
ConsumerGroupDescribe of a group that is not one of KIP-848 is error 69.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from kfast.errors import ErrorCode
from kfast.protocol.messages import consumer_group_describe as consumer_groups
from kfast.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kfast.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kfast.testing.answers import Answer
from kfast.testing.context import RequestContext

FIRST_VERSION_WITH_NOT_FOUND: Final = 6
HOST: Final = "/127.0.0.1"


def handle_list_groups(context: RequestContext, request: ListGroupsRequest) -> Answer:
    """Answer one request."""
    groups = context.cluster.groups
    if context.plan.top_level_error:
        return ListGroupsResponse(error_code=context.plan.top_level_error)
    states = {state.lower() for state in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    listed = []
    for group_id in groups.names():
        if groups.error_for(context.node_id, group_id):
            continue
        state, kind, protocol_type = groups.summary(group_id)
        if (not states or state.lower() in states) and (not types or kind in types):
            listed.append(ListedGroup(group_id, protocol_type, state, kind))
    return ListGroupsResponse(groups=listed)


def handle_describe_groups(context: RequestContext, request: DescribeGroupsRequest) -> Answer:
    """Answer one request."""
    groups = [_classic_group(context, group_id) for group_id in request.groups]
    return DescribeGroupsResponse(groups=groups)


def _classic_group(context: RequestContext, group_id: str) -> DescribedGroup:
    groups = context.cluster.groups
    error = context.group_error(group_id)
    if error:
        return DescribedGroup(error, None, group_id, "", "", "", [])
    if group_id not in groups.names() or groups.summary(group_id)[1] != "classic":
        error, message = 0, None
        if context.version >= FIRST_VERSION_WITH_NOT_FOUND:
            error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
        return DescribedGroup(error, message, group_id, "Dead", "", "", [])
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


def handle_consumer_group_describe(
    context: RequestContext, request: consumer_groups.ConsumerGroupDescribeRequest
) -> Answer:
    """Answer one request."""
    groups = [_consumer_group(context, group_id) for group_id in request.group_ids]
    return consumer_groups.ConsumerGroupDescribeResponse(groups=groups)


def _consumer_group(context: RequestContext, group_id: str) -> consumer_groups.DescribedGroup:
    groups = context.cluster.groups
    group = groups.consumer(group_id)
    error = context.group_error(group_id)
    if error or group is None:
        error = error or ErrorCode.GROUP_ID_NOT_FOUND
        return consumer_groups.DescribedGroup(error, None, group_id, "", 0, 0, "", [])
    return consumer_groups.DescribedGroup(
        0,
        None,
        group_id,
        groups.summary(group_id)[0],
        group.epoch,
        group.target_epoch,
        "uniform",
        [
            consumer_groups.Member(
                member.member_id,
                member.instance_id,
                member.rack_id,
                member.epoch,
                groups.client_ids.get(member.member_id, ""),
                HOST,
                sorted(member.subscription.names),
                member.subscription.regex or None,
                _assignment(context, member.assigned),
                _assignment(context, group.target.get(member.member_id, ())),
                1,
            )
            for member in group.members.values()
        ],
    )


def _assignment(
    context: RequestContext, partitions: Iterable[tuple[bytes, int]]
) -> consumer_groups.Assignment:
    numbers_by_id: dict[bytes, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(partitions):
        numbers_by_id[topic_id].append(partition)
    return consumer_groups.Assignment(
        [
            consumer_groups.TopicPartitions(topic_id, context.cluster.topic_name(topic_id), numbers)
            for topic_id, numbers in numbers_by_id.items()
        ]
    )
