"""TopicPartitionState: what one assigned partition is doing.

Owns the state machine of a position and the facts of the last fetch reply. It has no lock of its
own: every access happens under the lock of the `SubscriptionState` that holds it.

| state | may be fetched | leaves on |
|---|---|---|
| INITIALIZING | no | user seek; committed offset found; reset by policy |
| AWAIT_RESET | no | ListOffsets answer; user seek |
| AWAIT_VALIDATION | no | OffsetForLeaderEpoch answer; no way to validate; user seek; reset |
| FETCHING | yes | seek, reset, change of leader or leader epoch |

Two offsets: ``position`` is what the application was given up to; ``fetch_offset`` runs ahead of
it to the end of what is buffered, and is what the next Fetch asks for. ``version`` changes whenever
what is buffered or in flight stops being valid (assignment, seek, reset, validation): a result
that carries another version is dropped without effect. ``course`` changes only when the position
goes elsewhere than on (assignment, seek, reset): what was handed out before stays good when a
validation finds nothing wrong.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from kfast.consumer.fetch_position import FetchPosition
from kfast.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.consumer.hand_over import HandOver
    from kfast.settings.offset_reset import OffsetResetStrategy
    from kfast.types import TopicPartition


class FetchState(Enum):
    """Where a partition's position stands."""

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


class TopicPartitionState:
    """One partition of the assignment.

    Parameters
    ----------
    topic_partition : TopicPartition
        Which one.
    version : int
        First version; unique among all assignments of the consumer's life.

    Attributes
    ----------
    course : int
        Unique like a version; see above.
    fetch_state : FetchState
        See the module's table.
    position : FetchPosition or None
        Next offset to hand out; None until one is known.
    previous_position : FetchPosition or None
        What it was before the last hand-over of the partition.
    hand_over : int
        Number of that hand-over among all of the consumer; 0 before the first.
    fetch_offset : int
        Next offset to ask a broker for; -1 while there is no position.
    reset_strategy : OffsetResetStrategy or None
        Set in AWAIT_RESET.
    out_of_range_offset : int or None
        In AWAIT_RESET: the offset the log no longer holds, if that is why.
    is_paused : bool
        By the user. Not delivered and not fetched; what is buffered stays.
    is_held : bool
        By the group. Not delivered and not fetched: about to be revoked, or assigned and not
        yet told to the application.
    is_stalled : bool
        Not fetched until the user seeks: the data at ``fetch_offset`` cannot be read.
    is_draining : bool
        Not fetched until everything buffered was handed out: a reply said that ``fetch_offset``
        cannot be served, and what to do about it may only happen once the position is there.
    high_watermark, last_stable_offset, log_start_offset : int or None
        Of the last reply that told them.
    preferred_read_replica : int or None
        Follower to read from (KIP-392) until ``preferred_until_ms``.
    topic_id : bytes or None
        Id of the topic the position belongs to (KIP-516).
    """

    __slots__ = (
        "course",
        "fetch_offset",
        "fetch_state",
        "hand_over",
        "high_watermark",
        "is_draining",
        "is_held",
        "is_paused",
        "is_stalled",
        "last_stable_offset",
        "log_start_offset",
        "out_of_range_offset",
        "position",
        "preferred_read_replica",
        "preferred_until_ms",
        "previous_position",
        "reset_strategy",
        "topic_id",
        "topic_partition",
        "version",
    )

    def __init__(self, topic_partition: TopicPartition, version: int) -> None:
        self.topic_partition = topic_partition
        self.version = version
        self.course = version
        self.fetch_state = FetchState.INITIALIZING
        self.position: FetchPosition | None = None
        self.previous_position: FetchPosition | None = None
        self.hand_over = 0
        self.fetch_offset = -1
        self.reset_strategy: OffsetResetStrategy | None = None
        self.out_of_range_offset: int | None = None
        self.is_paused = False
        self.is_held = False
        self.is_stalled = False
        self.is_draining = False
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.preferred_read_replica: int | None = None
        self.preferred_until_ms = 0
        self.topic_id: bytes | None = None

    @property
    def is_deliverable(self) -> bool:
        """Whether buffered records of the current version may be handed out."""
        return self.fetch_state is FetchState.FETCHING and not (self.is_paused or self.is_held)

    @property
    def is_fetchable(self) -> bool:
        """Whether the position and the user allow a Fetch."""
        return self.is_deliverable and not self.is_stalled and not self.is_draining

    def consumed(self, skipped_hand_over: int | None = None) -> FetchPosition | None:
        """Return how far records were handed out, None where that may not be committed.

        A position that waits for validation may: whoever starts from it validates it by its epoch.

        Parameters
        ----------
        skipped_hand_over : int or None
            Stop before what this hand-over gave away.
        """
        if self.fetch_state not in (FetchState.FETCHING, FetchState.AWAIT_VALIDATION):
            return None
        return self.previous_position if self.hand_over == skipped_hand_over else self.position

    def take(self, step: HandOver, hand_over: int) -> bool:
        """Move the position past records about to be handed out; False if they must not be."""
        position = self.position
        if self.version != step.version or not self.is_deliverable or position is None:
            return False
        epoch = position.offset_epoch if step.leader_epoch is None else step.leader_epoch
        self.previous_position = position
        self.hand_over = hand_over
        self.position = FetchPosition(
            step.next_offset, epoch, position.leader_id, position.leader_epoch
        )
        return True

    def change_course(self) -> None:
        """Note that the position went elsewhere than on."""
        self.course = self.version
        self.hand_over = 0

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
        """Put the position somewhere else; what is buffered or in flight is void."""
        self.position = position
        self.fetch_offset = position.offset
        self.version = version
        self.reset_strategy = None
        self.out_of_range_offset = None
        self.is_stalled = False
        self.is_draining = False

    def clear_preferred_read_replica(self) -> None:
        """Go back to the leader."""
        self.preferred_read_replica = None
        self.preferred_until_ms = 0

    def end_offset(self, *, is_read_committed: bool) -> int | None:
        """Return the end a reader can see: last stable offset or high watermark."""
        return self.last_stable_offset if is_read_committed else self.high_watermark

    def __repr__(self) -> str:
        flags = "".join(
            f" {name}"
            for name, is_set in (
                ("paused", self.is_paused),
                ("held", self.is_held),
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
