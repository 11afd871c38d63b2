"""Groups in short notation, and what assignors assign to them."""

from __future__ import annotations

import pytest

from kfast.consumer.group.assignors import GroupMember, resolve_assignors
from kfast.types import TopicPartition
from tests.reference.groups import NO_RACK, Group, Racks


def tps(text: str) -> tuple[TopicPartition, ...]:
    """``"t1-0,2 t2-1"`` as partitions."""
    return tuple(
        TopicPartition(topic, int(number))
        for topic, _, numbers in (item.partition("-") for item in text.split())
        for number in numbers.split(",")
    )


def group_of(topics: dict[str, int], *members: GroupMember) -> Group:
    return Group({name: [NO_RACK] * count for name, count in topics.items()}, members)


def assign(name: str, group: Group) -> dict[str, list[TopicPartition]]:
    """The assignment, each member's partitions sorted."""
    (assignor,) = resolve_assignors([name])
    assigned = assignor.assign(group.cluster, group.members_for(name))
    assert set(assigned) == {member.member_id for member in group.members}
    return {member_id: sorted(partitions) for member_id, partitions in assigned.items()}


def plain(member_id: str, *topics: str) -> GroupMember:
    return GroupMember(member_id, topics)


without_effect = pytest.mark.parametrize(
    ("replicas", "a"),
    [
        ([("x", "y"), ("y", "x")], "x"),  # every rack has everything
        ([("x",), ("y",)], "z"),  # no replica in any member's rack
        ([("x",), ("y",)], None),
        ([("x",), ("y",)], ""),
        ([("-",), ("-",)], "x"),  # brokers without racks
    ],
)
"""Replicas and a member's rack for which racks make no difference."""


def racked(topics: dict[str, list[Racks]], **racks: str | None) -> Group:
    """A group of members, by id, in racks, that all read all topics."""
    members = (GroupMember(name, tuple(topics), rack_id=rack) for name, rack in racks.items())
    return Group(topics, tuple(members))
