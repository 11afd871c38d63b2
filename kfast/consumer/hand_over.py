"""Fetched, HandOver, Delivery: questions and answers by which buffered records leave the client.

Values only; the application thread asks `SubscriptionState` with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kfast.types import TopicPartition


class Delivery(Enum):
    """Whether something fetched may be handed out."""

    GO = "go"
    HOLD = "hold"
    STALE = "stale"


class Fetched(Protocol):
    """Something that was fetched."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Which partition."""
        ...

    @property
    def version(self) -> int:
        """Version it was fetched under."""
        ...


@dataclass(slots=True, eq=False)
class HandOver:
    """One step of a partition's consumed position, see `SubscriptionState.hand_over`.

    Parameters
    ----------
    topic_partition : TopicPartition
        Which partition.
    version : int
        Version the records were fetched under.
    next_offset : int
        The next offset to hand out.
    leader_epoch : int or None
        Epoch of the last batch handed out; None keeps the one the position has.
    """

    topic_partition: TopicPartition
    version: int
    next_offset: int
    leader_epoch: int | None = None
