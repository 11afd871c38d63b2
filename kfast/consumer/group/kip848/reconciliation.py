"""Reconciliation: next step from the owned partitions of a KIP-848 member to its target.

Owns the target assignment, the owned partitions and the names of their topics. It only plans:
`ConsumerReconciler` posts the steps. Network thread only.

A reconciliation takes the first row that applies, until no step is left::

    owned, not in the target           REVOKE them
    in the target, named, not owned    ASSIGN them; after a REVOKE, and once after joining, ASSIGN
                                       comes also when it adds nothing
    nothing left                       acknowledge, if there was a step

Assignments have topic ids. An id without a name in the metadata stays pending: its partitions are
assigned later. An owned partition is revoked only if the target lacks it, never because its topic
has left the metadata, and is compared by id, so that a topic created anew is revoked as the old one
and assigned as the new one.
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
    """A `RebalanceStep` to post; ``owned`` is its ``assignment`` by topic id."""

    kind: RebalanceKind
    partitions: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    owned: frozenset[TopicIdPartition]


def partitions_of(assignment: Assignment) -> frozenset[TopicIdPartition]:
    """Return the partitions of an assignment; an impossible one is a ProtocolError."""
    partitions: set[TopicIdPartition] = set()
    for topic in assignment.topic_partitions:
        if topic.topic_id == ZERO_UUID or any(p < 0 for p in topic.partitions):
            raise ProtocolError(
                "an assignment has an impossible partition",
                found=f"topic id {topic.topic_id.hex()}, partitions {topic.partitions[:8]}",
            )
        partitions.update(TopicIdPartition(topic.topic_id, p) for p in topic.partitions)
    return frozenset(partitions)


class Reconciliation:
    """Owned partitions, as far as steps were run, and the target; None before the first.

    ``completed`` are the partitions owned when the last reconciliation ended, which heartbeats
    report; ``needs_acknowledgement`` until one has.
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
        """Drop the owned partitions and the target."""
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
        """Return the topic ids of the target without a name, given the names in metadata."""
        ids = {tip.topic_id for tip in self.target or NOTHING}
        return frozenset(ids - names.keys() - self._names.keys())

    def next_step(self, names: Mapping[bytes, str]) -> PlannedStep | None:
        """Return the next step, None if there is none now; ``names`` are the metadata's by id."""
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
        """Return the step that loses all partitions."""
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
        """Note that the application ran a step."""
        self.owned = step.owned
        if step.kind is RebalanceKind.REVOKE:
            self._has_revoked = True
        elif step.kind is RebalanceKind.ASSIGN:
            self._has_revoked = self._is_first = False
            self.needs_acknowledgement = True
        kept = {topic_id for topic_id, _ in self.owned}
        self._names = {i: name for i, name in self._names.items() if i in kept}

    def complete(self) -> None:
        """End a reconciliation: from now on heartbeats report the owned partitions."""
        self.completed = self.owned

    def acknowledged(self) -> None:
        """Note that the owned partitions are sent to the coordinator."""
        self.needs_acknowledgement = False

    def __repr__(self) -> str:
        target = "none" if self.target is None else len(self.target)
        return f"<Reconciliation owned={len(self.owned)} target={target}>"
