"""OffsetFetch (key 9): what a group has committed.

A group nobody has heard of has committed nothing, which is no error. With ``require_stable`` a
partition whose offset an open transaction holds is answered 88 (KIP-447).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kfast.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kfast.types import TopicPartition
from tests.fake_broker.context import TOPIC_AUTHORIZATION_FAILED, Answer, RequestContext

UNSTABLE_OFFSET_COMMIT: Final = 88
UNKNOWN_TOPIC_ID: Final = 100
FIRST_VERSION_WITH_GROUPS: Final = 8
FIRST_VERSION_WITH_IDS: Final = 10
NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class _Found:
    """What is answered for one partition."""

    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    error: int = 0


def handle_offset_fetch(context: RequestContext, request: OffsetFetchRequest) -> Answer:
    """Answer one request."""
    throttle = context.plan.throttle_time_ms
    if context.version >= FIRST_VERSION_WITH_GROUPS:
        groups = [_group(context, group, request.require_stable) for group in request.groups]
        return OffsetFetchResponse(throttle, groups=groups)
    error = context.group_error(request.group_id)
    if error:
        return OffsetFetchResponse(throttle, error_code=error)
    if request.topics is None:
        wanted = list(_everything(context, request.group_id).items())
    else:
        wanted = [(topic.name, topic.partition_indexes) for topic in request.topics]
    return OffsetFetchResponse(
        throttle,
        topics=[
            OffsetFetchResponseTopic(
                name,
                [
                    OffsetFetchResponsePartition(
                        one.partition, one.offset, one.leader_epoch, one.metadata, one.error
                    )
                    for one in _find(
                        context, request.group_id, name, partitions, request.require_stable
                    )
                ],
            )
            for name, partitions in wanted
        ],
    )


def _group(
    context: RequestContext, asked: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    groups = context.cluster.groups
    error = context.group_error(asked.group_id) or groups.fetch_error(
        asked.group_id, asked.member_id, asked.member_epoch
    )
    if error:
        return OffsetFetchResponseGroup(asked.group_id, [], error)
    topics = asked.topics
    if topics is None:
        topics = [
            OffsetFetchRequestTopics(name, context.cluster.topic_id(name), partitions)
            for name, partitions in _everything(context, asked.group_id).items()
        ]
    return OffsetFetchResponseGroup(
        asked.group_id,
        [_topic(context, asked.group_id, topic, require_stable) for topic in topics],
    )


def _topic(
    context: RequestContext, group_id: str, topic: OffsetFetchRequestTopics, require_stable: bool
) -> OffsetFetchResponseTopics:
    name = topic.name
    if context.version >= FIRST_VERSION_WITH_IDS:
        name = context.cluster.topic_name(topic.topic_id)
    found = _find(context, group_id, name, topic.partition_indexes, require_stable)
    if not name:
        found = [_Found(one, error=UNKNOWN_TOPIC_ID) for one in topic.partition_indexes]
    return OffsetFetchResponseTopics(
        topic.name,
        topic.topic_id,
        [
            OffsetFetchResponsePartitions(
                one.partition, one.offset, one.leader_epoch, one.metadata, one.error
            )
            for one in found
        ],
    )


def _everything(context: RequestContext, group_id: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(context.cluster.groups.offsets(group_id).all()):
        if topic not in context.cluster.denied_topics:
            found.setdefault(topic, []).append(partition)
    return found


def _find(
    context: RequestContext,
    group_id: str,
    topic: str,
    partitions: Iterable[int],
    require_stable: bool,
) -> list[_Found]:
    offsets = context.cluster.groups.offsets(group_id)
    found = []
    for number in partitions:
        partition = TopicPartition(topic, number)
        entry = offsets.get(partition)
        error = context.plan.error_for(topic, number)
        if topic in context.cluster.denied_topics:
            error = error or TOPIC_AUTHORIZATION_FAILED
        if require_stable and offsets.is_unstable(partition):
            error = error or UNSTABLE_OFFSET_COMMIT
        if error or entry is None:
            found.append(_Found(number, error=error))
        else:
            found.append(_Found(number, entry.offset, entry.leader_epoch, entry.metadata))
    return found
