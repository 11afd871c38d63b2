"""OffsetCommit (key 8) and OffsetFetch (key 9).

A commit is refused for every partition if the member may not commit. A commit without a generation
creates a group that does not exist; to fetch offsets of one is no error. Version 10 of both names
topics by id. With ``require_stable`` a partition whose offset an open transaction holds is error 88
(KIP-447).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kfast.errors import ErrorCode
from kfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
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
from kfast.testing.answers import Answer
from kfast.testing.context import RequestContext
from kfast.types import TopicPartition

FIRST_VERSION_WITH_GROUPS: Final = 8
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
        topics=[_commit_topic(context, request.group_id, topic, error) for topic in request.topics],
    )


def _commit_topic(
    context: RequestContext, group_id: str, topic: OffsetCommitRequestTopic, error: int
) -> OffsetCommitResponseTopic:
    name = topic.name
    uses_ids = context.version >= FIRST_VERSION_WITH_IDS
    if uses_ids:
        name = context.cluster.topic_name(topic.topic_id)
    if name in context.cluster.denied_topics:
        error = error or ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if name not in context.cluster.topics:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if uses_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        error = error or unknown
    return OffsetCommitResponseTopic(
        topic.name,
        topic.topic_id,
        [
            OffsetCommitResponsePartition(
                partition.partition_index, error or _commit(context, group_id, name, partition)
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
    if partition.partition_index not in context.cluster.topics[topic].partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    metadata = partition.committed_metadata or ""
    if len(metadata) > groups.settings.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    groups.offsets(group_id).commit(
        TopicPartition(topic, partition.partition_index),
        partition.committed_offset,
        partition.committed_leader_epoch,
        metadata,
    )
    return 0


class _Offset(NamedTuple):
    """One partition of an OffsetFetch response."""

    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: int = 0


def handle_offset_fetch(context: RequestContext, request: OffsetFetchRequest) -> Answer:
    """Answer one request."""
    if context.version >= FIRST_VERSION_WITH_GROUPS:
        groups = [_fetch_group(context, group, request.require_stable) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    error = context.group_error(request.group_id)
    if error:
        return OffsetFetchResponse(error_code=error)
    if request.topics is None:
        topics = list(_committed_partitions(context, request.group_id).items())
    else:
        topics = [(topic.name, topic.partition_indexes) for topic in request.topics]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name,
                [
                    OffsetFetchResponsePartition(*offset)
                    for offset in _fetch_offsets(
                        context, request.group_id, name, partitions, request.require_stable
                    )
                ],
            )
            for name, partitions in topics
        ],
    )


def _fetch_group(
    context: RequestContext, request: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    groups = context.cluster.groups
    error = context.group_error(request.group_id) or groups.fetch_error(
        request.group_id, request.member_id, request.member_epoch
    )
    if error:
        return OffsetFetchResponseGroup(request.group_id, [], error)
    topics = request.topics
    if topics is None:
        topics = [
            OffsetFetchRequestTopics(name, context.cluster.topic_id(name), partitions)
            for name, partitions in _committed_partitions(context, request.group_id).items()
        ]
    return OffsetFetchResponseGroup(
        request.group_id,
        [_fetch_topic(context, request.group_id, topic, require_stable) for topic in topics],
    )


def _fetch_topic(
    context: RequestContext, group_id: str, topic: OffsetFetchRequestTopics, require_stable: bool
) -> OffsetFetchResponseTopics:
    name = topic.name
    if context.version >= FIRST_VERSION_WITH_IDS:
        name = context.cluster.topic_name(topic.topic_id)
    if name:
        offsets = _fetch_offsets(context, group_id, name, topic.partition_indexes, require_stable)
    else:
        error = ErrorCode.UNKNOWN_TOPIC_ID
        offsets = [_Offset(number, error=error) for number in topic.partition_indexes]
    return OffsetFetchResponseTopics(
        topic.name, topic.topic_id, [OffsetFetchResponsePartitions(*offset) for offset in offsets]
    )


def _committed_partitions(context: RequestContext, group_id: str) -> dict[str, list[int]]:
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(context.cluster.groups.offsets(group_id).all()):
        if topic not in context.cluster.denied_topics:
            partitions.setdefault(topic, []).append(partition)
    return partitions


def _fetch_offsets(
    context: RequestContext,
    group_id: str,
    topic: str,
    partitions: Iterable[int],
    require_stable: bool,
) -> list[_Offset]:
    committed = context.cluster.groups.offsets(group_id)
    offsets = []
    for number in partitions:
        partition = TopicPartition(topic, number)
        entry = committed.get(partition)
        error = context.plan.error_for(topic, number)
        if topic in context.cluster.denied_topics:
            error = error or ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if require_stable and committed.is_unstable(partition):
            error = error or ErrorCode.UNSTABLE_OFFSET_COMMIT
        if error or entry is None:
            offsets.append(_Offset(number, error=error))
        else:
            offsets.append(_Offset(number, entry.offset, entry.leader_epoch, entry.metadata))
    return offsets
