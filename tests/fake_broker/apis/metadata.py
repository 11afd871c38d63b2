"""Metadata (key 3): brokers, topics and leaders as the asked node sees them.

Answers from the node's ``MetadataView``, which may be an old one. An unknown topic is error 3 (by
id: 100), and is created only when the request allows it and the cluster is set to.
"""

from __future__ import annotations

import re
from typing import Final

from kfast.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kfast.types import ZERO_UUID
from tests.fake_broker.context import (
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    Answer,
    RequestContext,
)
from tests.fake_broker.topology import NO_LEADER, MetadataView, PartitionEntry, TopicEntry

LEADER_NOT_AVAILABLE: Final = 5
INVALID_TOPIC_EXCEPTION: Final = 17
UNKNOWN_TOPIC_ID: Final = 100
FIRST_VERSION_BY_ID: Final = 12

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def handle_metadata(context: RequestContext, request: MetadataRequest) -> Answer:
    """Answer one request."""
    view = context.cluster.metadata_view(context.node_id)
    if request.topics is None:
        topics = [
            _existing(context, topic)
            for topic in view.topics.values()
            if topic.name not in context.cluster.denied_topics
        ]
    else:
        topics = [_asked(context, request, view, wanted) for wanted in request.topics]
    return MetadataResponse(
        throttle_time_ms=context.plan.throttle_time_ms,
        brokers=[
            MetadataResponseBroker(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in view.brokers
        ],
        cluster_id=context.cluster.cluster_id,
        controller_id=view.controller_id,
        topics=topics,
        error_code=context.plan.top_level_error,
    )


def _asked(
    context: RequestContext,
    request: MetadataRequest,
    view: MetadataView,
    wanted: MetadataRequestTopic,
) -> MetadataResponseTopic:
    if wanted.topic_id != ZERO_UUID and context.version >= FIRST_VERSION_BY_ID:
        for topic in view.topics.values():
            if topic.topic_id == wanted.topic_id:
                return _existing(context, topic)
        return MetadataResponseTopic(UNKNOWN_TOPIC_ID, None, wanted.topic_id)
    name = wanted.name or ""
    if name in context.cluster.denied_topics:
        return MetadataResponseTopic(TOPIC_AUTHORIZATION_FAILED, name)
    if not _LEGAL_NAME.fullmatch(name) or name in {".", ".."}:
        return MetadataResponseTopic(INVALID_TOPIC_EXCEPTION, name)
    injected = context.plan.error_for(name)
    if injected:
        return MetadataResponseTopic(injected, name)
    known = view.topics.get(name)
    if known is not None:
        return _existing(context, known)
    if context.cluster.has_auto_creation and request.allow_auto_topic_creation:
        context.cluster.create_topic(name)
        return MetadataResponseTopic(LEADER_NOT_AVAILABLE, name)
    return MetadataResponseTopic(UNKNOWN_TOPIC_OR_PARTITION, name)


def _existing(context: RequestContext, topic: TopicEntry) -> MetadataResponseTopic:
    injected = context.plan.error_for(topic.name)
    if injected:
        return MetadataResponseTopic(injected, topic.name, topic.topic_id)
    return MetadataResponseTopic(
        0,
        topic.name,
        topic.topic_id,
        topic.is_internal,
        [_partition(context, topic.name, partition) for partition in topic.partitions],
    )


def _partition(
    context: RequestContext, topic: str, partition: PartitionEntry
) -> MetadataResponsePartition:
    error = context.plan.error_for(topic, partition.partition)
    if partition.leader == NO_LEADER:
        error = error or LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error,
        partition.partition,
        partition.leader,
        partition.leader_epoch,
        list(partition.replicas),
        list(partition.isr),
        list(partition.offline_replicas),
    )
