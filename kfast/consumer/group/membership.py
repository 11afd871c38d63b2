"""Membership: the values and the shapes by which a consumer belongs to a group.

Owns no behaviour. Both protocols, the classic one and KIP-848, look the same to everything above
them: a `GroupMembership` on the network thread decides what is to be revoked, lost or assigned, and
hands it as a `RebalanceStep` through a `StepPort` to the application thread, which runs it inside
``poll``, ``unsubscribe`` or ``close``.

| step | before it, on the network thread | on the application thread, in order |
|---|---|---|
| REVOKE | `SubscriptionState.hold` | auto-commit, ``on_partitions_revoked``, new assignment |
| LOSE | `SubscriptionState.hold` | ``on_partitions_lost``, new assignment; nothing is committed |
| ASSIGN | | new assignment, ``on_partitions_assigned``, `SubscriptionState.release` |

Afterwards the network thread calls `GroupMembership.step_done`. At most one step is outstanding.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from kfast.client.request_manager import PollResult
    from kfast.consumer.group.rebalance_metrics import RebalanceMetrics
    from kfast.consumer.pending_result import PendingResult
    from kfast.types import TopicPartition

CloseOperation = Literal["default", "leave_group", "remain_in_group"]
"""Whether closing leaves the group (KIP-1092); by default static members stay."""


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """Who a member is at one moment, as commits and heartbeats say it.

    Parameters
    ----------
    group_id : str
        Name of the group.
    generation_id : int
        Generation of the classic protocol, member epoch under KIP-848; -1 when not a member.
    member_id : str
        The id the coordinator knows the member by; empty when not a member.
    group_instance_id : str or None
        Name of a static member (KIP-345).
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class RebalanceKind(Enum):
    """What a step does to the assignment."""

    REVOKE = "revoke"
    LOSE = "lose"
    ASSIGN = "assign"


@dataclass(frozen=True, slots=True, eq=False)
class RebalanceStep:
    """One change of the assignment, to be made by the application thread. Compared by identity.

    Parameters
    ----------
    kind : RebalanceKind
        What happens to ``partitions``.
    partitions : frozenset of TopicPartition
        Those revoked, lost or added; may be empty for ASSIGN.
    assignment : frozenset of TopicPartition
        What is assigned after the step.
    deadline_ms : int
        Until when the auto-commit of a REVOKE may take.
    """

    kind: RebalanceKind
    partitions: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    deadline_ms: int


class StepPort(Protocol):
    """How a membership reaches the application thread. Every member may be used by any thread."""

    @property
    def last_poll_ms(self) -> int:
        """When the application was last in ``poll``; now while it blocks in it."""
        ...

    def post(self, step: RebalanceStep) -> None:
        """Have a step run by the application; at most one may be outstanding."""
        ...

    def withdraw(self) -> bool:
        """Take the outstanding step back; True: it was not begun and is gone."""
        ...


class GroupMembership(Protocol):
    """A consumer's place in its group. Network thread only, unless said otherwise."""

    @property
    def identity(self) -> MemberIdentity | None:
        """Who the consumer is in the group, None while it is not a member. Any thread."""
        ...

    @property
    def state_name(self) -> str:
        """What it is doing, for logs and health ("stable", "preparing_rebalance"). Any thread."""
        ...

    @property
    def is_rebalancing(self) -> bool:
        """Whether a commit would fall between two assignments."""
        ...

    @property
    def rebalances(self) -> RebalanceMetrics:
        """How many rebalances there were, and how long they took. Any thread."""
        ...

    def poll(self, now_ms: int) -> PollResult:
        """Return what to send now and the time of the next poll."""
        ...

    def step_done(self, step: RebalanceStep, error: BaseException | None, now_ms: int) -> None:
        """Note that the application ran a step; ``error`` is what its listener raised."""
        ...

    def request_rejoin(self, reason: str) -> None:
        """Have the group rebalance at the next ``poll`` of the application (KIP-568)."""
        ...

    def leave(
        self, now_ms: int, *, is_closing: bool, operation: CloseOperation = "default"
    ) -> PendingResult[None]:
        """Leave the group after the application has revoked its partitions.

        Returns
        -------
        PendingResult
            Done when the coordinator answered, the request failed, or there was nothing to send.
        """
        ...

    def commit_failed(self, error_code: int, identity: MemberIdentity, now_ms: int) -> None:
        """Note the error that a commit or a look-up of offsets got under an identity."""
        ...
