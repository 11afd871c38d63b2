"""Reconciliation: from the partitions a KIP-848 member has to those its coordinator wants.

Owns the target assignment, the partitions owned and the names of their topics, and says which step
comes next. It does nothing itself: no thread, no request, no time. Network thread only.

One pass goes through the rows from the top, until no step is left::

    owned, not in the target           REVOKE them
    in the target, named, not owned    ASSIGN them; after a REVOKE, and once after joining, ASSIGN
                                       comes also when it adds nothing
    nothing left                       acknowledge, if there was a step

Assignments name topics by id. An id that no metadata names yet stays pending: its partitions are
assigned in a later pass. What is owned is given up only if the target lacks it, never because a
topic has left the metadata, and it is told apart by id, so that a topic created anew is revoked as
the old one and assigned as the new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kfast.consumer.group.membership import RebalanceKind
from kfast.errors import ProtocolError
from kfast.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kfast.protocol.messages.consumer_group_heartbeat import Assignment


class TopicIdPartition(NamedTuple):
    """One partition of one incarnation of a topic."""

    topic_id: bytes
    partition: int


NOTHING: frozenset[TopicIdPartition] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class PlannedStep:
    """A step of a pass.

    Parameters
    ----------
    kind : RebalanceKind
        What happens to ``partitions``.
    partitions : frozenset of TopicPartition
        Those revoked, lost or added.
    assignment : frozenset of TopicPartition
        What is assigned after the step.
    owned : frozenset of TopicIdPartition
        The same by id.
    """

    kind: RebalanceKind
    partitions: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    owned: frozenset[TopicIdPartition]


def partitions_of(assignment: Assignment) -> frozenset[TopicIdPartition]:
    """Return the partitions of an assignment as it came.

    Raises
    ------
    ProtocolError
        It names a partition or a topic that cannot be.
    """
    found: set[TopicIdPartition] = set()
    for topic in assignment.topic_partitions:
        if topic.topic_id == ZERO_UUID or any(p < 0 for p in topic.partitions):
            raise ProtocolError(
                "an assignment names a partition that cannot be",
                found=f"topic id {topic.topic_id.hex()}, partitions {topic.partitions[:8]}",
            )
        found.update(TopicIdPartition(topic.topic_id, p) for p in topic.partitions)
    return frozenset(found)


class Reconciliation:
    """The way from owned to target.

    Attributes
    ----------
    owned : frozenset of TopicIdPartition
        What the application has, as far as steps were run.
    completed : frozenset of TopicIdPartition
        What it had at the end of the last pass: this is what heartbeats tell.
    target : frozenset of TopicIdPartition or None
        What the coordinator wants; None before it said so.
    needs_acknowledgement : bool
        Whether a pass has ended that the coordinator has not been told of.
    """

    __slots__ = (
        "_has_revoked",
        "_is_first",
        "_names",
        "completed",
        "needs_acknowledgement",
        "owned",
        "target",
    )

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Own nothing and want nothing."""
        self.owned = self.completed = NOTHING
        self.target: frozenset[TopicIdPartition] | None = None
        self.needs_acknowledgement = False
        self._names: dict[bytes, str] = {}
        self._is_first = True
        self._has_revoked = False

    @property
    def topic_ids(self) -> frozenset[bytes]:
        """The topics whose metadata is needed."""
        return frozenset(tip.topic_id for tip in self.owned | (self.target or NOTHING))

    def unresolved(self, names: Mapping[bytes, str]) -> frozenset[bytes]:
        """Return the topic ids of the target that nothing names, given the names in metadata."""
        ids = {tip.topic_id for tip in self.target or NOTHING}
        return frozenset(ids - names.keys() - self._names.keys())

    def next_step(self, names: Mapping[bytes, str]) -> PlannedStep | None:
        """Return what to do next; None when there is nothing to do at the moment.

        Parameters
        ----------
        names : Mapping of bytes to str
            Topic names by id, as metadata knows them.
        """
        target = self.target
        if target is None:
            return None
        revoked = self.owned - target
        if revoked:
            return self._plan(RebalanceKind.REVOKE, revoked, self.owned - revoked, names)
        unresolved = self.unresolved(names)
        added = frozenset(
            tip for tip in target if tip.topic_id not in unresolved and tip not in self.owned
        )
        if added or self._has_revoked or (self._is_first and not unresolved):
            return self._plan(RebalanceKind.ASSIGN, added, self.owned | added, names)
        return None

    def loss(self) -> PlannedStep:
        """Return the step that gives up everything."""
        return self._plan(RebalanceKind.LOSE, self.owned, NOTHING, {})

    def _plan(
        self,
        kind: RebalanceKind,
        partitions: frozenset[TopicIdPartition],
        owned: frozenset[TopicIdPartition],
        names: Mapping[bytes, str],
    ) -> PlannedStep:
        def named(tips: Iterable[TopicIdPartition]) -> frozenset[TopicPartition]:
            return frozenset(
                TopicPartition(self._names.get(topic_id) or names[topic_id], partition)
                for topic_id, partition in tips
            )

        assignment = named(owned)
        if kind is RebalanceKind.ASSIGN:
            self._names.update({i: names[i] for i, _ in partitions if i in names})
        return PlannedStep(kind, named(partitions), assignment, owned)

    def ran(self, step: PlannedStep) -> None:
        """Note that the application ran a step, and has what the step says."""
        self.owned = step.owned
        if step.kind is RebalanceKind.REVOKE:
            self._has_revoked = True
        elif step.kind is RebalanceKind.ASSIGN:
            self._has_revoked = self._is_first = False
            self.needs_acknowledgement = True
        kept = {topic_id for topic_id, _ in self.owned}
        self._names = {i: name for i, name in self._names.items() if i in kept}

    def complete(self) -> None:
        """Note that a pass has ended: from now on heartbeats tell what is owned."""
        self.completed = self.owned

    def acknowledged(self) -> None:
        """Note that the coordinator is being told."""
        self.needs_acknowledgement = False

    def __repr__(self) -> str:
        target = "none" if self.target is None else len(self.target)
        return f"<Reconciliation owned={len(self.owned)} target={target}>"
