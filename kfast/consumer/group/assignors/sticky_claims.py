"""What the sticky assignors are given: claims of members, and racks.

Network thread. A claim is what a member says of its last assignment. Others write their claims,
so every length is checked, what cannot be decoded counts as no claim (a member must not be able to
fail the whole group), and claims that are outdated, doubled or of partitions that do not exist are
left out:

| user data of | layout (big endian, never flexible) |
|---|---|
| sticky v1 | [topic string, [partition i32]], generation i32 |
| sticky v0 | the same without the generation |
| cooperative-sticky | generation i32 |

| a partition is claimed by | its owner |
|---|---|
| one member | that member, however old its generation |
| several, one of the newest generation | that one |
| several of the newest generation | none: one of the claims is wrong (KAFKA-12984) |

Racks (KIP-881) matter for a whole group or not at all: they do when a member's rack has a replica
and not every partition has replicas in the same racks. Then a member prefers partitions with a
replica in its rack and does not keep others; even counts come first nevertheless, so a partition
without such a member with room is assigned as without racks.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger
from kfast.consumer.group.assignors.assignor import NO_GENERATION
from kfast.consumer.group.assignors.group_topics import Racks, replica_racks
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kfast.client.cluster import Cluster
    from kfast.consumer.group.assignors.assignor import GroupMember

logger = get_logger(__name__)

NO_RACKS: Racks = frozenset()

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")

Claim = tuple[tuple[TopicPartition, ...], int]
"""Partitions, and the generation they were owned in."""

NOTHING: Final[Claim] = ((), NO_GENERATION)


def encode_assignment(partitions: Iterable[TopicPartition], generation_id: int) -> bytes:
    """Return the user data of ``sticky``, version 1."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    out = bytearray(_I32.pack(len(by_topic)))
    for topic, numbers in by_topic.items():
        name = topic.encode()
        out += _I16.pack(len(name)) + name
        out += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return bytes(out + _I32.pack(generation_id))


def decode_assignment(data: bytes | None) -> Claim:
    """Return the claim in a member's user data of ``sticky``, in either version."""
    if not data:
        return NOTHING
    try:
        partitions, pos = _read_partitions(data)
        generation_id = NO_GENERATION if pos == len(data) else _I32.unpack_from(data, pos)[0]
    except (struct.error, UnicodeDecodeError, ValueError):
        return NOTHING
    return tuple(partitions), max(generation_id, NO_GENERATION)


def _read_partitions(data: bytes) -> tuple[list[TopicPartition], int]:
    partitions: list[TopicPartition] = []
    pos = _I32.size
    for _ in range(_size(_I32.unpack_from(data)[0], 6, data)):
        start = pos + _I16.size
        pos = start + _size(_I16.unpack_from(data, pos)[0], 1, data)
        topic = data[start:pos].decode()
        count = _size(_I32.unpack_from(data, pos)[0], 4, data)
        numbers = struct.unpack_from(f">{count}i", data, pos + _I32.size)
        pos += _I32.size + count * 4
        partitions += [TopicPartition(topic, number) for number in numbers]
    return partitions, pos


def _size(count: int, least: int, data: bytes) -> int:
    """Return a count of items of at least so many bytes if the data can contain them."""
    if not 0 <= count * least <= len(data):
        raise ValueError("more than the data can contain")
    return count


def encode_generation(generation_id: int) -> bytes:
    """Return the user data of ``cooperative-sticky``."""
    return _I32.pack(generation_id)


def decode_generation(data: bytes | None) -> int:
    """Return the generation in a member's user data of ``cooperative-sticky``, -1 if none."""
    if data is None or len(data) < _I32.size:
        return NO_GENERATION
    generation_id: int = _I32.unpack_from(data)[0]
    return max(generation_id, NO_GENERATION)


@dataclass(frozen=True, slots=True)
class Claims:
    """Owner of each partition by member id, and the claims that were left out.

    ``doubled`` are claimed by several members of one generation, ``outdated`` has the newest
    claimant among members that are not of the newest generation, ``claimants`` all of them.
    """

    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    doubled: Collection[TopicPartition] = frozenset()
    outdated: Mapping[TopicPartition, str] = field(default_factory=dict)
    claimants: Mapping[TopicPartition, Collection[str]] = field(default_factory=dict)


def settle_claims(
    members: Sequence[GroupMember],
    existing: Collection[TopicPartition],
    claim_of: Callable[[GroupMember], Claim],
) -> Claims:
    """Return the claims of ``members``, ordered by id, to ``existing`` partitions."""
    claims = {member.member_id: claim_of(member) for member in members}
    newest = max((generation for _, generation in claims.values()), default=NO_GENERATION)
    owners: dict[TopicPartition, str] = {}
    latest: dict[TopicPartition, tuple[str, int]] = {}
    doubled: set[TopicPartition] = set()
    outdated: dict[TopicPartition, tuple[str, int]] = {}
    claimants: dict[TopicPartition, list[str]] = {}
    for member_id, (partitions, generation) in claims.items():
        for tp in dict.fromkeys(partitions):
            if tp not in existing:
                continue
            claimants.setdefault(tp, []).append(member_id)
            if generation < newest and (tp not in outdated or generation > outdated[tp][1]):
                outdated[tp] = member_id, generation
            other, other_generation = latest.get(tp, ("", NO_GENERATION - 1))
            if generation == other_generation:
                logger.debug("%s is claimed by both %s and %s", tp, other, member_id)
                doubled.add(tp)
                owners.pop(tp, None)
            elif generation > other_generation:
                owners[tp] = member_id
            if generation >= other_generation:
                latest[tp] = member_id, generation
    if doubled:
        logger.warning(
            "%d partitions, such as %s, are claimed by several members of one generation",
            len(doubled),
            min(doubled),
        )
    return Claims(
        owners, doubled, {tp: member_id for tp, (member_id, _) in outdated.items()}, claimants
    )


class GroupRacks:
    """Racks by member id, without members that have none, and of the replicas by partition.

    Both are empty where racks make no difference.
    """

    __slots__ = ("_members_in", "of_member", "of_partition")

    def __init__(
        self, of_member: Mapping[str, str], of_partition: Mapping[TopicPartition, Racks]
    ) -> None:
        every = NO_RACKS.union(*of_partition.values())
        if every.isdisjoint(of_member.values()) or all(
            racks == every for racks in of_partition.values()
        ):
            of_member = {}
        self.of_member = of_member
        self.of_partition = of_partition
        self._members_in = Counter(of_member.values())

    @classmethod
    def of(
        cls, cluster: Cluster, members: Iterable[GroupMember], partitions: Iterable[TopicPartition]
    ) -> GroupRacks:
        """Return the racks of a group and of the partitions to assign."""
        of_member = {member.member_id: member.rack_id for member in members if member.rack_id}
        if not of_member:
            return cls({}, {})
        return cls(of_member, {tp: replica_racks(cluster, tp) for tp in partitions})

    @property
    def matter(self) -> bool:
        """Whether racks make a difference."""
        return bool(self.of_member)

    def is_far(self, member_id: str, tp: TopicPartition) -> bool:
        """Return whether the member is in a rack without a replica of the partition."""
        rack = self.of_member.get(member_id)
        return rack is not None and rack not in self.of_partition[tp]

    def is_near(self, member_id: str, tp: TopicPartition) -> bool:
        """Return whether the member is in a rack with a replica of the partition."""
        rack = self.of_member.get(member_id)
        return rack is not None and rack in self.of_partition[tp]

    def hardest_first(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions, first those near the fewest members."""
        if not self.matter:
            return list(partitions)
        near = self._members_in
        return sorted(partitions, key=lambda tp: sum(near[rack] for rack in self.of_partition[tp]))

    def __repr__(self) -> str:
        return f"<GroupRacks {len(self.of_member)} members in {len(self._members_in)} racks>"
