"""One member of a KIP-848 group, and how it gets from what it has to what it shall have.

Owns the member's state; ``reconcile`` is the coordinator's half of the reconciliation. A partition
is given to a member only when no other one has it any more, and a member gets nothing new before it
has shown that it gave up what it has to.

State                   meaning                                 leaves on
STABLE                  has what its epoch's target says        a new target
UNREVOKED_PARTITIONS    was told to give partitions up          a heartbeat that owns none of them
UNRELEASED_PARTITIONS   waits for others to give theirs up      a heartbeat after they did
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum

from tests.fake_broker.server_assignors import IdPartition


class MemberState(Enum):
    """Where a member is in its reconciliation; the names are Kafka's."""

    STABLE = "stable"
    UNREVOKED_PARTITIONS = "unrevoked_partitions"
    UNRELEASED_PARTITIONS = "unreleased_partitions"


@dataclass(frozen=True, slots=True)
class ConsumerSubscription:
    """What a member wants.

    Attributes
    ----------
    names : frozenset of str
        Topics by name.
    regex : str
        Topics by pattern, matched whole; empty for none.
    """

    names: frozenset[str] = frozenset()
    regex: str = ""

    def wants(self, topic: str) -> bool:
        """Return whether a topic is one of these."""
        return topic in self.names or bool(self.regex and re.fullmatch(self.regex, topic))


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """A member.

    Attributes
    ----------
    epoch, previous_epoch : int
        The member's epoch, and the one before, from which a lost answer is forgiven.
    assigned : set
        What it may have.
    revoking : set
        What it was told to give up and may still have.
    session_deadline_ms, revoke_deadline_ms : int or None
        When its membership ends for silence, or for not giving partitions up.
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
            What it shall have, and since which epoch.
        owned : set or None
            What it says it has; None if it does not say.
        taken : set
            What other members have or may still have.
        """
        if self.state is MemberState.STABLE and self.epoch == target_epoch:
            return
        if self.state is MemberState.UNREVOKED_PARTITIONS and _owns(owned, self.revoking):
            return
        kept = self.assigned & target
        revoking = self.assigned - kept
        wanted = target - kept
        if revoking and _owns(owned, revoking):
            self.state = MemberState.UNREVOKED_PARTITIONS
            self.assigned, self.revoking = kept, revoking
            return
        self.assigned, self.revoking = kept | (wanted - taken), set()
        self.state = MemberState.UNRELEASED_PARTITIONS if wanted & taken else MemberState.STABLE
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
