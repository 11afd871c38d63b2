"""sticky and cooperative-sticky in racks (KIP-881): near first, even always, sticky where near."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kfast.consumer.group.assignors.sticky_claims import GroupRacks
from tests.reference.groups import Group, Racks, faults, movable
from tests.unit.consumer.group.assignors.group_cases import assign, racked, tps, without_effect

both = pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
XYXY: dict[str, list[Racks]] = {"t1": [("x",), ("y",), ("x",), ("y",)]}


def with_other_topics(group: Group, **topics: str) -> Group:
    """Let members subscribe to other topics, so that the general algorithm runs."""
    members = tuple(
        replace(member, topics=tuple(topics[member.member_id].split())) for member in group.members
    )
    return replace(group, members=members)


def owning(group: Group, **owned: str) -> Group:
    """Let members own partitions."""
    members = tuple(
        replace(member, owned_partitions=tps(owned[member.member_id]), generation_id=1)
        if member.member_id in owned
        else member
        for member in group.members
    )
    return replace(group, members=members)


@both
def test_members_get_what_is_near(name: str) -> None:
    """G-17: with the counts there would be without racks."""
    assert assign(name, racked(XYXY, a="y", b="x")) == {
        "a": list(tps("t1-1,3")),
        "b": list(tps("t1-0,2")),
    }


@both
def test_even_counts_come_before_racks(name: str) -> None:
    """G-17: with all members in one rack half of the partitions are far from them."""
    group = racked({"t1": [("x",), ("x",), ("y",), ("y",), ("y",)]}, a="x", b="x")
    assigned = assign(name, group)
    assert not faults(group, assigned)
    assert not movable(group, assigned)
    assert sorted(len(mine) for mine in assigned.values()) == [2, 3]
    assert all({tp.partition for tp in mine} & {0, 1} for mine in assigned.values())


@both
def test_members_without_a_rack_take_what_is_left(name: str) -> None:
    """G-17: they are near to nothing and far from nothing."""
    assert assign(name, racked(XYXY, a=None, b="x")) == {
        "a": list(tps("t1-1,3")),
        "b": list(tps("t1-0,2")),
    }


@both
def test_what_is_owned_and_near_stays_and_what_is_far_goes(name: str) -> None:
    """G-17, G-10: 1 stays with b, and 0 goes from b to a: cooperatively in a second round."""
    group = owning(racked({"t1": XYXY["t1"][:2]}, a="x", b="y"), b="t1-0,1")
    handed_over = assign(name, group)
    assert handed_over["b"] == list(tps("t1-1"))
    assert handed_over["a"] == (list(tps("t1-0")) if name == "sticky" else [])


@both
def test_racks_in_groups_with_different_subscriptions(name: str) -> None:
    """G-17: near first; then, for even counts, c takes t2-0 from b though it is far."""
    topics: dict[str, list[Racks]] = {**XYXY, "t2": [("x",), ("y",)]}
    group = racked(topics, a="y", b="x", c="y")
    group = with_other_topics(group, a="t1", b="t1 t2", c="t1 t2")
    assert assign(name, group) == {
        "a": list(tps("t1-1,3")),
        "b": list(tps("t1-0,2")),
        "c": list(tps("t2-0,1")),
    }


@both
def test_what_is_far_goes_in_groups_with_different_subscriptions(name: str) -> None:
    """G-17: as much as after a change of the subscription."""
    topics: dict[str, list[Racks]] = {"t1": [("x",), ("y",)], "t2": [("y",)]}
    group = with_other_topics(racked(topics, a="x", b="y"), a="t1", b="t1 t2")
    assigned = assign(name, owning(group, b="t1-0"))
    assert assigned["b"] == list(tps("t1-1 t2-0"))
    assert assigned["a"] == (list(tps("t1-0")) if name == "sticky" else [])


@both
@without_effect
def test_racks_that_make_no_difference(name: str, replicas: list[Racks], a: str | None) -> None:
    """G-17: then what is owned stays, however far."""
    group = owning(racked({"t1": replicas}, a=a, b=None), a="t1-1", b="t1-0")
    assert assign(name, group) == {"a": list(tps("t1-1")), "b": list(tps("t1-0"))}


def test_what_is_near_to_few_is_dealt_first() -> None:
    """KIP-881: or the members near to it were full when its turn comes."""
    group = racked({"t1": [("x", "y"), ("x", "y"), ("y",), ("y",)]}, a="x", b="y")
    assert assign("sticky", group) == {"a": list(tps("t1-0,1")), "b": list(tps("t1-2,3"))}
    racks = GroupRacks.of(group.cluster, group.members, tps("t1-0,1,2,3"))
    assert racks.hardest_first(tps("t1-0,1,2,3")) == list(tps("t1-2,3,0,1"))
    assert repr(racks) == "<GroupRacks 2 members in 2 racks>"
