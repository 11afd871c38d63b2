"""The assignors a broker runs for KIP-848 groups: ``uniform`` and ``range``.

Pure functions. Both give every partition of a subscribed topic to one subscriber; ``uniform`` keeps
current assignments as far as balance allows, ``range`` gives every member a run of each topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

IdPartition: TypeAlias = tuple[bytes, int]
"""Topic id and partition."""

Target: TypeAlias = dict[str, frozenset[IdPartition]]
"""The partitions of each member."""


@dataclass(frozen=True, slots=True)
class AssignorInput:
    """Subscriptions, partitions, and the current assignment.

    Attributes
    ----------
    subscriptions : mapping
        Member to the ids of its topics, in the order members are served.
    partitions : mapping
        Topic id to the number of partitions.
    current : mapping
        Member to its target so far.
    """

    subscriptions: Mapping[str, frozenset[bytes]]
    partitions: Mapping[bytes, int]
    current: Mapping[str, frozenset[IdPartition]]


def assign_uniform(group: AssignorInput) -> Target:
    """Spread evenly, moving as little as possible."""
    assignment: dict[str, set[IdPartition]] = {}
    free = _all_partitions(group)
    for member, topics in group.subscriptions.items():
        current = group.current.get(member, ())
        assignment[member] = {partition for partition in current if partition[0] in topics} & free
        free -= assignment[member]
    for partition in sorted(free):
        subscribers = [
            member for member, topics in group.subscriptions.items() if partition[0] in topics
        ]
        assignment[min(subscribers, key=lambda member: len(assignment[member]))].add(partition)
    while (move := _better_place(group, assignment)) is not None:
        partition, source, target = move
        assignment[source].discard(partition)
        assignment[target].add(partition)
    return {member: frozenset(partitions) for member, partitions in assignment.items()}


def _better_place(
    group: AssignorInput, assignment: Mapping[str, set[IdPartition]]
) -> tuple[IdPartition, str, str] | None:
    """Return a move that makes the assignment more even, None if there is none."""
    for source in sorted(assignment, key=lambda member: -len(assignment[member])):
        for target in sorted(assignment, key=lambda member: len(assignment[member])):
            if len(assignment[source]) < len(assignment[target]) + 2:
                break
            topics = group.subscriptions[target]
            movable = [partition for partition in assignment[source] if partition[0] in topics]
            if movable:
                return max(movable), source, target
    return None


def assign_range(group: AssignorInput) -> Target:
    """Give each subscriber a run of every topic."""
    assignment: dict[str, set[IdPartition]] = {member: set() for member in group.subscriptions}
    for topic, count in group.partitions.items():
        subscribers = [member for member, topics in group.subscriptions.items() if topic in topics]
        start = 0
        for index, member in enumerate(subscribers):
            end = start + count // len(subscribers) + (index < count % len(subscribers))
            assignment[member] |= {(topic, number) for number in range(start, end)}
            start = end
    return {member: frozenset(partitions) for member, partitions in assignment.items()}


def _all_partitions(group: AssignorInput) -> set[IdPartition]:
    topics = frozenset[bytes]().union(*group.subscriptions.values())
    return {
        (topic, number)
        for topic, count in group.partitions.items()
        if topic in topics
        for number in range(count)
    }


SERVER_ASSIGNORS: Final[Mapping[str, Callable[[AssignorInput], Target]]] = MappingProxyType(
    {"uniform": assign_uniform, "range": assign_range}
)
