"""merge_topics: merges the topics of a Metadata response into the known ones.

Pure functions over immutable values; no state, no time. Brokers receive updates one after the
other, so a response may be older than the view it is merged into. The rules:

======================================  ==========================================================
response                                result
======================================  ==========================================================
lower leader epoch, same topic id       the known leader stays (KIP-320)
partition without a leader              the known leader stays, the code is kept, another refresh
fewer partitions, same topic id         the known ones stay: Kafka never removes partitions
other topic id                          a topic recreated: the old one is dropped (KIP-516)
an id that was already replaced         the broker is behind: its view of the topic is ignored
topic unknown, or missing in the list   kept for two responses, dropped with the third in a row
any other topic error                   the known view stays, the code is kept
======================================  ==========================================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kfast.client.cluster import NO_EPOCH, NO_LEADER, PartitionMetadata, TopicMetadata
from kfast.errors import ErrorCode, error_info
from kfast.types import ZERO_UUID

if TYPE_CHECKING:
    from kfast.protocol.messages.metadata import (
        MetadataResponse,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

UNKNOWN_ANSWERS_TO_FORGET: Final = 3
"""Responses in a row without a known topic before it counts as deleted. A topic can be missing on
a broker that is a moment behind; dropping it at once would reset its readers."""

EPOCHS_RELIABLE_FROM: Final = 9
"""Below this version the leader epoch of a response may be stale during a reassignment."""


MOST_RETIRED_IDS: Final = 8
"""Earlier ids of a topic that are remembered: a broker is behind by one, or by few."""


@dataclass(slots=True)
class TopicHistory:
    """State of one topic from merge to merge; there is none of a topic without any of it."""

    unknown_answers: int = 0
    retired_ids: deque[bytes] = field(default_factory=lambda: deque(maxlen=MOST_RETIRED_IDS))


@dataclass(slots=True, frozen=True)
class MergedTopics:
    """The outcome of one merge."""

    topics: Mapping[str, TopicMetadata]
    errors: Mapping[str, int]
    """Topic-level codes of the response, for topics that are retained."""
    incomplete: frozenset[str]
    """Topics for which another refresh should follow soon: it is missing or one of its leaders is,
    or the access to it is denied, which an administrator may change."""


def merge_topics(
    previous: Mapping[str, TopicMetadata],
    response: MetadataResponse,
    *,
    requested: frozenset[str] | None,
    retained: frozenset[str] | None,
    history: dict[str, TopicHistory],
    api_version: int,
) -> MergedTopics:
    """Merge the topics of a response into the ``previous`` ones.

    ``requested`` are the names in the request and ``retained`` those to keep, None for all topics;
    topics of other names are dropped. ``history`` is updated.
    """
    by_name = {topic.name: topic for topic in response.topics if topic.name}
    names = dict.fromkeys([*previous, *(requested or ()), *by_name])
    topics: dict[str, TopicMetadata] = {}
    errors: dict[str, int] = {}
    incomplete: set[str] = set()
    for name in names:
        if retained is not None and name not in retained:
            history.pop(name, None)
            continue
        before = previous.get(name)
        received = by_name.get(name)
        if received is None and requested is not None and name not in requested:
            if before is not None:  # the request did not ask for it
                topics[name] = before
            continue
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if received is None else received.error_code
        after: TopicMetadata | None
        if received is not None and code == 0:
            after = _merge_topic(before, received, history, api_version)
        else:
            after = _keep_despite_error(before, name, code, history)
        if after is not None:
            topics[name] = after
            if _lacks_leader(after):
                incomplete.add(name)
        is_listed_only = requested is None and received is None  # gone from the list of all topics
        if code and not (is_listed_only and after is None):
            errors[name] = code
            if error_info(code).refresh_metadata or code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                incomplete.add(name)
    return MergedTopics(topics, errors, frozenset(incomplete))


def _merge_topic(
    before: TopicMetadata | None,
    received: MetadataResponseTopic,
    history: dict[str, TopicHistory],
    api_version: int,
) -> TopicMetadata:
    name = received.name or ""
    past = history.get(name)
    if past is not None:
        past.unknown_answers = 0
        if before is not None and received.topic_id in past.retired_ids:
            return before
        if received.topic_id in past.retired_ids:
            past.retired_ids.remove(received.topic_id)
        if not past.retired_ids:
            del history[name]
    topic_id = received.topic_id
    if before is not None and before.topic_id != ZERO_UUID:
        if topic_id == ZERO_UUID:
            topic_id = before.topic_id  # an older broker of a mixed cluster has no ids
        elif topic_id != before.topic_id:
            history.setdefault(name, TopicHistory()).retired_ids.append(before.topic_id)
            before = None
    old = {} if before is None else before.partitions
    partitions = dict(old)
    for partition in received.partitions:
        index = partition.partition_index
        partitions[index] = _merge_partition(old.get(index), partition, api_version)
    after = TopicMetadata(name, topic_id, received.is_internal, 0, partitions)
    return before if before == after else after


def _merge_partition(
    before: PartitionMetadata | None, received: MetadataResponsePartition, api_version: int
) -> PartitionMetadata:
    epoch = received.leader_epoch if api_version >= EPOCHS_RELIABLE_FROM else NO_EPOCH
    leader = received.leader_id
    error_code = received.error_code
    if before is not None:
        if NO_EPOCH < epoch < before.leader_epoch:
            return before
        if leader == NO_LEADER:
            leader, epoch = before.leader_id, before.leader_epoch
    if leader != NO_LEADER and received.leader_id == leader:
        error_code = 0  # a missing follower (REPLICA_NOT_AVAILABLE) does not matter to a consumer
    return PartitionMetadata(
        received.partition_index,
        leader,
        epoch,
        tuple(received.replica_nodes),
        tuple(received.isr_nodes),
        tuple(received.offline_replicas),
        error_code,
    )


def _keep_despite_error(
    before: TopicMetadata | None, name: str, code: int, history: dict[str, TopicHistory]
) -> TopicMetadata | None:
    if before is None:
        return None
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        past = history.setdefault(name, TopicHistory())
        past.unknown_answers += 1
        if past.unknown_answers >= UNKNOWN_ANSWERS_TO_FORGET:
            del history[name]  # the brokers agree: none will come back with an earlier id
            return None
    return before if before.error_code == code else replace(before, error_code=code)


def _lacks_leader(topic: TopicMetadata) -> bool:
    return any(p.error_code or p.leader_id == NO_LEADER for p in topic.partitions.values())
