"""One member of a KIP-848 group, and its reconciliation.

Owns the member's state; ``reconcile`` is the coordinator's half of the reconciliation. A partition
is assigned to a member only when no other one owns it any more, and a member gets nothing new
before it has revoked what its target lacks.

State                   meaning                                 leaves on
STABLE                  owns the target of its epoch            a new target
UNREVOKED_PARTITIONS    has to revoke partitions                a heartbeat that owns none of them
UNRELEASED_PARTITIONS   waits for others to revoke theirs       a heartbeat after they did
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum

from kfast.testing.groups.assignors import IdPartition


class MemberState(Enum):
    """Where a member is in its reconciliation; the names are Kafka's."""

    STABLE = "stable"
    UNREVOKED_PARTITIONS = "unrevoked_partitions"
    UNRELEASED_PARTITIONS = "unreleased_partitions"


@dataclass(frozen=True, slots=True)
class ConsumerSubscription:
    """Topics of a member.

    Attributes
    ----------
    names : frozenset of str
        Topics by name.
    regex : str
        Topics by pattern, matched whole; empty for none.
    """

    names: frozenset[str] = frozenset()
    regex: str = ""

    def includes(self, topic: str) -> bool:
        """Return whether a topic is one of them."""
        return topic in self.names or bool(self.regex and re.fullmatch(self.regex, topic))


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """A member.

    Attributes
    ----------
    epoch, previous_epoch : int
        The member's epoch, and the one before, from which a lost answer is forgiven.
    assigned : set
        Partitions it may own.
    revoking : set
        Partitions it has to revoke and may still own.
    session_deadline_ms, revoke_deadline_ms : int or None
        When its membership ends without heartbeats, or without revoking.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscription: ConsumerSubscription = ConsumerSubscription()
    server_assignor: str | None = None
    state: MemberState = MemberState.STABLE
    epoch: int = 0
    previous_epoch: int = 0
    assigned: set[IdPartition] = field(default_factory=set)
    revoking: set[IdPartition] = field(default_factory=set)
    session_deadline_ms: int | None = None
    revoke_deadline_ms: int | None = None

    def accepts_epoch(self, epoch: int, owned: AbstractSet[IdPartition] | None) -> bool:
        """Return whether a heartbeat's epoch is the member's, or was until its answer got lost."""
        if epoch == self.epoch:
            return True
        return epoch == self.previous_epoch and owned is not None and owned <= self.assigned

    def reconcile(
        self,
        target: AbstractSet[IdPartition],
        target_epoch: int,
        owned: AbstractSet[IdPartition] | None,
        taken: AbstractSet[IdPartition],
    ) -> None:
        """Take one step towards the target.

        Parameters
        ----------
        target, target_epoch : set, int
            The target assignment, and its epoch.
        owned : set or None
            Partitions it reports to own; None if it reports none.
        taken : set
            Partitions other members own or may still own.
        """
        if self.state is MemberState.STABLE and self.epoch == target_epoch:
            return
        if self.state is MemberState.UNREVOKED_PARTITIONS and _owns(owned, self.revoking):
            return
        kept = self.assigned & target
        revoking = self.assigned - kept
        missing = target - kept
        if revoking and _owns(owned, revoking):
            self.state = MemberState.UNREVOKED_PARTITIONS
            self.assigned, self.revoking = kept, revoking
            return
        self.assigned, self.revoking = kept | (missing - taken), set()
        self.state = MemberState.UNRELEASED_PARTITIONS if missing & taken else MemberState.STABLE
        if self.epoch != target_epoch:
            self.previous_epoch, self.epoch = self.epoch, target_epoch

    def deadline_ms(self) -> int | None:
        """Return when its membership ends."""
        deadlines = (self.session_deadline_ms, self.revoke_deadline_ms)
        return min((one for one in deadlines if one is not None), default=None)

    def __repr__(self) -> str:
        return (
            f"<ConsumerMember {self.member_id} {self.state.value} epoch {self.epoch} "
            f"{len(self.assigned)} partitions>"
        )


def _owns(owned: AbstractSet[IdPartition] | None, partitions: AbstractSet[IdPartition]) -> bool:
    return owned is None or bool(owned & partitions)
