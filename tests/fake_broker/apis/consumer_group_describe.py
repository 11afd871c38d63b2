"""ConsumerGroupDescribe (key 69): KIP-848 groups and their members; error 69 for all others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kfast.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from tests.fake_broker.apis.describe_groups import HOST
from tests.fake_broker.context import Answer, RequestContext
from tests.fake_broker.groups import GROUP_ID_NOT_FOUND


def handle_consumer_group_describe(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Answer:
    """Answer one request."""
    return ConsumerGroupDescribeResponse(
        context.plan.throttle_time_ms,
        [_group(context, group_id) for group_id in request.group_ids],
    )


def _group(context: RequestContext, group_id: str) -> DescribedGroup:
    groups = context.cluster.groups
    group = groups.consumer(group_id)
    error = context.group_error(group_id) or (GROUP_ID_NOT_FOUND if group is None else 0)
    if error or group is None:
        return DescribedGroup(error, None, group_id, "", 0, 0, "", [])
    return DescribedGroup(
        0,
        None,
        group_id,
        groups.summary(group_id)[0],
        group.epoch,
        group.target_epoch,
        "uniform",
        [
            Member(
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


def _assignment(context: RequestContext, partitions: Iterable[tuple[bytes, int]]) -> Assignment:
    by_id: dict[bytes, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(partitions):
        by_id[topic_id].append(partition)
    name = context.cluster.topic_name
    return Assignment([TopicPartitions(one, name(one), numbers) for one, numbers in by_id.items()])
