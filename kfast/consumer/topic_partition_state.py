"""TopicPartitionState: fetch state, position and offsets of one assigned partition.

Owns the state machine of a position and the offsets of the last Fetch response. It has no lock of
its own: every access happens under the lock of the `SubscriptionState` that owns it.

| state | may be fetched | leaves on |
|---|---|---|
| INITIALIZING | no | user seek; committed offset found; reset by policy |
| AWAIT_RESET | no | ListOffsets response; user seek |
| AWAIT_VALIDATION | no | OffsetForLeaderEpoch response; no way to validate; user seek; reset |
| FETCHING | yes | seek, reset, change of leader or leader epoch |

Two offsets: ``position`` is the next offset to hand out; ``fetch_offset`` is ahead of it, at the
end of what is buffered, and is what the next Fetch requests. ``version`` changes whenever
what is buffered or in flight stops being valid (assignment, seek, reset, validation): a result
that carries another version is dropped without effect. ``seek_version`` is the version of the last
assignment or seek of the application: what was polled before stays valid when the position is
validated, and so does what is before the position when the log has lost it and it is reset.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Final

from kfast.consumer.fetch_position import FetchPosition
from kfast.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.settings.offset_reset import OffsetResetStrategy
    from kfast.types import TopicPartition


class FetchState(Enum):
    """State of a partition's position; see the module's table."""

    __hash__ = object.__hash__  # members are singletons; Enum's own hash is Python code

    INITIALIZING = "initializing"
    AWAIT_RESET = "await_reset"
    AWAIT_VALIDATION = "await_validation"
    FETCHING = "fetching"


VALID_TRANSITIONS: Final[Mapping[FetchState, frozenset[FetchState]]] = {
    FetchState.INITIALIZING: frozenset(
        {FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION, FetchState.FETCHING}
    ),
    FetchState.AWAIT_RESET: frozenset(
        {FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION, FetchState.FETCHING}
    ),
    FetchState.AWAIT_VALIDATION: frozenset(
        {FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION, FetchState.FETCHING}
    ),
    FetchState.FETCHING: frozenset(
        {FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION, FetchState.FETCHING}
    ),
}
"""Nothing returns to INITIALIZING: a partition that starts afresh gets a new state object."""


class AdvancePosition:
    """Move a partition's position past records about to be handed out.

    ``version`` is the one that the records were fetched under; ``leader_epoch`` that of the last
    batch handed out, None to keep the position's. The others are of the partition, set when its
    position is about to advance.
    """

    __slots__ = (
        "epoch_starts",
        "leader_epoch",
        "next_offset",
        "position",
        "previous_epoch",
        "seek_version",
        "topic_partition",
        "version",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        version: int,
        next_offset: int,
        leader_epoch: int | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.version = version
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self.position: FetchPosition | None = None  # after the records
        self.previous_epoch: int | None = None  # leader epoch of the record before them
        self.epoch_starts: tuple[tuple[int, int | None], ...] = ()  # of the partition, after them
        self.seek_version = -1


UNKNOWN_BYTES_PER_OFFSET: Final = 32.0
"""Of a partition until records of it have come: few, since the next Fetch asks for the rest."""

FETCH_END_SLACK: Final = 128 << 10
"""Bytes that a Fetch asks for beyond what is left: records differ, and batches come whole only."""

MOST_EPOCHS: Final = 31
"""How many earlier leader epochs of what was read are remembered."""


class TopicPartitionState:
    """One partition of the assignment; ``version`` is unique in the consumer's life."""

    __slots__ = (
        "bytes_per_offset",
        "epoch_starts",
        "fetch_end",
        "fetch_offset",
        "fetch_state",
        "high_watermark",
        "is_draining",
        "is_paused",
        "is_pending_callback",
        "is_stalled",
        "is_subscribed",
        "last_advance",
        "last_stable_offset",
        "log_start_offset",
        "out_of_range_offset",
        "position",
        "preferred_read_replica",
        "preferred_until_ms",
        "previous_position",
        "reset_strategy",
        "seek_version",
        "topic_id",
        "topic_partition",
        "version",
    )

    def __init__(self, topic_partition: TopicPartition, version: int) -> None:
        self.topic_partition = topic_partition
        self.version = version
        self.seek_version = version
        self.fetch_state = FetchState.INITIALIZING
        self.position: FetchPosition | None = None  # the next offset to hand out
        self.previous_position: FetchPosition | None = None  # before the last advance
        # The offsets behind which the records have another leader epoch, with it: what was read
        # since the position was set, the latest last. See `ReadOffsets`.
        self.epoch_starts: tuple[tuple[int, int | None], ...] = ()
        self.last_advance = 0  # number of that advance among all of the consumer; 0: none
        self.fetch_offset = -1  # next offset to fetch; -1 while there is no position
        self.fetch_end: int | None = None  # nothing is fetched from there on
        self.bytes_per_offset = UNKNOWN_BYTES_PER_OFFSET  # in the last response with records
        self.reset_strategy: OffsetResetStrategy | None = None  # set in AWAIT_RESET
        # In AWAIT_RESET: the offset that the log does not hold, if that is the reason.
        self.out_of_range_offset: int | None = None
        self.is_paused = False  # by the user
        # About to be revoked, or assigned: until the rebalance callback has ended, neither
        # delivered nor fetched.
        self.is_pending_callback = False
        # Of a topic that is still subscribed to: else it is about to be revoked, and neither
        # delivered nor fetched.
        self.is_subscribed = True
        # Not fetched until the user seeks: the data at ``fetch_offset`` cannot be read.
        self.is_stalled = False
        # Not fetched until everything buffered was handed out: ``fetch_offset`` cannot be served,
        # and what to do about it may only happen once the position is there.
        self.is_draining = False
        # Of the last response that had them.
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        # Follower to fetch from (KIP-392), until ``preferred_until_ms``.
        self.preferred_read_replica: int | None = None
        self.preferred_until_ms = 0
        self.topic_id: bytes | None = None  # of the topic that the position belongs to (KIP-516)

    @property
    def is_withheld(self) -> bool:
        """Whether nothing may be handed out, fetched or not: paused, or about to change hands."""
        return self.is_paused or self.is_pending_callback or not self.is_subscribed

    @property
    def is_deliverable(self) -> bool:
        """Whether buffered records of the current version may be handed out."""
        return self.fetch_state is FetchState.FETCHING and not self.is_withheld

    @property
    def is_fetchable(self) -> bool:
        """Whether a Fetch may request the partition."""
        has_ended = self.fetch_end is not None and self.fetch_offset >= self.fetch_end
        return self.is_deliverable and not (self.is_stalled or self.is_draining or has_ended)

    def fetch_bytes(self, most: int) -> int:
        """Return how many bytes a Fetch asks for: no more than there probably are up to the end."""
        if self.fetch_end is None or self.bytes_per_offset == inf:
            return most
        left_bytes = (self.fetch_end - self.fetch_offset) * self.bytes_per_offset
        return min(most, int(left_bytes) + FETCH_END_SLACK)

    def note_fetched(self, next_offset: int, nbytes: int) -> None:
        """Continue to fetch there; so many bytes came before."""
        if self.bytes_per_offset != inf:
            self.bytes_per_offset = nbytes / (next_offset - self.fetch_offset)
        self.fetch_offset = next_offset

    def fetch_everything(self) -> None:
        """Note that `fetch_bytes` were too few for a batch; they are not any more."""
        self.bytes_per_offset = inf

    @property
    def valid_position(self) -> FetchPosition | None:
        """The position, None while one is looked for or validated."""
        fetch_state, strategy = self.fetch_state, self.reset_strategy
        is_valid = fetch_state is FetchState.FETCHING or (
            fetch_state is FetchState.AWAIT_RESET
            and strategy is not None
            and not strategy.has_offset
        )
        return self.position if is_valid else None

    def lag(self, *, is_read_committed: bool) -> int | None:
        """Return the offsets left to read, None when unknown. Without the lock it is a snapshot."""
        position, end = self.valid_position, self.end_offset(is_read_committed=is_read_committed)
        return None if position is None or end is None else max(0, end - position.offset)

    def consumed(self, skipped_advance: int | None = None) -> FetchPosition | None:
        """Return the position to commit, None where there is none; before ``skipped_advance``.

        A position that awaits validation may be committed: the consumer that starts from it
        validates it by its epoch.
        """
        if self.fetch_state not in (FetchState.FETCHING, FetchState.AWAIT_VALIDATION):
            return None
        return self.previous_position if self.last_advance == skipped_advance else self.position

    def prepare_advance(self, step: AdvancePosition) -> bool:
        """Complete ``step`` by the position it leads to; False if it is not allowed."""
        position = self.position
        if self.version != step.version or not self.is_deliverable or position is None:
            return False
        epoch = position.offset_epoch if step.leader_epoch is None else step.leader_epoch
        step.position = FetchPosition(
            step.next_offset, epoch, position.leader_id, position.leader_epoch
        )
        step.epoch_starts = self.epoch_starts
        if epoch != position.offset_epoch:
            step.epoch_starts = (*self.epoch_starts[-MOST_EPOCHS:], (position.offset, epoch))
        step.previous_epoch = position.offset_epoch
        step.seek_version = self.seek_version
        return True

    def advance(self, step: AdvancePosition, number: int) -> None:
        """Apply a prepared ``step``, one of the consumer's advance ``number``."""
        self.previous_position = self.position
        self.last_advance = number
        self.position = step.position
        self.epoch_starts = step.epoch_starts

    def note_seek(self) -> None:
        """Note that the application has moved the position, or will have."""
        self.seek_version = self.version
        self.last_advance = 0

    def transition(self, to: FetchState) -> None:
        """Change the state.

        Raises
        ------
        IllegalStateError
            `VALID_TRANSITIONS` does not have this one.
        """
        if to not in VALID_TRANSITIONS[self.fetch_state]:
            raise IllegalStateError(
                f"{self.topic_partition}: no transition from {self.fetch_state.name} to {to.name}"
            )
        self.fetch_state = to

    def set_position(self, position: FetchPosition, version: int) -> None:
        """Replace the position; what is buffered or in flight is void."""
        self.position = position
        self.epoch_starts = ((max(0, position.offset - 1), position.offset_epoch),)
        self.fetch_offset = position.offset
        self.version = version
        self.reset_strategy = None
        self.out_of_range_offset = None
        self.is_stalled = False
        self.is_draining = False

    def clear_preferred_read_replica(self) -> None:
        """Fetch from the leader again."""
        self.preferred_read_replica = None
        self.preferred_until_ms = 0

    def end_offset(self, *, is_read_committed: bool) -> int | None:
        """Return the last stable offset or the high watermark."""
        return self.last_stable_offset if is_read_committed else self.high_watermark

    def __repr__(self) -> str:
        flags = "".join(
            f" {name}"
            for name, is_set in (
                ("paused", self.is_paused),
                ("pending_callback", self.is_pending_callback),
                ("unsubscribed", not self.is_subscribed),
                ("stalled", self.is_stalled),
                ("draining", self.is_draining),
            )
            if is_set
        )
        return (
            f"<TopicPartitionState {self.topic_partition} {self.fetch_state.name}"
            f" position={self.position} fetch_offset={self.fetch_offset}"
            f" version={self.version}{flags}>"
        )
