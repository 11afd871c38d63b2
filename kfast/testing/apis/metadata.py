"""ApiVersions (key 18) and Metadata (key 3).

ApiVersions in a version beyond the node's own is answered in version 0 with error 35; brokers from
2.4 on add the range they accept for ApiVersions itself (KIP-511). A software name or version that
does not match the allowed pattern is error 42.

Metadata describes the node's ``MetadataView``, which may be an old one. An unknown topic is error 3
(by id: 100), and is created only when the request allows it and the cluster is set to.
"""

from __future__ import annotations

import re
from typing import Final

from kfast.errors import ErrorCode
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kfast.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kfast.testing.answers import Answer, VersionedAnswer
from kfast.testing.context import RequestContext
from kfast.testing.releases import has_empty_version_refusal
from kfast.testing.topology import NO_LEADER, MetadataView, PartitionEntry, TopicEntry
from kfast.types import ZERO_UUID

FIRST_VERSION_WITH_SOFTWARE_NAME: Final = 3
FIRST_VERSION_BY_ID: Final = 12

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def handle_api_versions(context: RequestContext, request: ApiVersionsRequest | None) -> Answer:
    """Answer one request; None stands for one in a version the node does not read."""
    offered = context.cluster.api_versions(context.node_id)
    lowest, highest = offered[ApiKey.API_VERSIONS]
    is_refused = context.plan.top_level_error == ErrorCode.UNSUPPORTED_VERSION
    if request is None or is_refused or not lowest <= context.version <= highest:
        keys = [ApiVersion(ApiKey.API_VERSIONS, lowest, highest)]
        if has_empty_version_refusal(context.cluster.release):
            keys = []
        return VersionedAnswer(ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, keys), 0)
    if context.plan.top_level_error:
        return ApiVersionsResponse(context.plan.top_level_error)
    if context.version >= FIRST_VERSION_WITH_SOFTWARE_NAME and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    features = list(context.cluster.features.items())
    return ApiVersionsResponse(
        api_keys=[ApiVersion(key, *offered[key]) for key in sorted(offered)],
        supported_features=[SupportedFeatureKey(name, 1, level) for name, level in features],
        finalized_features_epoch=1 if features else -1,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in features],
    )


def handle_metadata(context: RequestContext, request: MetadataRequest) -> Answer:
    """Answer one request."""
    view = context.cluster.metadata_view(context.node_id)
    if request.topics is None:
        topics = [
            _existing_topic(context, topic)
            for topic in view.topics.values()
            if topic.name not in context.cluster.denied_topics
        ]
    else:
        topics = [_requested_topic(context, request, view, topic) for topic in request.topics]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in view.brokers
        ],
        cluster_id=context.cluster.cluster_id,
        controller_id=view.controller_id,
        topics=topics,
        error_code=context.plan.top_level_error,
    )


def _requested_topic(
    context: RequestContext,
    request: MetadataRequest,
    view: MetadataView,
    requested: MetadataRequestTopic,
) -> MetadataResponseTopic:
    if requested.topic_id != ZERO_UUID and context.version >= FIRST_VERSION_BY_ID:
        for topic in view.topics.values():
            if topic.topic_id == requested.topic_id:
                return _existing_topic(context, topic)
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, requested.topic_id)
    name = requested.name or ""
    if name in context.cluster.denied_topics:
        return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    if not _LEGAL_TOPIC.fullmatch(name) or name in {".", ".."}:
        return MetadataResponseTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    injected = context.plan.error_for(name)
    if injected:
        return MetadataResponseTopic(injected, name)
    if name in view.topics:
        return _existing_topic(context, view.topics[name])
    if context.cluster.has_auto_creation and request.allow_auto_topic_creation:
        context.cluster.create_topic(name)
        return MetadataResponseTopic(ErrorCode.LEADER_NOT_AVAILABLE, name)
    return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)


def _existing_topic(context: RequestContext, topic: TopicEntry) -> MetadataResponseTopic:
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
        error = error or ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error,
        partition.partition,
        partition.leader,
        partition.leader_epoch,
        list(partition.replicas),
        list(partition.isr),
        list(partition.offline_replicas),
    )
