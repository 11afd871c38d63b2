"""PartitionStates: the assigned partitions and their states.

Owns one `TopicPartitionState` per assigned partition, the index of those that are not FETCHING,
the cluster metadata that positions were last compared with, what was read before the current
positions, and the set of changed partitions.
It has no lock of its own: every change happens under the lock of the `SubscriptionState` that owns
it. It knows nothing of subscriptions. Compiled, as that is; what a method calls in bytecode it
calls before its first change.

A position under another leader or leader epoch than in the metadata (KIP-320):

| both epochs known | state | next |
|---|---|---|
| yes | FETCHING, AWAIT_VALIDATION | AWAIT_VALIDATION under the new leader |
| yes | AWAIT_RESET | stays: it is about to be replaced |
| no | AWAIT_VALIDATION | FETCHING under the new leader: it cannot be validated |
| no | FETCHING, AWAIT_RESET | the new leader is noted, what is in flight stays valid |
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kfast.client.cluster import Cluster
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.read_offsets import ReadOffsets
from kfast.consumer.topic_partition_state import FetchState, TopicPartitionState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kfast.settings.offset_reset import OffsetResetStrategy
    from kfast.types import TopicPartition

MOST_REMEMBERED: Final = 10_000
"""Positions of partitions that are not assigned any more; the oldest are forgotten first."""


class PartitionStates:
    """The partitions of one assignment. Not locked."""

    __slots__ = (
        "_dormant",
        "_versions",
        "by_partition",
        "changed",
        "changes",
        "cluster",
        "read_offsets",
        "waiting",
    )

    def __init__(self) -> None:
        # In the order of assignment. Always the same dict; only this class changes it.
        self.by_partition: dict[TopicPartition, TopicPartitionState] = {}
        # Those that are not FETCHING, oldest first. Always the same dicts.
        self.waiting: dict[FetchState, dict[TopicPartition, None]] = {
            state: {} for state in FetchState if state is not FetchState.FETCHING
        }
        # Changed since the fetcher last took them, unassigned partitions included.
        self.changed: dict[TopicPartition, None] = {}
        # Grows with every assignment, seek, reset, pause and change of leader; not with advances.
        self.changes = 0
        self.cluster = Cluster()  # the metadata that positions were last compared with
        self.read_offsets = ReadOffsets()
        self._versions = 0
        self._dormant: dict[TopicPartition, tuple[bytes | None, FetchPosition, int]] = {}

    # --- which partitions -------------------------------------------------------------------------

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions; ones that stay keep their state."""
        assigned = dict.fromkeys(partitions)
        gone = [tp for tp in self.by_partition if tp not in assigned]
        # Looked up before anything changes: code in bytecode may raise.
        cluster = self.cluster
        added = [(tp, cluster.topic_id(tp.topic)) for tp in assigned if tp not in self.by_partition]
        for tp in gone:
            self.read_offsets.end(self.by_partition[tp])
        for tp in gone:
            del self.by_partition[tp]
            for waiting in self.waiting.values():
                waiting.pop(tp, None)
        for tp, topic_id in added:
            self._add(tp, topic_id)
        self.changed.update(dict.fromkeys(gone))
        self.changes += 1

    def remember_positions(self, staying: Collection[TopicPartition]) -> None:
        """Keep the positions of the partitions that are about to be unassigned.

        One that is assigned again with the same topic id continues there, and with what was polled
        before.
        """
        for tp in self.by_partition.keys() - staying:
            state = self.by_partition[tp]
            if state.position is not None and state.fetch_state in (
                FetchState.FETCHING,
                FetchState.AWAIT_VALIDATION,
            ):
                self._dormant[tp] = (state.topic_id, state.position, state.seek_version)
        while len(self._dormant) > MOST_REMEMBERED:  # deleted topics do not come back
            del self._dormant[next(iter(self._dormant))]

    def forget_positions(self) -> None:
        """Undo `remember_positions`."""
        self._dormant.clear()

    def _add(self, tp: TopicPartition, topic_id: bytes | None) -> TopicPartitionState:
        state = TopicPartitionState(tp, self._next_version())
        state.topic_id = topic_id
        self.by_partition[tp] = state
        self._index(state)
        known_id, position, seek_version = self._dormant.pop(tp, (None, None, 0))
        if position is not None and known_id == topic_id:
            self.enter(state, FetchState.FETCHING, position)
            state.seek_version = seek_version
        return state

    def is_remembered(self, tp: TopicPartition) -> bool:
        """Return whether a partition has a position to continue at."""
        return tp in self._dormant

    # --- states of partitions ---------------------------------------------------------------------

    def set_paused(self, states: Iterable[TopicPartitionState], *, is_paused: bool) -> None:
        """Pause or resume. Idempotent."""
        for state in states:
            if state.is_paused is not is_paused:
                state.is_paused = is_paused
                self.changed[state.topic_partition] = None
                self.changes += 1

    def set_fetch_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Fetch nothing from these offsets on; other partitions have no such end."""
        for tp, state in self.by_partition.items():
            if state.fetch_end != ends.get(tp):
                state.fetch_end = ends.get(tp)
                self.changed[tp] = None
                self.changes += 1

    def set_subscribed(self, is_excluded: Callable[[str], bool]) -> None:
        """Note which partitions are of topics that are no longer subscribed to. Idempotent."""
        for tp, state in self.by_partition.items():
            is_subscribed = not is_excluded(tp.topic)
            if state.is_subscribed is not is_subscribed:
                state.is_subscribed = is_subscribed
                self.changed[tp] = None
        self.changes += 1

    def set_pending_callback(
        self, partitions: Iterable[TopicPartition], *, is_pending: bool
    ) -> None:
        """Mark or clear; partitions that are not assigned are left out. Idempotent."""
        for tp in partitions:
            state = self.by_partition.get(tp)
            if state is not None and state.is_pending_callback is not is_pending:
                state.is_pending_callback = is_pending
                self.changed[tp] = None
                self.changes += 1

    def enter(self, state: TopicPartitionState, to: FetchState, position: FetchPosition) -> None:
        """Enter a state with a position; one without a leader gets the current leader."""
        self.read_offsets.end(state)
        if position.leader_id is None:
            leader_id, leader_epoch = self._leader(state.topic_partition)
            position = replace(position, leader_id=leader_id, leader_epoch=leader_epoch)
        state.transition(to)
        state.set_position(position, self._next_version())
        self._index(state)

    def await_reset(self, state: TopicPartitionState, strategy: OffsetResetStrategy) -> None:
        """Enter AWAIT_RESET: the position that the strategy leads to arrives later."""
        state.transition(FetchState.AWAIT_RESET)
        state.version = self._next_version()
        state.last_advance = 0
        state.reset_strategy = strategy
        state.out_of_range_offset = None
        state.clear_preferred_read_replica()
        self._index(state)

    def _index(self, state: TopicPartitionState) -> None:
        tp = state.topic_partition
        for fetch_state, waiting in self.waiting.items():
            if fetch_state is state.fetch_state:
                waiting[tp] = None
            else:
                waiting.pop(tp, None)
        self.changed[tp] = None
        self.changes += 1

    def _next_version(self) -> int:
        self._versions += 1
        return self._versions

    # --- the cluster ------------------------------------------------------------------------------

    def update_leaders(self, cluster: Cluster) -> list[tuple[TopicPartition, bytes, bytes]]:
        """Compare every position with new metadata, as the module's table says.

        A topic that was deleted and created again (another topic id) is read as a new one; its
        partitions are returned with the old and the new id. The preferred read replica is dropped
        with the leader that named it.
        """
        self.cluster = cluster
        recreated = []
        for state in list(self.by_partition.values()):
            current = self._with_topic_id(state)
            self._update_leader(current)
            if current is not state and state.topic_id and current.topic_id:
                recreated.append((state.topic_partition, state.topic_id, current.topic_id))
        return recreated

    def _with_topic_id(self, state: TopicPartitionState) -> TopicPartitionState:
        """Return the state, a new one if the topic id has changed."""
        tp = state.topic_partition
        topic_id = self.cluster.topic_id(tp.topic)
        if topic_id is None or topic_id == state.topic_id:
            return state
        if state.topic_id is not None:
            self.read_offsets.end(state)
            earlier, state = state, self._add(tp, topic_id)
            state.is_paused, state.is_subscribed = earlier.is_paused, earlier.is_subscribed
            state.is_pending_callback = earlier.is_pending_callback
        state.topic_id = topic_id
        return state

    def _update_leader(self, state: TopicPartitionState) -> None:
        position = state.position
        if position is None:
            return
        leader_id, leader_epoch = self._leader(state.topic_partition)
        if leader_id is None or (position.leader_id, position.leader_epoch) == (
            leader_id,
            leader_epoch,
        ):
            return
        state.clear_preferred_read_replica()
        self.changed[state.topic_partition] = None
        moved = replace(position, leader_id=leader_id, leader_epoch=leader_epoch)
        if position.offset_epoch is not None and leader_epoch is not None:
            if state.fetch_state in (FetchState.FETCHING, FetchState.AWAIT_VALIDATION):
                self.enter(state, FetchState.AWAIT_VALIDATION, moved)
        else:
            state.position = moved
            if state.fetch_state is FetchState.AWAIT_VALIDATION:
                self.enter(state, FetchState.FETCHING, moved)

    def _leader(self, tp: TopicPartition) -> tuple[int | None, int | None]:
        partition = self.cluster.partition(tp)
        if partition is None or partition.leader_id < 0:
            return None, None
        return partition.leader_id, self.cluster.leader_epoch_for(tp)

    def __repr__(self) -> str:
        waiting = ", ".join(
            f"{fetch_state.value}={len(partitions)}"
            for fetch_state, partitions in self.waiting.items()
            if partitions
        )
        return f"<PartitionStates {len(self.by_partition)}{waiting and ' '}{waiting}>"
