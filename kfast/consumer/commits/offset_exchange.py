"""OffsetExchange: what commits and look-ups of committed offsets do alike.

Owns how topics are addressed in OffsetCommit and OffsetFetch, what an error code says about
coordinator and metadata, and the pauses between tries. It sends nothing and knows no commit and no
look-up. Sans-IO, network thread.
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
    """The side of a coordinator that stores offsets."""

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

    def note(self, action: ErrorAction, code: int, node_id: int | None, now_ms: int) -> None:
        """Pass on what an error code of an answer says about coordinator or metadata."""
        if action is ErrorAction.FIND_COORDINATOR:
            self.access.refused(node_id, error_info(code).name, now_ms)
        elif action is ErrorAction.REFRESH_METADATA:
            self._metadata.request_update()

    def pause_ms(self, attempts: int) -> int:
        """Return how long to wait after so many tries."""
        return self._backoff.backoff_ms(attempts, self._clock)

    def __repr__(self) -> str:
        return f"<OffsetExchange {self.identity.group_id}>"
