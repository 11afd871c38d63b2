"""Properties of the assignors: whatever the group, the assignment is legal, even and calm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfast.consumer.group.assignors import (
    ASSIGNORS,
    CooperativeStickyAssignor,
    GroupMember,
    RebalanceProtocol,
    StickyAssignor,
    check_assignment,
)
from kfast.consumer.group.assignors.sticky_claims import decode_assignment, encode_assignment
from kfast.types import TopicPartition
from tests.reference.groups import NO_RACK, Assigned, Group, faults, movable
from tests.soaking import examples

TOPICS = ["t0", "t1", "t2", "t3", "t4"]
every_assignor = pytest.mark.parametrize("name", ASSIGNORS)
quickly = examples(60)


@st.composite
def topic_sizes(draw: st.DrawFn) -> dict[str, Sequence[tuple[str, ...]]]:
    """Topics with up to 8 partitions, some with replicas in racks."""
    racks = st.lists(st.sampled_from("xyz"), min_size=1, max_size=2, unique=True).map(tuple)
    sizes = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 8), max_size=5))
    if draw(st.booleans()):
        return {name: [NO_RACK] * count for name, count in sizes.items()}
    return {
        name: draw(st.lists(racks, min_size=count, max_size=count)) for name, count in sizes.items()
    }


@st.composite
def groups(draw: st.DrawFn, *, is_uniform: bool | None = None) -> Group:
    """Groups with any subscriptions, ids and claims, most of them nonsense."""
    topics = draw(topic_sizes())
    ids = draw(st.lists(st.text(max_size=3), max_size=7, unique=True))
    subscriptions = st.lists(st.sampled_from([*TOPICS, "missing"]), max_size=6).map(tuple)
    common = draw(st.none() | subscriptions) if is_uniform is None else None
    common = draw(subscriptions) if is_uniform else common
    partitions = st.builds(
        TopicPartition, st.sampled_from([*TOPICS, "missing"]), st.integers(-1, 8)
    )
    members = tuple(
        GroupMember(
            member_id,
            draw(subscriptions) if common is None else common,
            tuple(draw(st.lists(partitions, max_size=12))),
            draw(st.integers(-1, 2)),
            group_instance_id=draw(st.none() | st.text(min_size=1, max_size=2)),
            rack_id=draw(st.sampled_from([None, "", "x", "y", "far"])),
        )
        for member_id in ids
    )
    return Group(topics, members)


def sticky(group: Group) -> dict[str, list[TopicPartition]]:
    return StickyAssignor().assign(group.cluster, group.members_for("sticky"))


def with_owned(group: Group, assigned: Assigned, generation: int) -> Group:
    """The group after its members have taken over an assignment."""
    members = (
        replace(
            member,
            owned_partitions=tuple(assigned.get(member.member_id, ())),
            generation_id=generation,
        )
        for member in group.members
    )
    return replace(group, members=tuple(members))


def without_racks(group: Group) -> Group:
    return replace(group, members=tuple(replace(m, rack_id=None) for m in group.members))


def count_kept(group: Group, assigned: Assigned) -> int:
    return sum(len(set(m.owned_partitions) & set(assigned[m.member_id])) for m in group.members)


# --- every assignor -------------------------------------------------------------------------------


@every_assignor
@quickly
@given(group=groups())
def test_every_partition_once_and_only_to_subscribers(name: str, group: Group) -> None:
    """G-17, G-19: for any subscriptions and any claims; cooperative ones may wait a round."""
    assignor = ASSIGNORS[name]()
    is_cooperative = RebalanceProtocol.COOPERATIVE in assignor.supported_protocols
    members = group.members_for(name)
    assigned = assignor.assign(group.cluster, members)
    assert not faults(group, assigned, may_withhold=is_cooperative)
    assert check_assignment(assignor, assigned, members, RebalanceProtocol.EAGER) == assigned
    assert assigned == assignor.assign(group.cluster, members[::-1]), "order does not matter"


@quickly
@given(group=groups())
def test_range_gives_equal_runs(group: Group) -> None:
    """Of each topic no member gets two more than another subscriber, racks or not."""
    assigned = ASSIGNORS["range"]().assign(group.cluster, group.members)
    for topic in group.topics:
        shares = [
            sum(tp.topic == topic for tp in assigned[member.member_id])
            for member in group.members
            if topic in member.topics
        ]
        assert not shares or max(shares) - min(shares) <= 1


@quickly
@given(group=groups(is_uniform=True))
def test_round_robin_is_even_for_equal_subscriptions(group: Group) -> None:
    shares = [
        len(p) for p in ASSIGNORS["roundrobin"]().assign(group.cluster, group.members).values()
    ]
    assert not shares or max(shares) - min(shares) <= 1


# --- the sticky ones ------------------------------------------------------------------------------


@examples(200)
@given(group=groups())
def test_sticky_is_balanced_and_then_stays(group: Group) -> None:
    """G-17, G-18: no move could make it more even, and without a change nothing moves."""
    group = without_racks(group)
    assigned = sticky(group)
    assert not movable(group, assigned)
    settled = with_owned(group, assigned, 5)
    again = sticky(settled)
    assert {m: set(p) for m, p in again.items()} == {m: set(p) for m, p in assigned.items()}


@quickly
@given(group=groups())
def test_sticky_with_racks_is_balanced_and_soon_stays(group: Group) -> None:
    """G-17, G-18: partitions may move towards a replica once more, as in Java, then no longer."""
    for generation in range(5, 9):
        assigned = sticky(group)
        assert not movable(group, assigned)
        if all(set(assigned[m.member_id]) == set(m.owned_partitions) for m in group.members):
            break
        group = with_owned(group, assigned, generation)
    else:
        pytest.fail("still moving after 4 rounds")


@examples(200)
@given(group=groups(is_uniform=True), leaving=st.integers(0, 3), joining=st.integers(0, 3))
def test_as_many_stay_as_balance_allows(group: Group, leaving: int, joining: int) -> None:
    """G-18: members that leave or join move no more partitions than they have to."""
    group = without_racks(group)
    before = with_owned(group, sticky(group), 5)
    topics = group.members[0].topics if group.members else ("t0",)
    newcomers = tuple(GroupMember(f"new{i}", topics) for i in range(joining))
    after = replace(before, members=before.members[leaving:] + newcomers)
    assigned = sticky(after)
    assert not faults(after, assigned)
    if not after.members:
        return
    low, extra = divmod(sum(map(len, assigned.values())), len(after.members))
    owned = [len(member.owned_partitions) for member in after.members]
    possible = sum(min(n, low) for n in owned) + min(extra, sum(n > low for n in owned))
    assert count_kept(after, assigned) == possible


@quickly
@given(group=groups(is_uniform=False), leaving=st.integers(0, 3), data=st.data())
def test_mixed_subscriptions_after_a_change(
    group: Group, leaving: int, data: st.DataObject
) -> None:
    """G-17: members that leave, and one that subscribes to something else."""
    before = with_owned(group, sticky(group), 5)
    members = list(before.members[leaving:])
    if members:
        other = tuple(data.draw(st.lists(st.sampled_from(TOPICS), max_size=3)))
        members[0] = replace(members[0], topics=other)
    after = replace(before, members=tuple(members))
    assigned = sticky(after)
    assert not faults(after, assigned)
    assert not movable(after, assigned)


@quickly
@given(
    partitions=st.lists(
        st.builds(TopicPartition, st.text(), st.integers(0, 2**31 - 1)), unique=True
    ),
    generation=st.integers(-1, 2**31 - 1),
)
def test_user_data_is_read_back(partitions: list[TopicPartition], generation: int) -> None:
    data = encode_assignment(partitions, generation)
    assert decode_assignment(data) == (tuple(sorted(partitions)), generation)


@examples(300)
@given(data=st.binary(max_size=60))
def test_any_user_data_can_be_read(data: bytes) -> None:
    """G-19: whatever another member sends, assigning goes on."""
    member = GroupMember("a", ("t0",), user_data=data)
    group = Group({"t0": [NO_RACK]}, (member,))
    for name in ("sticky", "cooperative-sticky"):
        assert ASSIGNORS[name]().assign(group.cluster, [member]) == {"a": [TopicPartition("t0", 0)]}


# --- cooperative rounds ---------------------------------------------------------------------------


def owners_of(group: Group) -> Mapping[TopicPartition, set[str]]:
    found: dict[TopicPartition, set[str]] = {}
    for member in group.members:
        for tp in member.owned_partitions:
            found.setdefault(tp, set()).add(member.member_id)
    return found


@examples(200)
@given(group=groups())
def test_cooperative_rounds_converge_without_hand_over(group: Group) -> None:
    """G-18: nothing goes straight from an owner to another member, and soon all is handed out."""
    assignor = CooperativeStickyAssignor()
    for generation in range(3, 9):
        members = group.members_for("cooperative-sticky")
        assigned = assignor.assign(group.cluster, members)
        owners = owners_of(group)
        for member in group.members:
            for tp in set(assigned[member.member_id]) - set(member.owned_partitions):
                assert tp not in owners, f"{tp} of {owners[tp]} handed to {member.member_id}"
        must_rejoin = any(
            set(member.owned_partitions) - set(assigned[member.member_id])
            for member in group.members
        )
        group = with_owned(group, assigned, generation)
        if not must_rejoin:
            break
    else:
        pytest.fail("still moving after 6 rounds")
    assert not faults(group, assigned)
    assert not movable(group, assigned)
