"""OffsetExchange: what OffsetCommit and OffsetFetch requests have in common.

Owns topic names or ids in the requests, the effect of error codes on coordinator and metadata, and
the back-off between attempts. It sends nothing. Sans-IO, network thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kfast._clock import ExponentialBackoff
from kfast.client.request import Channel
from kfast.consumer.commits.offset_commit import LAST_VERSION_BY_NAME, topic_ids
from kfast.consumer.error_actions import ErrorAction
from kfast.errors import error_info

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kfast.consumer.commits.group_identity import GroupIdentity
    from kfast.consumer.group.coordinator_access import CoordinatorAccess
    from kfast.consumer.manager_context import ManagerContext
    from kfast.protocol.api_keys import ApiKey
    from kfast.types import TopicPartition


class Addressing(NamedTuple):
    """How a request names its topics: by id if all are known and the version can."""

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
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def addressing(
        self,
        api_key: ApiKey,
        partitions: Iterable[TopicPartition],
        node_id: int,
        channel: Channel = Channel.COORDINATOR,
    ) -> Addressing:
        """Return how to name these partitions in a request that is sent now.

        Raises
        ------
        UnsupportedVersionError
            The coordinator does not offer the API in any version in reach.
        """
        ids = topic_ids({tp.topic for tp in partitions}, self._metadata.cluster)
        max_version = LAST_VERSION_BY_NAME if ids is None else None
        return Addressing(ids, self.access.version(node_id, api_key, max_version, channel))

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
