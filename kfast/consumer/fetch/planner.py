"""FetchPlanner: which partitions are fetched from which broker, within the byte budget.

Owns the plan: per broker a `NodeFetches` with the partitions to request. It is brought up to date
from what changed (positions, assignment, pauses, metadata, backoffs that ended), never by going
through all partitions, so that idle ones cost nothing. Network thread only; sends nothing.

A partition is in the plan of at most one broker, and in at most one in-flight request: when it
moves while the old broker's response is pending, it waits for that, unless the broker is overdue;
then that part of the response is dropped.

**Byte budget.** A request is sent when its expected response fits beside what is buffered. When it
does not, the partitions served longest ago are requested and the others deferred; when too little
fits, or a partition already has several fetches buffered, the broker gets no request until the
application has taken records. That is for the whole broker, because a request of idle partitions
only would block it for ``fetch_max_wait_ms``.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kfast._base.clock import ExponentialBackoff
from kfast._base.logs import get_logger
from kfast.client.cluster import Cluster
from kfast.client.request_manager import NEVER_MS
from kfast.consumer.fetch.node_fetches import NodeFetches
from kfast.consumer.fetch.session import FetchTarget
from kfast.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfast.consumer.fetch.buffer import FetchBuffer
    from kfast.consumer.fetch.request import FetchSettings
    from kfast.consumer.fetch.session import LogOffsets
    from kfast.consumer.manager_context import ManagerContext
    from kfast.consumer.topic_partition_state import TopicPartitionState

logger = get_logger(__name__)

PREFETCH_DEPTH: Final = 4
"""Full responses a partition may have buffered before its broker gets no request."""

MIN_SUBSET: Final = 4
"""Fewest active partitions worth a request while others are deferred."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Back-off of a partition; void when its version or leader has changed."""

    version: int
    leader: tuple[int | None, int | None]
    attempts: int
    retry_ms: int


def note_log_offsets(state: TopicPartitionState, offsets: LogOffsets) -> None:
    """Note what a broker has said of a log; negative values, as in error responses, are unknown."""
    if (high_watermark := offsets.high_watermark) >= 0:
        state.high_watermark = high_watermark
    if (last_stable_offset := offsets.last_stable_offset) >= 0:
        state.last_stable_offset = last_stable_offset
    if (log_start_offset := offsets.log_start_offset) >= 0:
        state.log_start_offset = log_start_offset


class FetchPlanner:
    """Plans the fetches of one consumer."""

    def __init__(
        self,
        context: ManagerContext,
        settings: FetchSettings,
        fetch_buffer: FetchBuffer,
    ) -> None:
        config = context.config
        # The brokers with partitions, the one whose last request is oldest first.
        self.nodes: dict[int, NodeFetches] = {}
        # Of partitions whose last response had an error; one without ends it.
        self.backoffs: dict[TopicPartition, Backoff] = {}
        self._settings = settings
        self._uses_sessions = config.enable_incremental_fetch_sessions
        self._subscriptions = context.subscriptions
        self._metadata = context.metadata
        self._buffer = fetch_buffer
        self._clock = context.clock
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._cluster = Cluster()
        self._dirty: dict[TopicPartition, None] = {}  # in order: it is the order of requests
        self._draining: set[TopicPartition] = set()
        self._planned: dict[TopicPartition, NodeFetches] = {}
        self._timers: list[tuple[int, TopicPartition]] = []

    # --- the plan ---------------------------------------------------------------------------------

    def touch(self, partitions: Iterable[TopicPartition]) -> None:
        """Have the next `update` plan these partitions again."""
        self._dirty.update(dict.fromkeys(partitions))

    def update(self, now_ms: int) -> None:
        """Update the plan with everything that changed."""
        cluster = self._metadata.cluster
        if cluster is not self._cluster:
            self._cluster = cluster
            self._subscriptions.update_leaders(cluster)
            with self._subscriptions.lock:
                self.touch(state.topic_partition for state in self._subscriptions.states())
            self._forget_empty_nodes()
        changed = self._subscriptions.take_changes()
        if changed:
            self._drop_stale(changed)
            self.touch(changed)
        while self._timers and self._timers[0][0] <= now_ms:
            self.touch((heapq.heappop(self._timers)[1],))
        drained = [tp for tp in self._draining if not self._buffer.has_data(tp)]
        self._draining.difference_update(drained)
        self.touch(drained)
        dirty, self._dirty = self._dirty, {}
        if dirty:
            with self._subscriptions.lock:
                for tp in dirty:
                    self._place(tp, now_ms)

    def next_timer_ms(self, now_ms: int) -> int:
        """Return the ms until the next back-off or preferred replica expires."""
        return max(0, self._timers[0][0] - now_ms) if self._timers else NEVER_MS

    def _drop_stale(self, changed: Iterable[TopicPartition]) -> None:
        versions: dict[TopicPartition, int | None] = {}
        with self._subscriptions.lock:
            for tp in changed:
                state = self._subscriptions.state(tp)
                versions[tp] = None if state is None else state.version
                if state is None:
                    self.backoffs.pop(tp, None)
                    self._draining.discard(tp)
        self._buffer.discard_stale(versions)

    def _forget_empty_nodes(self) -> None:
        for node_id, node in list(self.nodes.items()):
            if (
                node_id not in self._cluster.brokers
                and node.in_flight is None
                and not node.has_partitions
            ):
                del self.nodes[node_id]

    def _place(self, tp: TopicPartition, now_ms: int) -> None:
        state = self._subscriptions.state(tp)
        node = None
        if state is not None and self._is_due(state, now_ms):
            node = self._node_for(state, now_ms)
        current = self._planned.get(tp)
        if current is not None and current is not node:
            current.drop(tp)
            if current.is_fetching(tp):
                if not self._may_leave(current, tp, node, now_ms):
                    return
            elif node is None:
                del self._planned[tp]
        if node is not None and state is not None:
            self._planned[tp] = node
            epoch = self._cluster.leader_epoch_for(tp)
            topic_id = self._cluster.topic_id(tp.topic) or ZERO_UUID
            if state.high_watermark is None:  # assigned anew: brokers do not repeat it (KIP-227)
                offsets = node.session.log_offsets(tp, topic_id)
                if offsets is not None:
                    note_log_offsets(state, offsets)
            node.add(
                tp,
                FetchTarget(
                    topic_id,
                    state.fetch_offset,
                    -1 if epoch is None else epoch,
                    state.fetch_bytes(self._settings.partition_max_bytes),
                    state.version,
                ),
            )

    def _may_leave(
        self, current: NodeFetches, tp: TopicPartition, node: NodeFetches | None, now_ms: int
    ) -> bool:
        """Return whether a partition that is in flight at its current broker may move now."""
        if node is None or current.in_flight is None:
            return False
        if now_ms < current.in_flight.overdue_ms:
            current.leaving.add(tp)
            heapq.heappush(self._timers, (current.in_flight.overdue_ms, tp))
            return False
        current.in_flight.abandoned.add(tp)
        return True

    def _is_due(self, state: TopicPartitionState, now_ms: int) -> bool:
        tp = state.topic_partition
        if state.is_draining:
            if self._buffer.has_data(tp):
                self._draining.add(tp)
                return False
            state.is_draining = False
        if not state.is_fetchable or self._buffer.has_failed(tp):
            return False
        backoff = self.backoffs.get(tp)
        return (
            backoff is None
            or backoff.retry_ms <= now_ms
            or backoff.version != state.version
            or backoff.leader != self._leader(tp)
        )

    def _leader(self, tp: TopicPartition) -> tuple[int | None, int | None]:
        leader = self._cluster.leader_for(tp)
        return None if leader is None else leader.node_id, self._cluster.leader_epoch_for(tp)

    def _node_for(self, state: TopicPartitionState, now_ms: int) -> NodeFetches | None:
        tp = state.topic_partition
        node_id = state.preferred_read_replica
        if node_id is not None and (
            now_ms >= state.preferred_until_ms
            or node_id not in self._cluster.brokers
            or self._cluster.is_offline(tp, node_id)
        ):
            state.clear_preferred_read_replica()
            node_id = None
        if node_id is None:
            leader = self._cluster.leader_for(tp)
            if leader is None:  # metadata spaces such requests out itself
                self._metadata.request_update()
                return None
            node_id = leader.node_id
        node = self.nodes.get(node_id)
        if node is None:
            node = self.nodes[node_id] = NodeFetches(node_id, uses_sessions=self._uses_sessions)
        return node

    # --- responses --------------------------------------------------------------------------------

    def back_off(self, tp: TopicPartition, version: int, now_ms: int) -> None:
        """Retry a partition after an exponential back-off."""
        before = self.backoffs.get(tp)
        attempts = before.attempts + 1 if before and before.version == version else 0
        retry_ms = now_ms + self._backoff.backoff_ms(attempts, self._clock)
        self.backoffs[tp] = Backoff(version, self._leader(tp), attempts, retry_ms)
        heapq.heappush(self._timers, (retry_ms, tp))
        self.touch((tp,))

    def prefer(self, state: TopicPartitionState, node_id: int, until_ms: int) -> None:
        """Fetch a partition from a follower until then (KIP-392). Hold the subscription lock."""
        state.preferred_read_replica = node_id
        state.preferred_until_ms = until_ms
        heapq.heappush(self._timers, (until_ms, state.topic_partition))
        self.touch((state.topic_partition,))

    def node_failed(self, node: NodeFetches, now_ms: int, *, may_retry_at_once: bool) -> None:
        """Note a request without a usable response: retry after an exponential back-off.

        After the first failure at once, if ``may_retry_at_once``.
        """
        if node.failures or not may_retry_at_once:
            node.retry_ms = now_ms + self._backoff.backoff_ms(node.failures, self._clock)
        node.failures += 1

    def leave_follower(self, node: NodeFetches) -> None:
        """Fetch every partition that prefers this broker from its leader again."""
        with self._subscriptions.lock:
            for state in self._subscriptions.states():
                if state.preferred_read_replica == node.node_id:
                    state.clear_preferred_read_replica()
                    self.touch((state.topic_partition,))

    def request_ended(self, node: NodeFetches) -> None:
        """Note that the in-flight request of a broker has ended."""
        node.in_flight = None
        self.touch(node.leaving)
        node.leaving.clear()

    # --- byte budget ------------------------------------------------------------------------------

    def select(self, node: NodeFetches) -> int | None:
        """Choose the partitions of the next request; return the bytes expected, None: no room."""
        node.restore_deferred()
        if not node.active:
            return 0
        needs_data = self._buffer.memory.needs_data
        limit = PREFETCH_DEPTH * self._settings.partition_max_bytes
        if not needs_data and self._buffer.has_backlog(node.active, limit):
            return None
        room = self._room(node)
        expected = 0
        chosen = 0
        for nbytes in node.active.values():
            if expected + nbytes > room and (chosen or not needs_data):
                break
            chosen += 1
            expected += nbytes
        is_all = chosen == len(node.active) or room >= self._settings.max_bytes
        if is_all:
            return min(sum(node.active.values()), self._settings.max_bytes)
        if chosen < min(MIN_SUBSET, len(node.active)) and not needs_data:
            return None
        for tp in list(node.active)[chosen:]:
            node.defer(tp)
        return min(expected, self._settings.max_bytes)

    def _room(self, node: NodeFetches) -> int:
        """Return the bytes expected of a broker at most: what others leave, or a fair share."""
        room = self._buffer.memory.room()
        busy = [other for other in self.nodes.values() if other.active or other is node]
        promised = sum(
            other.in_flight.expected.nbytes
            for other in self.nodes.values()
            if other.in_flight is not None
        )
        return max(room - promised, room // len(busy))

    def __repr__(self) -> str:
        return (
            f"<FetchPlanner nodes={len(self.nodes)} partitions={len(self._planned)}"
            f" backing_off={len(self.backoffs)}>"
        )
