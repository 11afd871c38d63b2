"""What brokers report about groups, as values. Immutable; any thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kfast.types import TopicPartition

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""Type of a KIP-848 group."""
DEAD: Final = "Dead"


@dataclass(slots=True, frozen=True)
class ListedGroup:
    """One group as its coordinator lists it; None: brokers too old to report it."""

    group_id: str
    state: str | None
    type: str | None
    """``classic``, ``consumer``, ``share`` or ``streams``."""
    protocol_type: str
    coordinator: int
    """Node id."""


@dataclass(slots=True, frozen=True)
class MemberDescription:
    """One member of a group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    """Member epoch under KIP-848, None in a classic group."""
    partitions: tuple[TopicPartition, ...] | None
    """Assigned now; None if the assignment is not one of consumers."""


@dataclass(slots=True, frozen=True)
class GroupDescription:
    """One group and its members."""

    group_id: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: int
    """Node id."""
    members: tuple[MemberDescription, ...]

    @property
    def exists(self) -> bool:
        """Whether there is such a group; one with committed offsets only is ``Empty``."""
        return self.state != DEAD
