"""OffsetCommit (key 8): stored if the member is one, else refused for every partition.

Version 10 names topics by id. A group that does not exist is made by a commit from outside any
group (generation -1).
"""

from __future__ import annotations

from typing import Final

from kfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kfast.types import TopicPartition
from tests.fake_broker.context import (
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    Answer,
    RequestContext,
)

OFFSET_METADATA_TOO_LARGE: Final = 12
UNKNOWN_TOPIC_ID: Final = 100
FIRST_VERSION_WITH_IDS: Final = 10


def handle_offset_commit(context: RequestContext, request: OffsetCommitRequest) -> Answer:
    """Answer one request."""
    groups = context.cluster.groups
    error = context.group_error(request.group_id) or groups.commit_error(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        context.version,
    )
    return OffsetCommitResponse(
        context.plan.throttle_time_ms,
        [_topic(context, request.group_id, topic, error) for topic in request.topics],
    )


def _topic(
    context: RequestContext, group_id: str, topic: OffsetCommitRequestTopic, error: int
) -> OffsetCommitResponseTopic:
    name = topic.name
    uses_ids = context.version >= FIRST_VERSION_WITH_IDS
    if uses_ids:
        name = context.cluster.topic_name(topic.topic_id)
    if name in context.cluster.denied_topics:
        error = error or TOPIC_AUTHORIZATION_FAILED
    if name not in context.cluster.topics:
        error = error or (UNKNOWN_TOPIC_ID if uses_ids else UNKNOWN_TOPIC_OR_PARTITION)
    return OffsetCommitResponseTopic(
        topic.name,
        topic.topic_id,
        [
            OffsetCommitResponsePartition(
                partition.partition_index,
                error or _commit(context, group_id, name, partition),
            )
            for partition in topic.partitions
        ],
    )


def _commit(
    context: RequestContext, group_id: str, topic: str, partition: OffsetCommitRequestPartition
) -> int:
    groups = context.cluster.groups
    injected = context.plan.error_for(topic, partition.partition_index)
    if injected:
        return injected
    metadata = partition.committed_metadata or ""
    if len(metadata) > groups.settings.offset_metadata_max_bytes:
        return OFFSET_METADATA_TOO_LARGE
    groups.offsets(group_id).commit(
        TopicPartition(topic, partition.partition_index),
        partition.committed_offset,
        partition.committed_leader_epoch,
        metadata,
    )
    return 0
