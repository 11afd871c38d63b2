"""OffsetExchange: what OffsetCommit and OffsetFetch requests have in common.

Owns topic names or ids in the requests, which offsets are of a topic that is gone, the effect of
error codes on coordinator and metadata, and the back-off between attempts. It sends nothing.
Sans-IO, network thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from kfast._base.clock import ExponentialBackoff
from kfast._base.logs import get_logger
from kfast.client.request import Channel
from kfast.consumer.commits.offset_commit import LAST_VERSION_BY_NAME
from kfast.consumer.error_actions import ErrorAction
from kfast.errors import ErrorCode, error_info
from kfast.protocol.api_keys import ApiKey
from kfast.types import OffsetOfTopic, format_uuid, topic_id_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kfast.consumer.commits.group_identity import GroupIdentity
    from kfast.consumer.group.coordinator_access import CoordinatorAccess
    from kfast.consumer.manager_context import ManagerContext
    from kfast.types import OffsetAndMetadata, TopicPartition


logger = get_logger(__name__)


class Addressing(NamedTuple):
    """How an OffsetFetch names its topics: by id if all are known and the version can."""

    ids: Mapping[str, bytes] | None
    version: int


class OffsetExchange:
    """Access to the coordinator for offset requests, under the identity of the consumer."""

    def __init__(
        self,
        context: ManagerContext,
        access: CoordinatorAccess,
        identity: GroupIdentity,
    ) -> None:
        config = context.config
        self.access = access
        self.identity = identity
        self._metadata = context.metadata
        self._clock = context.clock
        self._outdated: dict[str, bytes] = {}  # reported, by topic
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def addressing(
        self,
        partitions: Iterable[TopicPartition],
        node_id: int,
        channel: Channel,
    ) -> Addressing:
        """Return how to name these partitions in an OffsetFetch that is sent now.

        Raises
        ------
        UnsupportedVersionError
            The coordinator does not offer the API in any version in reach.
        """
        cluster = self._metadata.cluster
        ids_by_topic = {topic: cluster.topic_id(topic) for topic in {tp.topic for tp in partitions}}
        topic_ids = {
            topic: topic_id for topic, topic_id in ids_by_topic.items() if topic_id is not None
        }
        ids = topic_ids if len(topic_ids) == len(ids_by_topic) else None
        version = self._version(ApiKey.OFFSET_FETCH, node_id, channel, has_ids=ids is not None)
        return Addressing(ids, version)

    def commit_version(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], node_id: int
    ) -> int:
        """Return the version of an OffsetCommit that is sent now.

        Raises
        ------
        UnsupportedVersionError
            The coordinator does not offer the API in any version in reach.
        """
        has_ids = all(topic_id_of(at) is not None for at in offsets.values())
        return self._version(ApiKey.OFFSET_COMMIT, node_id, Channel.COORDINATOR, has_ids=has_ids)

    def _version(self, api_key: ApiKey, node_id: int, channel: Channel, *, has_ids: bool) -> int:
        max_version = None if has_ids else LAST_VERSION_BY_NAME
        return self.access.version(node_id, api_key, max_version, channel)

    def with_topic_ids(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return offsets to commit; those that belong to no topic id yet belong to that of now."""
        cluster = self._metadata.cluster
        addressed = dict(offsets)
        for tp, at in offsets.items():
            topic_id = None if topic_id_of(at) is not None else cluster.topic_id(tp.topic)
            if topic_id is not None:
                addressed[tp] = OffsetOfTopic.of(at.offset, at.metadata, at.leader_epoch, topic_id)
        return addressed

    def outdated(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[TopicPartition]:
        """Return the partitions whose offsets are of a topic that is gone, and log it once."""
        cluster = self._metadata.cluster
        outdated = []
        for tp, at in offsets.items():
            topic_id, current = topic_id_of(at), cluster.topic_id(tp.topic)
            if topic_id is None or topic_id == current:
                continue
            if current is None and not self._is_gone(tp.topic):
                continue  # not looked up
            outdated.append(tp)
            is_known = self._outdated.get(tp.topic) == topic_id
            self._outdated[tp.topic] = topic_id
            logger.log(
                logging.DEBUG if is_known else logging.WARNING,
                'offset %d of %s is not committed for group "%s": it was read under the topic id '
                "%s, %s",
                at.offset,
                tp,
                self.identity.group_id,
                format_uuid(topic_id),
                "and there is no such topic now"
                if current is None
                else f"and the topic of that name now has the id {format_uuid(current)}",
            )
        return outdated

    def _is_gone(self, topic: str) -> bool:
        metadata = self._metadata
        if topic in metadata.cluster.topics:
            return False
        is_listed = metadata.topics is None and metadata.last_success_ms is not None
        return is_listed or metadata.topic_errors.get(topic) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    def apply(self, action: ErrorAction, code: int, node_id: int | None, now_ms: int) -> None:
        """Find the coordinator or refresh the metadata, if that is the action for an error code."""
        if action is ErrorAction.FIND_COORDINATOR:
            self.access.refused(node_id, error_info(code).name, now_ms)
        elif action is ErrorAction.REFRESH_METADATA:
            self._metadata.request_update()

    def backoff_ms(self, attempts: int) -> int:
        """Return the back-off after so many attempts."""
        return self._backoff.backoff_ms(attempts, self._clock)

    def __repr__(self) -> str:
        return f"<OffsetExchange {self.identity.group_id}>"
