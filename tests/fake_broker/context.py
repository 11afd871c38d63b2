"""What an API handler knows about the request it answers, and the kinds of answer it may give.

Owns values only. A handler is called once per request, under the cluster's lock, and returns a
response message, a ``VersionedAnswer`` when the response must be encoded in another version than
asked, or a ``DelayedAnswer`` when it has to wait (long-poll Fetch).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfast.protocol.message import Message
from tests.fake_broker.reply_plan import ReplyPlan
from tests.fake_broker.request_log import LoggedRequest
from tests.fake_broker.topology import FakePartition

if TYPE_CHECKING:
    from tests.fake_broker.cluster import FakeCluster

UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6
TOPIC_AUTHORIZATION_FAILED = 29
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75


@dataclass(frozen=True, slots=True)
class VersionedAnswer:
    """A response to encode in a version of its own."""

    message: Message
    version: int


@dataclass(frozen=True, slots=True)
class DelayedAnswer:
    """A response that may have to wait.

    Attributes
    ----------
    complete : callable
        Given whether the time is up, returns the response, or None to go on waiting. Called again
        whenever the cluster changed.
    deadline_ms : int
        When the time is up.
    due_ms : callable, optional
        Returns when to look again by time alone, None for never; default the deadline.
    """

    complete: Callable[[bool], Message | None]
    deadline_ms: int
    due_ms: Callable[[], int | None] | None = None

    def next_event_ms(self) -> int | None:
        """Return when something may happen by time alone."""
        return self.deadline_ms if self.due_ms is None else self.due_ms()


Answer = Message | VersionedAnswer | DelayedAnswer


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
        known = self.cluster.topics.get(topic)
        found = None if known is None else known.partitions.get(partition)
        if injected:
            return injected, found
        if topic in self.cluster.denied_topics:
            return TOPIC_AUTHORIZATION_FAILED, None
        if found is None:
            return UNKNOWN_TOPIC_OR_PARTITION, None
        is_allowed = self.node_id == found.leader or (
            allows_follower and self.node_id in found.replicas
        )
        if not is_allowed:
            return NOT_LEADER_OR_FOLLOWER, found
        if 0 <= current_leader_epoch < found.leader_epoch:
            return FENCED_LEADER_EPOCH, found
        if current_leader_epoch > found.leader_epoch:
            return UNKNOWN_LEADER_EPOCH, found
        return 0, found


Handler = Callable[[RequestContext, Any], Answer]
"""Answers one decoded request of its API."""
