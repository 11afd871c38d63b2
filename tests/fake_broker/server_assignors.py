"""The assignors a broker runs for KIP-848 groups: ``uniform`` and ``range``.

Pure functions. Both give every partition of a subscribed topic to one subscriber; ``uniform`` keeps
what members have as far as balance allows, ``range`` gives every member a run of each topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

IdPartition: TypeAlias = tuple[bytes, int]
"""Topic id and partition."""

Target: TypeAlias = dict[str, frozenset[IdPartition]]
"""What each member shall have."""


@dataclass(frozen=True, slots=True)
class AssignorInput:
    """What an assignor decides on.

    Attributes
    ----------
    subscriptions : mapping
        Member to the ids of the topics it wants, in the order members are served.
    partitions : mapping
        Topic id to the number of partitions.
    current : mapping
        Member to what it was to have before.
    """

    subscriptions: Mapping[str, frozenset[bytes]]
    partitions: Mapping[bytes, int]
    current: Mapping[str, frozenset[IdPartition]]


def assign_uniform(given: AssignorInput) -> Target:
    """Spread evenly, moving as little as possible."""
    wanted = given.subscriptions
    found: dict[str, set[IdPartition]] = {}
    free = _all_partitions(given)
    for member, topics in wanted.items():
        found[member] = {one for one in given.current.get(member, ()) if one[0] in topics} & free
        free -= found[member]
    for partition in sorted(free):
        takers = [member for member, topics in wanted.items() if partition[0] in topics]
        found[min(takers, key=lambda member: len(found[member]))].add(partition)
    while (move := _better_place(given, found)) is not None:
        partition, source, target = move
        found[source].discard(partition)
        found[target].add(partition)
    return {member: frozenset(partitions) for member, partitions in found.items()}


def _better_place(
    given: AssignorInput, found: Mapping[str, set[IdPartition]]
) -> tuple[IdPartition, str, str] | None:
    """Return a move that makes the assignment more even, None if there is none."""
    for source in sorted(found, key=lambda member: -len(found[member])):
        for target in sorted(found, key=lambda member: len(found[member])):
            if len(found[source]) < len(found[target]) + 2:
                break
            movable = [one for one in found[source] if one[0] in given.subscriptions[target]]
            if movable:
                return max(movable), source, target
    return None


def assign_range(given: AssignorInput) -> Target:
    """Give each subscriber a run of every topic."""
    found: dict[str, set[IdPartition]] = {member: set() for member in given.subscriptions}
    for topic, count in given.partitions.items():
        takers = [member for member, topics in given.subscriptions.items() if topic in topics]
        start = 0
        for index, member in enumerate(takers):
            end = start + count // len(takers) + (index < count % len(takers))
            found[member] |= {(topic, number) for number in range(start, end)}
            start = end
    return {member: frozenset(partitions) for member, partitions in found.items()}


def _all_partitions(given: AssignorInput) -> set[IdPartition]:
    wanted = frozenset[bytes]().union(*given.subscriptions.values())
    return {
        (topic, number)
        for topic, count in given.partitions.items()
        if topic in wanted
        for number in range(count)
    }


SERVER_ASSIGNORS: Final[Mapping[str, Callable[[AssignorInput], Target]]] = MappingProxyType(
    {"uniform": assign_uniform, "range": assign_range}
)
