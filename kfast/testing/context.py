"""RequestContext: one request, and the state of the node that answers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kfast.errors import ErrorCode
from kfast.testing.answers import Answer
from kfast.testing.cluster import FakeCluster
from kfast.testing.fault_table import ReplyPlan
from kfast.testing.request_log import LoggedRequest
from kfast.testing.topology import FakePartition


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Everything around one request."""

    cluster: FakeCluster
    request: LoggedRequest
    plan: ReplyPlan
    now_ms: int

    @property
    def node_id(self) -> int:
        return self.request.node_id

    @property
    def version(self) -> int:
        return self.request.version

    def group_error(self, group_id: str) -> int:
        """Return why the asked node does not serve a group, 0 if it does."""
        injected = self.plan.top_level_error
        return injected or self.cluster.groups.error_for(self.node_id, group_id)

    def find_partition(
        self,
        topic: str,
        partition: int,
        current_leader_epoch: int,
        *,
        allows_follower: bool = False,
    ) -> tuple[int, FakePartition | None]:
        """Look a partition up as the asked node sees it.

        Returns
        -------
        (error, partition)
            The partition is None when it does not exist; it is there with errors 6, 74 and 75.
        """
        injected = self.plan.error_for(topic, partition)
        entry = self.cluster.topics.get(topic)
        state = None if entry is None else entry.partitions.get(partition)
        if injected:
            return injected, state
        if topic in self.cluster.denied_topics:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
        if state is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        is_allowed = self.node_id == state.leader or (
            allows_follower and self.node_id in state.replicas
        )
        if not is_allowed:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, state
        if 0 <= current_leader_epoch < state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, state
        if current_leader_epoch > state.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH, state
        return 0, state


Handler = Callable[[RequestContext, Any], Answer]
"""Answers one decoded request of its API."""
