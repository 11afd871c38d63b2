"""PartitionStates: the assigned partitions, each with what it is doing.

Owns one `TopicPartitionState` per assigned partition, the index of those that wait for something,
the view of the cluster that positions were last compared with, and the collection of what changed.
It has no lock of its own: every change happens under the lock of the `SubscriptionState` that holds
it. It knows nothing of subscriptions, and decides nothing that a user or a broker has to say.

A position under another leader or leader epoch than the cluster has now (KIP-320):

| both epochs known | state | what becomes of it |
|---|---|---|
| yes | FETCHING, AWAIT_VALIDATION | AWAIT_VALIDATION under the new leader |
| yes | AWAIT_RESET | stays: it is about to be replaced |
| no | AWAIT_VALIDATION | FETCHING under the new leader: nothing can be asked |
| no | FETCHING, AWAIT_RESET | the new leader is noted, what is in flight stays good |
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from kfast.client.cluster import Cluster
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.topic_partition_state import FetchState, TopicPartitionState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kfast.settings.offset_reset import OffsetResetStrategy
    from kfast.types import TopicPartition

logger = logging.getLogger(__name__)


class PartitionStates:
    """The partitions of one assignment. Not locked.

    Attributes
    ----------
    by_partition : dict of TopicPartition to TopicPartitionState
        All of them, in the order of assignment. Always the same dict; only this class changes it.
    waiting : dict of FetchState to dict of TopicPartition to None
        Those that are not FETCHING, oldest first. Always the same dicts.
    changed : dict of TopicPartition to None
        What changed since somebody took it, unassigned partitions included.
    changes : int
        Goes up whenever a partition is sought, reset, paused, held, assigned, taken away or moves
        to another leader; not when its position moves on.
    cluster : Cluster
        The view that positions were last compared with.
    """

    __slots__ = (
        "_dormant",
        "_versions",
        "by_partition",
        "changed",
        "changes",
        "cluster",
        "waiting",
    )

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, TopicPartitionState] = {}
        self.waiting: dict[FetchState, dict[TopicPartition, None]] = {
            state: {} for state in FetchState if state is not FetchState.FETCHING
        }
        self.changed: dict[TopicPartition, None] = {}
        self.changes = 0
        self.cluster = Cluster()
        self._versions = 0
        self._dormant: dict[TopicPartition, tuple[bytes | None, FetchPosition]] = {}

    # --- which partitions -------------------------------------------------------------------------

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Have exactly these partitions; ones that stay keep everything they have."""
        wanted = dict.fromkeys(partitions)
        gone = [tp for tp in self.by_partition if tp not in wanted]
        for tp in gone:
            del self.by_partition[tp]
            for waiting in self.waiting.values():
                waiting.pop(tp, None)
        added = [tp for tp in wanted if tp not in self.by_partition]
        for tp in added:
            self._add(tp)
        self.changed.update(dict.fromkeys(gone))
        self.changes += 1

    def remember_positions(self, staying: Collection[TopicPartition]) -> None:
        """Keep the positions of the partitions that are about to go.

        One that comes back with the same topic id goes on where it was.
        """
        for tp in self.by_partition.keys() - staying:
            state = self.by_partition[tp]
            if state.position is not None and state.fetch_state in (
                FetchState.FETCHING,
                FetchState.AWAIT_VALIDATION,
            ):
                self._dormant[tp] = (state.topic_id, state.position)

    def forget_positions(self) -> None:
        """Undo `remember_positions`."""
        self._dormant.clear()

    def _add(self, tp: TopicPartition) -> TopicPartitionState:
        state = TopicPartitionState(tp, self._next_version())
        state.topic_id = self.cluster.topic_id(tp.topic)
        self.by_partition[tp] = state
        self._index(state)
        topic_id, position = self._dormant.pop(tp, (None, None))
        if position is not None and topic_id == state.topic_id:
            self.enter(state, FetchState.FETCHING, position)
        return state

    # --- what a partition is doing ----------------------------------------------------------------

    def set_paused(self, states: Iterable[TopicPartitionState], *, is_paused: bool) -> None:
        """Stop or go on, as the user says. Idempotent."""
        for state in states:
            if state.is_paused is not is_paused:
                state.is_paused = is_paused
                self.changed[state.topic_partition] = None
                self.changes += 1

    def set_held(self, partitions: Iterable[TopicPartition], *, is_held: bool) -> None:
        """Stop or go on, as the group says; ones not assigned are left out. Idempotent."""
        for tp in partitions:
            state = self.by_partition.get(tp)
            if state is not None and state.is_held is not is_held:
                state.is_held = is_held
                self.changed[tp] = None
                self.changes += 1

    def enter(self, state: TopicPartitionState, to: FetchState, position: FetchPosition) -> None:
        """Go to a state with a position; one that names no leader gets the leader of now."""
        if position.leader_id is None:
            leader_id, leader_epoch = self._leader(state.topic_partition)
            position = replace(position, leader_id=leader_id, leader_epoch=leader_epoch)
        state.transition(to)
        state.set_position(position, self._next_version())
        self._index(state)

    def await_reset(self, state: TopicPartitionState, strategy: OffsetResetStrategy) -> None:
        """Wait for the position that a policy leads to."""
        state.transition(FetchState.AWAIT_RESET)
        state.version = self._next_version()
        state.change_course()
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

    def update_leaders(self, cluster: Cluster) -> None:
        """Compare every position with a new view of the cluster, as the module's table says.

        A topic that was deleted and created again, which shows in its id, is read as a new one.
        The preferred read replica is dropped with the leader that named it.
        """
        self.cluster = cluster
        for state in list(self.by_partition.values()):
            self._update_leader(self._with_topic_id(state))

    def _with_topic_id(self, state: TopicPartitionState) -> TopicPartitionState:
        """Return the state to go on with: another one if the topic is another one now."""
        tp = state.topic_partition
        topic_id = self.cluster.topic_id(tp.topic)
        if topic_id is None or topic_id == state.topic_id:
            return state
        if state.topic_id is not None:
            logger.warning("Topic %s was created anew: reading %s afresh", tp.topic, tp)
            is_paused, is_held = state.is_paused, state.is_held
            state = self._add(tp)
            state.is_paused, state.is_held = is_paused, is_held
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
