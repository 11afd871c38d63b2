"""range and roundrobin, and the known results of all assignors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kfast.consumer.group.assignors import GroupMember, RangeAssignor, resolve_assignors
from kfast.consumer.group.assignors.range_racks import TopicShare
from kfast.consumer.group.assignors.sticky_claims import encode_assignment
from kfast.types import TopicPartition
from tests.reference.groups import Group, Racks, faults
from tests.unit.consumer.group.assignors.group_cases import (
    assign,
    group_of,
    plain,
    racked,
    tps,
    without_effect,
)

ALL = ("range", "roundrobin", "sticky", "cooperative-sticky")
every_assignor = pytest.mark.parametrize("name", ALL)


SIX = group_of({"t1": 6}, plain("a", "t1"), plain("b", "t1"))
THREE_AND_THREE = group_of({"t1": 3, "t2": 3}, plain("a", "t1", "t2"), plain("b", "t1", "t2"))
NEWCOMER = group_of(
    {"t1": 2, "t2": 2},
    GroupMember("a", ("t1", "t2"), tps("t1-0,1 t2-0,1"), 1),
    plain("b", "t1", "t2"),
)


@pytest.mark.parametrize(
    ("group", "name", "a", "b"),
    [
        (SIX, "range", "t1-0,1,2", "t1-3,4,5"),
        (SIX, "roundrobin", "t1-0,2,4", "t1-1,3,5"),
        (SIX, "sticky", "t1-0,2,4", "t1-1,3,5"),
        (SIX, "cooperative-sticky", "t1-0,2,4", "t1-1,3,5"),
        (THREE_AND_THREE, "range", "t1-0,1 t2-0,1", "t1-2 t2-2"),
        (THREE_AND_THREE, "roundrobin", "t1-0,2 t2-1", "t1-1 t2-0,2"),
        (THREE_AND_THREE, "sticky", "t1-0,2 t2-1", "t1-1 t2-0,2"),
        (THREE_AND_THREE, "cooperative-sticky", "t1-0,2 t2-1", "t1-1 t2-0,2"),
        (NEWCOMER, "range", "t1-0 t2-0", "t1-1 t2-1"),
        (NEWCOMER, "roundrobin", "t1-0 t2-0", "t1-1 t2-1"),
        (NEWCOMER, "sticky", "t1-0 t2-0", "t1-1 t2-1"),
        (NEWCOMER, "cooperative-sticky", "t1-0 t2-0", ""),
    ],
)
def test_known_results(group: Group, name: str, a: str, b: str) -> None:
    """G-17: the vectors computed with the Java client."""
    assert assign(name, group) == {"a": list(tps(a)), "b": list(tps(b))}


# --- what all have in common ----------------------------------------------------------------------


@every_assignor
def test_topics_without_partitions_are_left_out(name: str) -> None:
    """A subscribed topic that does not exist, or has no partitions yet, assigns nothing."""
    group = group_of({"t1": 1, "empty": 0}, plain("a", "t1", "missing", "empty"))
    assert assign(name, group) == {"a": list(tps("t1-0"))}
    assert assign(name, group_of({}, plain("a", "t1"), plain("b"))) == {"a": [], "b": []}


@every_assignor
def test_no_members_to_assign_to(name: str) -> None:
    assert assign(name, group_of({"t1": 3})) == {}
    unsubscribed = group_of({"t1": 3}, plain("a"), plain("b"))
    assert assign(name, unsubscribed) == {"a": [], "b": []}


@every_assignor
def test_topics_that_only_one_member_reads(name: str) -> None:
    group = group_of({"t1": 2, "t2": 2}, plain("a", "t1"), plain("b", "t2"))
    assert assign(name, group) == {"a": list(tps("t1-0,1")), "b": list(tps("t2-0,1"))}


@every_assignor
def test_more_members_than_partitions(name: str) -> None:
    group = group_of({"t1": 1}, *(plain(member_id, "t1") for member_id in "dcba"))
    assert assign(name, group) == {"a": list(tps("t1-0")), "b": [], "c": [], "d": []}


@every_assignor
def test_duplicate_members_and_topics(name: str) -> None:
    """G-19: of a member id that occurs twice the first counts; a topic named twice counts once."""
    (assignor,) = resolve_assignors([name])
    group = group_of({"t1": 4, "t2": 1}, plain("a", "t1", "t1"), plain("b", "t1"))
    assigned = assignor.assign(group.cluster, [*group.members, plain("a", "t2")])
    assert sorted(map(len, assigned.values())) == [2, 2]
    assert not faults(group, assigned)


@every_assignor
def test_the_order_of_members_does_not_matter(name: str) -> None:
    members = [plain(member_id, "t1", "t2") for member_id in "abcde"]
    first = group_of({"t1": 7, "t2": 3}, *members)
    assert assign(name, first) == assign(name, replace(first, members=tuple(members[::-1])))


@every_assignor
def test_claims_that_make_no_sense(name: str) -> None:
    """G-19: partitions that do not exist, negative ones, strange topics, repeated claims."""
    wrong = (*tps("t1-9 t3-0 t1-0,0"), TopicPartition("t1", -1))
    group = group_of({"t1": 2}, GroupMember("a", ("t1",), wrong, 7), plain("b", "t1"))
    assert assign(name, group) == {"a": list(tps("t1-0")), "b": list(tps("t1-1"))}


# --- static members -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_static_members_keep_their_order_under_a_new_id(name: str) -> None:
    """KIP-345: instance ids order before member ids, whatever the member ids are."""
    dynamic = plain("a", "t1")
    before = [replace(plain(i, "t1"), group_instance_id=n) for i, n in (("x", "i1"), ("c", "i2"))]
    after = [replace(plain(i, "t1"), group_instance_id=n) for i, n in (("b", "i1"), ("z", "i2"))]
    first = assign(name, group_of({"t1": 3}, dynamic, *before))
    assert first == {"x": list(tps("t1-0")), "c": list(tps("t1-1")), "a": list(tps("t1-2"))}
    second = assign(name, group_of({"t1": 3}, dynamic, *after))
    assert (second["b"], second["z"], second["a"]) == (first["x"], first["c"], first["a"])


# --- round robin ----------------------------------------------------------------------------------


def test_round_robin_passes_over_members_without_the_topic() -> None:
    group = group_of(
        {"t1": 1, "t2": 2, "t3": 3}, plain("a", "t1"), plain("b", "t1", "t2"),
        plain("c", "t1", "t2", "t3"),
    )  # fmt: skip
    assert assign("roundrobin", group) == {
        "a": list(tps("t1-0")),
        "b": list(tps("t2-0")),
        "c": list(tps("t2-1 t3-0,1,2")),
    }


# --- range and racks ------------------------------------------------------------------------------


def test_range_co_partitions_topics_of_one_size() -> None:
    group = group_of({"t1": 5, "t2": 5}, *(plain(m, "t1", "t2") for m in "abc"))
    for partitions in assign("range", group).values():
        assert [n for t, n in partitions if t == "t1"] == [n for t, n in partitions if t == "t2"]


def test_range_prefers_replicas_in_the_members_rack() -> None:
    """KIP-881: within the same shares, partitions go where a replica is near."""
    topics: dict[str, list[Racks]] = {"t1": [("x",), ("y",), ("x",), ("y",)]}
    assert assign("range", racked(topics, a="y", b="x")) == {
        "a": list(tps("t1-1,3")),
        "b": list(tps("t1-0,2")),
    }
    # No member gets more than without racks: the rest goes to members with room.
    assert assign("range", racked(topics, a="y", b="y")) == {
        "a": list(tps("t1-1,3")),
        "b": list(tps("t1-0,2")),
    }


def test_range_keeps_topics_together_in_racks() -> None:
    """KIP-881: a number is placed for all co-partitioned topics, or for none of them."""
    topics: dict[str, list[Racks]] = {
        "t1": [("x",), ("y",), ("x",)],
        "t2": [("y",), ("y",), ("x",)],
    }
    assert assign("range", racked(topics, a="x", b="y", c=None)) == {
        "a": list(tps("t1-2 t2-2")),
        "b": list(tps("t1-1 t2-1")),
        "c": list(tps("t1-0 t2-0")),
    }


@without_effect
def test_racks_that_make_no_difference(replicas: list[Racks], a: str | None) -> None:
    plain_result = {"a": list(tps("t1-0")), "b": list(tps("t1-1"))}
    assert assign("range", racked({"t1": replicas}, a=a, b=None)) == plain_result


def test_reprs() -> None:
    share = TopicShare("t1", {0: frozenset({"x"})}, {"a": "x"})
    assert repr(share) == "<TopicShare t1 left=1 of 1>"
    assert [repr(assignor) for assignor in resolve_assignors(ALL)] == [
        "<RangeAssignor>",
        "<RoundRobinAssignor>",
        "<StickyAssignor claim=((), -1)>",
        "<CooperativeStickyAssignor generation=-1>",
    ]


def test_assigning_remembers_nothing() -> None:
    """A leader may run its assignor for any number of groups and generations."""
    assignor = RangeAssignor()
    first = assignor.assign(SIX.cluster, SIX.members)
    assignor.assign(THREE_AND_THREE.cluster, THREE_AND_THREE.members)
    assert assignor.assign(SIX.cluster, SIX.members) == first
    assert assignor.subscription_user_data(frozenset({"t1"})) is None
    assignor.on_assignment(tps("t1-0"), 5, encode_assignment((), 1))
    assert assignor.subscription_user_data(frozenset({"t1"})) is None
