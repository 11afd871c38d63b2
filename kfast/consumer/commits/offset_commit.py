"""OffsetCommit messages: requests are built, responses are read.

Owns the grouping by topic and topic names or ids. Stateless; any thread.

Version 10 has topic ids only, so it is used if every offset has one, else version 9. An id is that
under which the offset was read, not that of the topic now. The offsets of a request are kept to
read its response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast.errors import IllegalStateError
from kfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kfast.types import ZERO_UUID, TopicPartition, topic_id_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.consumer.group.membership import MemberIdentity
    from kfast.protocol.messages.offset_commit import OffsetCommitResponse
    from kfast.types import OffsetAndMetadata

LAST_VERSION_BY_NAME: Final = 9
"""Of both OffsetCommit and OffsetFetch."""

FIRST_VERSION_WITH_INSTANCE_ID: Final = 7
FIRST_VERSION_FOR_KIP848: Final = 9
MAX_OFFSET: Final = (1 << 63) - 1


def check_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Refuse offsets that no log can have.

    Raises
    ------
    IllegalStateError
        An offset is negative, or does not fit 64 bits.
    """
    for tp, committed in offsets.items():
        if not 0 <= committed.offset <= MAX_OFFSET:
            raise IllegalStateError(
                f"commit of offset {committed.offset} for {tp}",
                hint="commit the next offset to read: that of the last record processed, plus 1",
                topic=tp.topic,
                partition=tp.partition,
                offset=committed.offset,
            )


def offset_commit_request(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    identity: MemberIdentity,
    version: int,
) -> OffsetCommitRequest:
    """Return the request for one version; from version 10 on every offset needs its topic id."""
    topics: dict[str | bytes, OffsetCommitRequestTopic] = {}
    for tp, committed in offsets.items():
        topic_id = topic_id_of(committed) or ZERO_UUID
        key = tp.topic if version <= LAST_VERSION_BY_NAME else topic_id
        if key not in topics:
            topics[key] = OffsetCommitRequestTopic(name=tp.topic, topic_id=topic_id, partitions=[])
        topics[key].partitions.append(
            OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=max(-1, committed.leader_epoch),
                committed_metadata=committed.metadata,
            )
        )
    has_instance_id = version >= FIRST_VERSION_WITH_INSTANCE_ID
    return OffsetCommitRequest(
        group_id=identity.group_id,
        generation_id_or_member_epoch=identity.generation_id,
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id if has_instance_id else None,
        topics=list(topics.values()),
    )


def commit_codes(
    message: OffsetCommitResponse,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    version: int,
) -> dict[TopicPartition, int]:
    """Return the error code of every partition in the response; of two, the one that is not 0.

    ``offsets`` are those of the request.
    """
    names = {topic_id_of(at): tp.topic for tp, at in offsets.items()}
    codes: dict[TopicPartition, int] = {}
    for topic in message.topics:
        name = topic.name if version <= LAST_VERSION_BY_NAME else names.get(topic.topic_id)
        if name is None:
            continue
        for partition in topic.partitions:
            tp = TopicPartition(name, partition.partition_index)
            codes[tp] = codes.get(tp) or partition.error_code
    return codes
