"""Random consumer groups, and what is right and wrong about their assignments.

The member ids are such that Java's hash tables iterate over them in their order: some of Java's
results depend on that order, which is unspecified, and could not be compared otherwise.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kfast.client.cluster import Cluster, Node, PartitionMetadata, TopicMetadata
from kfast.consumer.group.assignors import GroupMember
from kfast.consumer.group.assignors.sticky_claims import encode_assignment, encode_generation
from kfast.types import TopicPartition

Assigned = Mapping[str, Sequence[TopicPartition]]
Racks = tuple[str, ...]
NO_RACK: Racks = ("-",)


@dataclass(frozen=True, slots=True)
class Group:
    """A group before it rebalances.

    Parameters
    ----------
    topics : Mapping of str to sequence of Racks
        Racks of the replicas of each partition.
    members : tuple of GroupMember
        With owned partitions and generations; the user data is that of no assignor.
    """

    topics: Mapping[str, Sequence[Racks]]
    members: tuple[GroupMember, ...]

    @property
    def cluster(self) -> Cluster:
        """The topics as a cluster with a broker per rack."""
        names = sorted({rack for of in self.topics.values() for racks in of for rack in racks})
        ids = {rack: number for number, rack in enumerate(names)}
        topics = {
            name: TopicMetadata(
                name,
                partitions={
                    number: PartitionMetadata(number, replicas=tuple(ids[rack] for rack in racks))
                    for number, racks in enumerate(of)
                },
            )
            for name, of in self.topics.items()
        }
        brokers = {
            number: Node(number, "localhost", 9092 + number, None if rack == "-" else rack)
            for rack, number in ids.items()
        }
        return Cluster(brokers, topics)

    @property
    def is_uniform(self) -> bool:
        """Whether all members are subscribed to the same topics."""
        return len({frozenset(member.topics) for member in self.members}) <= 1

    def members_for(self, assignor: str) -> list[GroupMember]:
        """Return the members with the user data this assignor would have sent."""
        if assignor == "sticky":
            return [
                replace(
                    member,
                    user_data=encode_assignment(member.owned_partitions, member.generation_id)
                    if member.owned_partitions
                    else None,
                )
                for member in self.members
            ]
        if assignor == "cooperative-sticky":
            return [
                replace(member, user_data=encode_generation(member.generation_id))
                for member in self.members
            ]
        return list(self.members)

    def to_json(self) -> dict[str, Any]:
        """Return the group as JSON."""
        return {
            "topics": {
                name: len(of)
                if all(racks == NO_RACK for racks in of)
                else [",".join(racks) for racks in of]
                for name, of in self.topics.items()
            },
            "members": [
                [
                    member.member_id,
                    member.group_instance_id,
                    member.rack_id,
                    member.generation_id,
                    ",".join(member.topics),
                    _short(member.owned_partitions),
                ]
                for member in self.members
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Group:
        """Return the group that ``to_json`` wrote."""
        return cls(
            {
                name: [NO_RACK] * of
                if isinstance(of, int)
                else [tuple(racks.split(",")) for racks in of]
                for name, of in data["topics"].items()
            },
            tuple(
                GroupMember(
                    member_id,
                    tuple(topics.split(",")) if topics else (),
                    tuple(_long(owned)),
                    generation,
                    group_instance_id=instance,
                    rack_id=rack,
                )
                for member_id, instance, rack, generation, topics, owned in data["members"]
            ),
        )


def show(partitions: Sequence[TopicPartition]) -> str:
    """Return partitions as text."""
    return ",".join(f"{tp.topic}:{tp.partition}" for tp in partitions)


def read(text: str) -> list[TopicPartition]:
    """Return the partitions in a text."""
    return [
        TopicPartition(topic, int(number))
        for topic, _, number in (item.rpartition(":") for item in text.split(",") if item)
    ]


def _short(partitions: Sequence[TopicPartition]) -> str:
    numbers: dict[str, list[str]] = {}
    for tp in partitions:
        numbers.setdefault(tp.topic, []).append(str(tp.partition))
    return " ".join(f"{topic}:{'.'.join(of)}" for topic, of in numbers.items())


def _long(text: str) -> list[TopicPartition]:
    topics = (item.split(":") for item in text.split())
    return [TopicPartition(topic, int(n)) for topic, of in topics for n in of.split(".")]


def owners(group: Group, assigned: Assigned) -> dict[str, str]:
    """Return an assignment as the owner of each partition, a line per topic, ``-`` for no owner."""
    held = {tp: member_id for member_id, partitions in assigned.items() for tp in partitions}
    return {
        name: " ".join(held.get(TopicPartition(name, i), "-") for i in range(len(of)))
        for name, of in group.topics.items()
    }


def ids_in_hash_order(count: int) -> list[str]:
    """Return ids whose order is also that of their hashes in a Java table of so many entries."""
    if count <= 12:
        return [chr(ord("a") + i) for i in range(count)]
    if count <= 24:
        return [chr(ord("`") + i) for i in range(count)]
    if count <= 48:
        return [chr(ord("A") + i) for i in range(count)]
    # 31 * first + second is consecutive and does not wrap in the table.
    return [chr(ord("A") + i // 31) + chr(ord("A") + i % 31) for i in range(count)]


# --- random groups --------------------------------------------------------------------------------


def random_group(
    rng: random.Random, *, is_uniform: bool, has_racks: bool = False, most_members: int = 12
) -> Group:
    """Return a group whose members may own something, and contradict each other."""
    names = [f"t{i}" for i in range(rng.randint(1, 6))]
    racks = ["x", "y", "z"][: rng.randint(1, 3)]
    alike = rng.random() < 0.5
    count = rng.randint(1, 9)

    def replicas() -> Racks:
        if not has_racks:
            return NO_RACK
        return tuple(rng.sample([*racks, "-"], rng.randint(1, len(racks))))

    topics = {
        name: [replicas() for _ in range(count if alike else rng.randint(1, 12))] for name in names
    }
    ids = ids_in_hash_order(rng.randint(1, most_members))
    asked = [*names, "missing"] if rng.random() < 0.2 else names
    common = tuple(sorted(rng.sample(asked, rng.randint(1, len(asked)))))
    members = tuple(
        GroupMember(
            member_id,
            common if is_uniform else tuple(rng.sample(asked, rng.randint(1, len(asked)))),
            group_instance_id=f"i{rng.randint(0, 9)}{member_id}" if rng.random() < 0.3 else None,
            rack_id=rng.choice([*racks, "far", None]) if has_racks else None,
        )
        for member_id in ids
    )
    group = Group(topics, members)
    return replace(group, members=_with_claims(rng, group))


def _with_claims(rng: random.Random, group: Group) -> tuple[GroupMember, ...]:
    """Let the members own what an earlier, other group may have left them."""
    kind = rng.random()
    if kind < 0.2:
        return group.members
    every = [TopicPartition(name, i) for name, of in group.topics.items() for i in range(len(of))]
    busy = rng.sample(group.members, rng.randint(1, len(group.members)))
    owned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in group.members}
    for tp in every:
        fitting = [member for member in busy if tp.topic in member.topics]
        if kind > 0.5 and rng.random() < 0.15:
            fitting = busy  # the subscription has changed since
        if fitting and rng.random() < 0.9:
            owned[rng.choice(fitting).member_id].append(tp)
            if kind > 0.8 and rng.random() < 0.1:
                owned[rng.choice(fitting).member_id].append(tp)
    generation = rng.randint(0, 5)
    return tuple(
        replace(
            member,
            owned_partitions=tuple(dict.fromkeys(owned[member.member_id])),
            generation_id=_generation(rng, generation, kind) if owned[member.member_id] else -1,
        )
        for member in group.members
    )


def _generation(rng: random.Random, generation: int, kind: float) -> int:
    return max(-1, generation - rng.choice((0, 0, 1, 2))) if kind > 0.65 else generation


# --- judging --------------------------------------------------------------------------------------


def faults(group: Group, assigned: Assigned, *, may_withhold: bool = False) -> list[str]:
    """Return what is illegal about an assignment."""
    found = []
    topics = {member.member_id: member.topics for member in group.members}
    if set(assigned) != set(topics):
        found.append(f"members {sorted(assigned)} instead of {sorted(topics)}")
    times = Counter(tp for partitions in assigned.values() for tp in partitions)
    found += [f"{tp} given {n} times" for tp, n in times.items() if n > 1]
    for member_id, partitions in assigned.items():
        found += [
            f"{tp} given to {member_id}, which is not subscribed"
            for tp in partitions
            if tp.topic not in topics.get(member_id, ())
        ]
    wanted = {topic for member in group.members for topic in member.topics}
    every = {
        TopicPartition(name, i)
        for name, of in group.topics.items()
        if name in wanted
        for i in range(len(of))
    }
    found += [f"{tp} does not exist" for tp in times if tp not in every]
    if not may_withhold:
        found += [f"{tp} given to no member" for tp in sorted(every - set(times))]
    return found


def movable(group: Group, assigned: Assigned) -> list[str]:
    """Return the partitions whose move to another subscriber would make the counts more even."""
    count = {member_id: len(partitions) for member_id, partitions in assigned.items()}
    fewest: dict[str, int] = {}
    for member in group.members:
        for topic in member.topics:
            fewest[topic] = min(fewest.get(topic, 1 << 30), count[member.member_id])
    return [
        f"{tp} of {member_id}"
        for member_id, partitions in assigned.items()
        for tp in partitions
        if count[member_id] > fewest[tp.topic] + 1
    ]
