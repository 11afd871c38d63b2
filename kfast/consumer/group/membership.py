"""GroupMembership: interface of a group member, and the rebalance steps it posts.

The classic protocol and KIP-848 look the same from above: a `GroupMembership` on the network thread
decides what is to be revoked, lost or assigned, and passes it as a `RebalanceStep` through a
`StepPort` to the application thread, which runs it inside ``poll``, ``unsubscribe`` or ``close``.

| step | before it, on the network thread | on the application thread, in order |
|---|---|---|
| REVOKE | `mark_pending_callback` | auto-commit, ``on_partitions_revoked``, new assignment |
| LOSE | `mark_pending_callback` | ``on_partitions_lost``, new assignment; nothing is committed |
| ASSIGN | | new assignment, ``on_partitions_assigned``, `clear_pending_callback` |

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
    """Identity of a member in commits and heartbeats.

    ``generation_id`` is the member epoch under KIP-848. -1 and an empty ``member_id`` stand for a
    consumer that is not a member.
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

    ``partitions`` are those revoked, lost or added (possibly none), ``assignment`` is everything
    assigned after the step, ``deadline_ms`` is for the auto-commit of a REVOKE.
    """

    kind: RebalanceKind
    partitions: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    deadline_ms: int


class StepPort(Protocol):
    """How a membership posts steps to the application thread. Thread-safe."""

    @property
    def last_poll_ms(self) -> int:
        """When the application was last in ``poll``; now while it blocks in it."""
        ...

    def post(self, step: RebalanceStep) -> None:
        """Post a step for the application to run; at most one may be outstanding."""
        ...

    def withdraw(self) -> bool:
        """Withdraw the outstanding step; False if the application has begun it.

        One that has begun is outstanding until the application reports it with `step_done`, or
        leaves the group.
        """
        ...


class GroupMembership(Protocol):
    """Membership of a consumer in its group. Network thread only, unless stated otherwise."""

    @property
    def identity(self) -> MemberIdentity | None:
        """Identity in the group, None while it is not a member. Any thread."""
        ...

    @property
    def state_name(self) -> str:
        """State for logs and health ("stable", "preparing_rebalance"). Any thread."""
        ...

    @property
    def is_rebalancing(self) -> bool:
        """Whether a commit would be refused because of a rebalance."""
        ...

    @property
    def rebalances(self) -> RebalanceMetrics:
        """Counts and latencies of rebalances. Any thread."""
        ...

    def poll(self, now_ms: int) -> PollResult:
        """Return the requests to send now and the time of the next poll."""
        ...

    def step_done(self, step: RebalanceStep, error: BaseException | None, now_ms: int) -> None:
        """Note that the application ran a step; ``error`` is what its listener raised."""
        ...

    def request_rejoin(self, reason: str) -> None:
        """Rejoin the group at the next ``poll`` of the application (KIP-568)."""
        ...

    def leave(
        self, now_ms: int, *, is_closing: bool, operation: CloseOperation = "default"
    ) -> PendingResult[None]:
        """Leave the group after the application has revoked its partitions.

        The result is done when the request has ended, however it ends, or if none was needed.
        """
        ...

    def commit_failed(self, error_code: int, identity: MemberIdentity, now_ms: int) -> None:
        """Handle the error code of a commit or an offset fetch under an identity."""
        ...
