"""SubscriptionState: subscription, assignment and the position of each assigned partition.

Owns the subscription, and the lock around the assigned partitions, which `PartitionStates` keeps.
It is one of the two objects that the application thread (subscribe, seek, pause, advance) and the
network thread (assignment, resets, validation, fetching) share; every method takes the one lock,
which may also be held across several calls (``with subscriptions.lock:``). It never blocks on
anything else, does no I/O, reads no clock and makes no callback. While holding the lock a thread
may go on to take the lock of `FetchBuffer`, never the other way round.

Compiled, so that no signal handler runs between two changes of one call: whatever raises, the state
is as before or as after.

Every change that makes buffered or in-flight data invalid gives the partition a new ``version``,
drawn from one counter, so that an old response can never be mistaken for a current one, even if the
same partition was unassigned and assigned again in between. Changes are collected for the fetcher
(`take_changes`), so that its work is proportional to what changed.
"""

from __future__ import annotations

import threading
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from kfast._base.logs import get_logger
from kfast.consumer.partition_states import PartitionStates
from kfast.consumer.subscription import Subscription, SubscriptionType
from kfast.consumer.topic_partition_state import FetchState
from kfast.errors import IllegalStateError
from kfast.types import format_uuid

if TYPE_CHECKING:
    import re
    from collections.abc import Collection, Iterable, Iterator, KeysView, Mapping, Sequence

    from kfast.client.cluster import Cluster
    from kfast.consumer.fetch_position import FetchPosition
    from kfast.consumer.read_offsets import OffsetOrigin
    from kfast.consumer.topic_partition_state import AdvancePosition, TopicPartitionState
    from kfast.settings.offset_reset import OffsetResetStrategy
    from kfast.types import SubscriptionPattern, TopicPartition

logger = get_logger(__name__)


class Delivery(Enum):
    """Whether fetched records may be handed out."""

    DELIVERABLE = "deliverable"
    PAUSED = "paused"  # by the user, or until a rebalance callback has ended
    STALE = "stale"  # never: the partition is not assigned, or has another version by now


class Fetched(Protocol):
    """Records fetched from one partition, and the partition's version at that time."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def version(self) -> int: ...


class SubscriptionState:
    """Subscription, assignment and positions of one consumer. Thread-safe.

    Lag is counted to the last stable offset with ``is_read_committed``, else to the high watermark.
    """

    def __init__(
        self, default_reset_strategy: OffsetResetStrategy, *, is_read_committed: bool = False
    ) -> None:
        self.lock = threading.RLock()
        self.default_reset_strategy = default_reset_strategy
        self._is_read_committed = is_read_committed
        self._subscription = Subscription()
        self._assignment_version = 0
        self.advances = 0  # how often `advance_positions` had records to hand out
        self.partition_states = PartitionStates()  # elsewhere only `changes` may be read
        # The same dicts under names of their own: every poll looks at them.
        self._partitions = self.partition_states.by_partition
        self._waiting = self.partition_states.waiting
        self._assigned: frozenset[TopicPartition] = frozenset()

    # --- the subscription -------------------------------------------------------------------------

    @property
    def subscription_type(self) -> SubscriptionType:
        """What the assignment follows from."""
        return self._subscription.type

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """The pattern subscribed to, if any."""
        return self._subscription.pattern

    @property
    def subscription_version(self) -> int:
        """Goes up by one with every `subscribe`, `assign_from_user` and `unsubscribe`."""
        return self._subscription.version

    @property
    def assignment_version(self) -> int:
        """Goes up by one whenever the set of assigned partitions may have changed."""
        return self._assignment_version

    @property
    def changes(self) -> int:
        """Goes up with every change of a partition, not when its position moves on."""
        return self.partition_states.changes

    @property
    def listener(self) -> object:
        """The rebalance listener of the subscription, if any."""
        return self._subscription.listener

    def subscribe(self, topics: Collection[str], listener: object = None) -> None:
        """Subscribe to topics, replacing the ones before.

        Nothing is delivered or fetched any more of assigned partitions that are left out.

        Raises
        ------
        IllegalStateError
            Partitions are assigned by hand, or a pattern is subscribed to.
        """
        self._choose(SubscriptionType.AUTO_TOPICS, topics, None, listener)

    def subscribe_pattern(self, pattern: re.Pattern[str], listener: object = None) -> None:
        """Subscribe to all topics whose name the pattern matches from its start; as `subscribe`.

        Raises
        ------
        IllegalStateError
            Partitions are assigned by hand, or topics are subscribed to by name.
        """
        self._choose(SubscriptionType.AUTO_PATTERN, (), pattern, listener)

    @property
    def broker_pattern(self) -> SubscriptionPattern | None:
        """The pattern subscribed to that the brokers match, if any (KIP-848)."""
        return self._subscription.broker_pattern

    def subscribe_broker_pattern(
        self, pattern: SubscriptionPattern, listener: object = None
    ) -> None:
        """Subscribe to the topics that the brokers match, with a KIP-848 group.

        Raises
        ------
        IllegalStateError
            Partitions are assigned by hand, or another kind of subscription is in force.
        """
        self._choose(SubscriptionType.BROKER_PATTERN, (), pattern, listener)

    def _choose(
        self,
        kind: SubscriptionType,
        topics: Collection[str],
        pattern: re.Pattern[str] | SubscriptionPattern | None,
        listener: object,
    ) -> None:
        with self.lock:
            self._subscription.choose(kind, topics, pattern, listener)
            self.partition_states.set_subscribed(self._subscription.excludes)

    def set_pattern_topics(self, topics: Collection[str]) -> None:
        """Store which topics the pattern matches now; they become `subscription`."""
        with self.lock:
            if self._subscription.type is SubscriptionType.AUTO_PATTERN:
                self._subscription.topics = frozenset(topics)

    def unsubscribe(self) -> None:
        """Drop subscription, assignment and positions."""
        with self.lock:
            self._subscription.clear()
            self.partition_states.forget_positions()
            self._replace_assignment(())

    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to: as given, or as matched by the pattern."""
        return self._subscription.topics

    def set_group_topics(self, topics: Collection[str]) -> None:
        """Store the topics of all members: the group leader needs their metadata."""
        with self.lock:
            self._subscription.group_topics = frozenset(topics)

    def metadata_topics(self) -> frozenset[str]:
        """Return the topics whose metadata is needed; a pattern needs those of all topics."""
        with self.lock:
            if self._subscription.type is SubscriptionType.USER_ASSIGNED:
                return frozenset(tp.topic for tp in self._partitions)
            return self._subscription.topics | self._subscription.group_topics

    @property
    def is_automatic(self) -> bool:
        """Whether the partitions follow from topics or a pattern."""
        return self._subscription.is_automatic

    def has_subscription(self) -> bool:
        """Return whether `subscribe` or `assign_from_user` was called since `unsubscribe`."""
        return self._subscription.type is not SubscriptionType.NONE

    # --- the assignment ---------------------------------------------------------------------------

    def assign_from_user(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions; ones that stay keep their position.

        Raises
        ------
        IllegalStateError
            There is a subscription.
        """
        with self.lock:
            self._subscription.choose(SubscriptionType.USER_ASSIGNED)
            self._replace_assignment(partitions)

    def assign_from_subscribed(
        self, partitions: Collection[TopicPartition], *, keeps_positions: bool = False
    ) -> None:
        """Read the partitions that the subscription leads to; ones that stay keep their position.

        ``partitions`` is the whole new assignment. With ``keeps_positions`` the position of a
        partition that is removed is restored if it is assigned again with the same topic id: a
        topic that one broker does not know for a moment is not read again from the start.

        Raises
        ------
        IllegalStateError
            There is no subscription to topics or to a pattern.
        """
        with self.lock:
            if not self._subscription.is_automatic:
                raise IllegalStateError(f"no topics are subscribed to: {self._subscription!r}")
            if keeps_positions:
                self.partition_states.remember_positions(set(partitions))
            self._replace_assignment(partitions)

    def assign_from_group(
        self,
        partitions: Collection[TopicPartition],
        pending_callback: Collection[TopicPartition] = (),
    ) -> None:
        """Read the partitions that the group assigned; ones that stay keep their state.

        ``partitions`` is the whole new assignment; new ones start without a position. Those of
        ``pending_callback`` wait for `clear_pending_callback`. All others are fetchable from now
        on: none may wait for a callback of a rebalance that is over.
        """
        with self.lock:
            if set(partitions) != self._partitions.keys():
                self._replace_assignment(partitions)
            self.partition_states.set_pending_callback(self._partitions, is_pending=False)
            self.partition_states.set_pending_callback(pending_callback, is_pending=True)

    def mark_pending_callback(self, partitions: Iterable[TopicPartition]) -> None:
        """Neither deliver nor fetch these until a rebalance callback has ended. Idempotent.

        Partitions that are not assigned are left out.
        """
        with self.lock:
            self.partition_states.set_pending_callback(partitions, is_pending=True)

    def clear_pending_callback(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `mark_pending_callback`. Idempotent."""
        with self.lock:
            self.partition_states.set_pending_callback(partitions, is_pending=False)

    def _replace_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        self.partition_states.replace(partitions)
        self._assigned = frozenset(self._partitions)
        self._assignment_version += 1

    def assigned_partitions(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions; it takes no lock."""
        return self._assigned

    def snapshot(self) -> list[TopicPartitionState]:
        """Return the states of the assigned partitions, without the lock: for reading only."""
        states = (self._partitions.get(tp) for tp in self._assigned)
        return [state for state in states if state is not None]

    def state(self, tp: TopicPartition) -> TopicPartitionState | None:
        """Return the state of a partition, None if it is not assigned. Hold `lock` to use it."""
        return self._partitions.get(tp)

    def states(self) -> Iterator[TopicPartitionState]:
        """Iterate over the states of all assigned partitions. Hold `lock` meanwhile."""
        return iter(self._partitions.values())

    def assigned(self, tp: TopicPartition) -> TopicPartitionState:
        """Return the state of an assigned partition. Hold `lock` to use it.

        Raises
        ------
        IllegalStateError
            The partition is not assigned.
        """
        state = self._partitions.get(tp)
        if state is None:
            raise IllegalStateError(
                f"{tp} is not assigned to this consumer",
                hint="assign() it, or subscribe() to its topic and poll() until it is assigned",
                topic=tp.topic,
                partition=tp.partition,
            )
        return state

    # --- seek, reset, pause -----------------------------------------------------------------------

    def seek(self, tp: TopicPartition, position: FetchPosition) -> None:
        """Set the position.

        A position with an ``offset_epoch`` is validated before it is fetched (KIP-320), one
        without is taken as it is.

        Raises
        ------
        IllegalStateError
            The partition is not assigned, or the offset is negative.
        """
        with self.lock:
            state = self.assigned(tp)
            if position.offset < 0:
                raise IllegalStateError(
                    f"seek to offset {position.offset} of {tp}",
                    hint="offsets start at 0; seek_to_beginning() and seek_to_end() find the ends",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=position.offset,
                )
            has_epoch = position.offset_epoch is not None
            to = FetchState.AWAIT_VALIDATION if has_epoch else FetchState.FETCHING
            self.partition_states.enter(state, to, position)
            state.note_seek()

    def request_offset_reset(
        self, partitions: Iterable[TopicPartition], strategy: OffsetResetStrategy | None = None
    ) -> None:
        """Have the position reset, by default as ``auto_offset_reset`` says; it arrives later.

        Raises
        ------
        IllegalStateError
            One of the partitions is not assigned; nothing was changed.
        """
        with self.lock:
            for state in [self.assigned(tp) for tp in partitions]:
                self.partition_states.await_reset(state, strategy or self.default_reset_strategy)
                state.note_seek()

    def offset_out_of_range(self, tp: TopicPartition, version: int, offset: int) -> None:
        """Note that the leader's log does not hold an offset: reset as ``auto_offset_reset`` says.

        Ignored when the partition has another version by now. With ``none`` the position stays
        as it is, in AWAIT_RESET, until the user seeks.
        """
        with self.lock:
            state = self._partitions.get(tp)
            if state is not None and state.version == version:
                self.partition_states.await_reset(state, self.default_reset_strategy)
                state.out_of_range_offset = offset

    def reset_initializing_positions(self) -> bool:
        """Request a reset of every partition without a position; return whether there was any."""
        initializing = self._waiting[FetchState.INITIALIZING]
        if not initializing:
            return False
        with self.lock:
            for tp in list(initializing):
                self.partition_states.await_reset(self._partitions[tp], self.default_reset_strategy)
        return True

    def complete_reset(self, tp: TopicPartition, version: int, position: FetchPosition) -> bool:
        """Set the position that a reset or a validation led to.

        False, without effect, when the partition was sought, reset or unassigned meanwhile.
        """
        with self.lock:
            state = self._partitions.get(tp)
            if state is None or state.version != version:
                return False
            self.partition_states.enter(state, FetchState.FETCHING, position)
            state.last_advance = 0
            return True

    def complete_validation(self, tp: TopicPartition, version: int) -> bool:
        """Fetch from the position as it is; False as for `complete_reset`."""
        with self.lock:
            state = self._partitions.get(tp)
            if (
                state is None
                or state.version != version
                or state.fetch_state is not FetchState.AWAIT_VALIDATION
                or state.position is None
            ):
                return False
            self.partition_states.enter(state, FetchState.FETCHING, state.position)
            return True

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Neither deliver nor fetch these partitions; what is buffered stays. Idempotent."""
        with self.lock:
            states = [self.assigned(tp) for tp in partitions]
            self.partition_states.set_paused(states, is_paused=True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`. Idempotent."""
        with self.lock:
            states = [self.assigned(tp) for tp in partitions]
            self.partition_states.set_paused(states, is_paused=False)

    def end_fetching_at(self, ends: Mapping[TopicPartition, int]) -> None:
        """Fetch nothing from these offsets on, in other partitions whatever comes.

        For readers of a range: what the last response has beyond its end is delivered too.
        """
        with self.lock:
            self.partition_states.set_fetch_ends(ends)

    def paused_partitions(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        with self.lock:
            return frozenset(tp for tp, state in self._partitions.items() if state.is_paused)

    # --- positions --------------------------------------------------------------------------------

    def position(self, tp: TopicPartition) -> FetchPosition | None:
        """Return the valid position of an assigned partition, None while there is none.

        Raises
        ------
        IllegalStateError
            The partition is not assigned.
        """
        with self.lock:
            return self.assigned(tp).valid_position

    def is_fetchable(self, tp: TopicPartition) -> bool:
        """Return whether a Fetch may request the partition."""
        with self.lock:
            state = self._partitions.get(tp)
            return state is not None and state.is_fetchable

    def is_current(self, tp: TopicPartition, version: int) -> bool:
        """Return whether the partition is assigned and still has this version."""
        with self.lock:
            state = self._partitions.get(tp)
            return state is not None and state.version == version

    def deliveries(self, fetched: Sequence[Fetched]) -> list[Delivery]:
        """Return per fetch whether its records may be handed out now."""
        deliveries = []
        with self.lock:
            for fetch in fetched:
                state = self._partitions.get(fetch.topic_partition)
                if state is None or state.version != fetch.version:
                    deliveries.append(Delivery.STALE)
                else:
                    deliveries.append(
                        Delivery.DELIVERABLE if state.is_deliverable else Delivery.PAUSED
                    )
        return deliveries

    def partitions_in(self, fetch_state: FetchState) -> list[TopicPartition]:
        """Return the partitions in one of the states that are not FETCHING, oldest first."""
        waiting = self._waiting[fetch_state]
        if not waiting:
            return []
        with self.lock:
            return list(waiting)

    def advance_positions(self, steps: Sequence[AdvancePosition]) -> bool:
        """Move the positions past records about to be handed out: all of them, or none.

        False: a partition has another version by now, is paused or has no valid position, and its
        records must not be handed out.
        """
        with self.lock:
            states = []
            for step in steps:
                state = self._partitions.get(step.topic_partition)
                if state is None or not state.prepare_advance(step):
                    return False
                states.append(state)
            self.advances += bool(steps)
            for state, step in zip(states, steps, strict=True):
                state.advance(step, self.advances)
            return True

    def consumed(self, *, is_last_included: bool = True) -> dict[TopicPartition, FetchPosition]:
        """Return the position to commit of each assigned partition.

        Without ``is_last_included``, those before the last `advance_positions`.
        """
        skipped = None if is_last_included else self.advances or None
        with self.lock:
            return {
                tp: position
                for tp, state in self._partitions.items()
                if (position := state.consumed(skipped)) is not None
            }

    def origins(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetOrigin]:
        """Return where offsets to commit were read; those that are not known to be are left out."""
        read = self.partition_states.read_offsets
        with self.lock:
            origins = {
                tp: read.origin(tp, offset, self._partitions.get(tp))
                for tp, offset in offsets.items()
            }
        return {tp: origin for tp, origin in origins.items() if origin is not None}

    def high_watermark(self, tp: TopicPartition) -> int | None:
        """Return the high watermark of the last response, None when unknown or not assigned."""
        with self.lock:
            state = self._partitions.get(tp)
            return None if state is None else state.high_watermark

    def current_lag(self, tp: TopicPartition) -> int | None:
        """Return how many offsets are left to read (KIP-695), None when unknown.

        Counted to the high watermark, or to the last stable offset under read_committed.

        Raises
        ------
        IllegalStateError
            The partition is not assigned.
        """
        with self.lock:
            return self.assigned(tp).lag(is_read_committed=self._is_read_committed)

    def lags(self) -> dict[TopicPartition, int | None]:
        """Return `current_lag` of each assigned partition, without the lock: for a probe."""
        return {
            state.topic_partition: state.lag(is_read_committed=self._is_read_committed)
            for state in self.snapshot()
        }

    # --- the network thread -----------------------------------------------------------------------

    def take_changes(self) -> KeysView[TopicPartition]:
        """Return the partitions changed since the last call, unassigned ones included."""
        with self.lock:
            states = self.partition_states
            changed, states.changed = states.changed, {}
            return changed.keys()

    def update_leaders(self, cluster: Cluster) -> None:
        """Compare every position with a new view of the cluster.

        A position with a known epoch whose leader or leader epoch changed must be validated
        (KIP-320). A topic that was deleted and created again, which shows in its id, is read as
        a new one. The preferred read replica is dropped with the leader that named it.
        It logs, so the lock must not be held.
        """
        if cluster is self.partition_states.cluster:
            return
        with self.lock:
            recreated = self.partition_states.update_leaders(cluster)
        for tp, earlier, now in recreated:  # without the lock, which a log handler may wait for
            logger.warning(
                "Topic %s was deleted and created again, its id was %s and is %s: "
                "%s starts without a position",
                tp.topic,
                format_uuid(earlier),
                format_uuid(now),
                tp,
            )

    def __repr__(self) -> str:
        return (
            f"<SubscriptionState {self._subscription!r} partitions={len(self._partitions)}"
            f" assignment_version={self._assignment_version}>"
        )
