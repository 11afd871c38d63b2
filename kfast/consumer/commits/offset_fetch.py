"""OffsetFetch messages: requests are built, responses are read.

Owns both forms of the message (one group up to version 7, a list of groups from 8 on) and topic
names or ids. Stateless; any thread.

``require_stable`` is always set (KIP-447): without it the offsets of an open transaction would be
ignored and its records read again. Brokers before 2.5 do not support it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kfast.consumer.commits.offset_commit import LAST_VERSION_BY_NAME
from kfast.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kfast.types import ZERO_UUID, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kfast.consumer.group.membership import MemberIdentity
    from kfast.protocol.messages.offset_fetch import (
        OffsetFetchResponse,
        OffsetFetchResponsePartition,
        OffsetFetchResponsePartitions,
    )

FIRST_VERSION_WITH_STABLE: Final = 7
FIRST_BATCHED_VERSION: Final = 8
FIRST_VERSION_WITH_MEMBER: Final = 9

NONE_COMMITTED: Final = -1


class FetchedOffset(NamedTuple):
    """Response for one partition.

    ``committed`` is None without a committed offset. ``is_valid`` is False for a negative offset
    other than the -1 of "nothing committed".
    """

    error_code: int
    committed: OffsetAndMetadata | None
    is_valid: bool = True


def offset_fetch_request(
    partitions: Iterable[TopicPartition],
    group_id: str,
    member: MemberIdentity | None,
    ids: Mapping[str, bytes] | None,
    version: int,
) -> OffsetFetchRequest:
    """Return the request for one version; ``ids`` of topics are needed from version 10 on.

    ``member`` is the KIP-848 member that sends it, else None.
    """
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    if version < FIRST_BATCHED_VERSION:
        return OffsetFetchRequest(
            group_id=group_id,
            topics=[
                OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic.items()
            ],
            groups=[],
            require_stable=version >= FIRST_VERSION_WITH_STABLE,
        )
    group = OffsetFetchRequestGroup(
        group_id=group_id,
        topics=[
            OffsetFetchRequestTopics(
                name=topic,
                topic_id=ZERO_UUID if ids is None else ids[topic],
                partition_indexes=numbers,
            )
            for topic, numbers in by_topic.items()
        ],
    )
    if member is not None and version >= FIRST_VERSION_WITH_MEMBER:
        group.member_id, group.member_epoch = member.member_id, member.generation_id
    return OffsetFetchRequest(groups=[group], require_stable=True)


def fetched_offsets(
    message: OffsetFetchResponse,
    group_id: str,
    ids: Mapping[str, bytes] | None,
    version: int,
) -> tuple[int, dict[TopicPartition, FetchedOffset]]:
    """Return the error code of the group, and the results by partition.

    A partition that is not in the response is not in the result: its committed offset is unknown
    (P-09).
    """
    offsets: dict[TopicPartition, FetchedOffset] = {}
    if version < FIRST_BATCHED_VERSION:
        for old in message.topics:
            for entry in old.partitions:
                offsets[TopicPartition(old.name, entry.partition_index)] = _fetched(entry)
        return message.error_code, offsets
    group = next((g for g in message.groups if g.group_id == group_id), None)
    if group is None:
        return 0, offsets
    names = {topic_id: topic for topic, topic_id in (ids or {}).items()}
    for topic in group.topics:
        name = topic.name if version <= LAST_VERSION_BY_NAME else names.get(topic.topic_id)
        if name is None:
            continue
        for partition in topic.partitions:
            offsets[TopicPartition(name, partition.partition_index)] = _fetched(partition)
    return group.error_code, offsets


def _fetched(
    partition: OffsetFetchResponsePartition | OffsetFetchResponsePartitions,
) -> FetchedOffset:
    if partition.error_code:
        return FetchedOffset(partition.error_code, None)
    if partition.committed_offset < 0:
        return FetchedOffset(0, None, is_valid=partition.committed_offset == NONE_COMMITTED)
    epoch = max(-1, partition.committed_leader_epoch)
    return FetchedOffset(
        0, OffsetAndMetadata(partition.committed_offset, partition.metadata or "", epoch)
    )
