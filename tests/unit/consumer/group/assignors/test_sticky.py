"""sticky and cooperative-sticky: user data, claims, and which partitions stay."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from kfast.consumer.group.assignors import CooperativeStickyAssignor, GroupMember, StickyAssignor
from kfast.consumer.group.assignors.sticky_assignment import GeneralAssignment, Moves
from kfast.consumer.group.assignors.sticky_claims import (
    NOTHING,
    Claims,
    GroupRacks,
    decode_assignment,
    decode_generation,
    encode_assignment,
    encode_generation,
    settle_claims,
)
from kfast.types import TopicPartition
from tests.reference.groups import Group, faults, movable
from tests.unit.consumer.group.assignors.group_cases import assign, group_of, plain, tps

STICKY_V1 = bytes.fromhex(
    "000000020002743100000002000000000000000200027432000000010000000100000003"
)
OWNED = tps("t1-0,2 t2-1")
both = pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])


def owner(member_id: str, topics: str, owned: str, generation: int = 1) -> GroupMember:
    return GroupMember(member_id, tuple(topics.split()), tps(owned), generation)


# --- user data ------------------------------------------------------------------------------------


def test_sticky_user_data() -> None:
    """G-18: as the Java client writes and reads it."""
    assert encode_assignment(OWNED, 3) == STICKY_V1
    assert encode_assignment(reversed(OWNED), 3) == STICKY_V1
    assert decode_assignment(STICKY_V1) == (OWNED, 3)
    assert decode_assignment(STICKY_V1[:-4]) == (OWNED, -1), "version 0 lacks the generation"
    assert decode_assignment(encode_assignment((), 5)) == ((), 5)


def test_cooperative_user_data() -> None:
    """G-18: as the Java client writes and reads it."""
    assert encode_generation(3) == bytes.fromhex("00000003")
    assert encode_generation(-1) == bytes.fromhex("ffffffff")
    assert decode_generation(b"\0\0\0\3") == 3
    for nothing in (None, b"", b"\0\0\0", b"\xff\xff\xff\xff", b"\x80\0\0\0"):
        assert decode_generation(nothing) == -1


def test_unreadable_user_data_is_no_claim() -> None:
    """G-19: cut anywhere, or with lengths that lie, it counts as none and costs nothing."""
    for end in range(len(STICKY_V1)):
        if end != len(STICKY_V1) - 4:
            assert decode_assignment(STICKY_V1[:end]) == NOTHING, end
    assert decode_assignment(None) == NOTHING
    for position in (0, 4, 8, 18):
        for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"):
            data = STICKY_V1[:position] + lie + STICKY_V1[position + 4 :]
            assert decode_assignment(data) == NOTHING, (position, lie)
    assert decode_assignment(STICKY_V1[:6] + b"\xff\xfe" + STICKY_V1[8:]) == NOTHING, "not UTF-8"
    assert decode_assignment(STICKY_V1[:-4] + b"\x80\0\0\0") == (OWNED, -1)


def test_sticky_remembers_its_assignment() -> None:
    assignor = StickyAssignor()
    assert assignor.subscription_user_data(frozenset({"t1"})) is None
    assignor.on_assignment(OWNED, 3, None)
    assert assignor.subscription_user_data(frozenset({"t1"})) == STICKY_V1


def test_cooperative_sticky_remembers_its_generation() -> None:
    assignor = CooperativeStickyAssignor()
    assert assignor.subscription_user_data(frozenset({"t1"})) == b"\xff\xff\xff\xff"
    assignor.on_assignment(OWNED, 3, None)
    assert assignor.subscription_user_data(frozenset({"t1"})) == b"\0\0\0\3"


def test_sticky_reads_user_data_only() -> None:
    """Eager members have given up what they owned when they join."""
    group = group_of({"t1": 2}, plain("a", "t1"), owner("b", "t1", "t1-0", 9))
    assigned = StickyAssignor().assign(group.cluster, group.members)
    assert assigned == {"a": list(tps("t1-0")), "b": list(tps("t1-1"))}


def test_generations_of_old_members() -> None:
    """G-18: a member that sends subscription version 0 or 1 has its generation in user data."""
    group = group_of({"t1": 1}, owner("a", "t1", "t1-0", 5), owner("b", "t1", "t1-0", -1))
    a, b = group.members
    newer = replace(b, user_data=encode_generation(6))
    older = replace(b, user_data=encode_generation(4))
    assignor = CooperativeStickyAssignor()
    assert assignor.assign(group.cluster, [a, newer]) == {"a": [], "b": list(tps("t1-0"))}
    assert assignor.assign(group.cluster, [a, older]) == {"a": list(tps("t1-0")), "b": []}


# --- claims ---------------------------------------------------------------------------------------


def settled(*members: GroupMember) -> tuple[dict[str, str], str, dict[str, str]]:
    """Owners, doubled and outdated claims as text."""
    existing = {tp for member in members for tp in member.owned_partitions}
    claims = settle_claims(members, existing, lambda m: (m.owned_partitions, m.generation_id))
    return (
        {str(tp): member_id for tp, member_id in sorted(claims.owners.items())},
        " ".join(sorted(map(str, claims.doubled))),
        {str(tp): member_id for tp, member_id in sorted(claims.outdated.items())},
    )


def test_of_double_claims_the_higher_generation_wins(caplog: pytest.LogCaptureFixture) -> None:
    """G-19: of equal generations both lose, and a warning says so (KAFKA-12984)."""
    old, new = owner("a", "t1", "t1-0,1", 4), owner("b", "t1", "t1-1,2", 5)
    everything = {"t1-0": "a", "t1-1": "b", "t1-2": "b"}, "", {"t1-0": "a", "t1-1": "a"}
    assert settled(old, new) == everything
    assert settled(new, old) == everything
    assert not caplog.records
    alike = replace(old, generation_id=5)
    with caplog.at_level(logging.WARNING):
        assert settled(alike, new) == ({"t1-0": "a", "t1-2": "b"}, "t1-1", {})
    assert "1 partitions, such as t1-1, are claimed by several" in caplog.text
    third = owner("c", "t1", "t1-1", 6)
    assert settled(alike, new, third)[0]["t1-1"] == "c"
    assert settled(third, alike, new)[0]["t1-1"] == "c"
    assert settled(alike, new, replace(third, generation_id=5))[0].get("t1-1") is None


def test_the_newest_outdated_claim_is_remembered() -> None:
    claims = settled(
        owner("a", "t1", "t1-0", 1), owner("b", "t1", "t1-0", 3), owner("c", "t1", "t1-0", 2),
        owner("d", "t1", "t1-1", 9),
    )  # fmt: skip
    assert claims == ({"t1-0": "b", "t1-1": "d"}, "", {"t1-0": "b"})


@both
def test_both_claimants_of_one_partition_lose_it(name: str) -> None:
    """G-19: neither may go on; under the cooperative protocol no member gets it in this round."""
    group = group_of({"t1": 3}, owner("a", "t1", "t1-0,1", 2), owner("b", "t1", "t1-1,2", 2))
    assigned = assign(name, group)
    if name == "cooperative-sticky":
        assert assigned == {"a": list(tps("t1-0")), "b": list(tps("t1-2"))}
    else:
        assert not faults(group, assigned)


# --- stickiness -----------------------------------------------------------------------------------


def test_what_a_member_left_goes_to_those_with_least() -> None:
    group = group_of(
        {"t1": 6}, owner("a", "t1", "t1-0,3"), owner("c", "t1", "t1-2,5")
    )  # b has left with 1 and 4
    for name in ("sticky", "cooperative-sticky"):
        assert assign(name, group) == {"a": list(tps("t1-0,1,3")), "c": list(tps("t1-2,4,5"))}


def test_a_newcomer_takes_no_more_than_needed() -> None:
    group = group_of(
        {"t1": 6}, owner("a", "t1", "t1-0,1,2"), owner("b", "t1", "t1-3,4,5"), plain("c", "t1")
    )
    assert assign("sticky", group) == {
        "a": list(tps("t1-0,1")),
        "b": list(tps("t1-3,4")),
        "c": list(tps("t1-2,5")),
    }
    assert assign("cooperative-sticky", group)["c"] == [], "they have to be given up first"


def test_a_dropped_topic_is_taken_away() -> None:
    """Who is no longer subscribed to a topic loses it, though it says it owns it."""
    group = group_of({"t1": 2, "t2": 2}, owner("a", "t1", "t1-0,1 t2-0,1"), plain("b", "t1", "t2"))
    assert assign("sticky", group) == {"a": list(tps("t1-0,1")), "b": list(tps("t2-0,1"))}
    assert assign("cooperative-sticky", group) == {"a": list(tps("t1-0,1")), "b": []}


def test_a_partition_returns_to_who_had_it_before() -> None:
    """A member with an older generation gets back what helps the balance, if it may read it."""
    group = group_of(
        {"t1": 6, "t2": 1},
        owner("a", "t1", "t1-0,1,2,3,4,5", 2),
        owner("b", "t1", "t1-1", 1),
        owner("c", "t1", "t1-0", 1),
        owner("d", "t2", "t1-2", 1),
    )
    assigned = assign("sticky", group)
    assert tps("t1-1")[0] in assigned["b"], "without the old claims it would get 0"
    assert tps("t1-0")[0] in assigned["c"]
    assert assigned["d"] == list(tps("t2-0"))
    assert not faults(group, assigned)
    assert not movable(group, assigned)


def test_a_move_is_made_undone_rather_than_another_added() -> None:
    """Partitions 0-4 are of topic 0; members are numbers."""
    moves = Moves([0] * 5 + [1])
    moves.record(0, 7, 8)
    moves.record(1, 7, 8)
    assert moves.instead(2, 8, 7) == 1, "1 goes back to 7 instead"
    assert moves.instead(5, 8, 7) == 5, "of another topic"
    assert moves.instead(2, 8, 9) == 2
    moves.record(1, 8, 9)  # 1 has moved from 7 to 9 by now
    assert moves.instead(2, 9, 7) == 1
    moves.record(1, 9, 7)  # back where it was
    assert repr(moves) == "<Moves 1 partitions>"
    assert moves.instead(2, 9, 7) == 2
    assert moves.instead(0, 8, 7) == 0


def test_asymmetric_subscriptions_end() -> None:
    """G-17: chains of members that share one topic with the next (rdk#3159, #4783)."""
    count = 60
    topics = {f"t{i:02}": 9 for i in range(count)}
    names = list(topics)
    members = [
        GroupMember(
            f"m{i:02}",
            tuple(names[max(0, i - 1) : i + 1]),
            tuple(TopicPartition(names[i], p) for p in range(9)) if i < count // 2 else (),
            1 if i < count // 2 else -1,
        )
        for i in range(count)
    ]
    group = group_of(topics, *members)
    assigned = assign("sticky", group)
    assert not faults(group, assigned)
    assert not movable(group, assigned)


def test_the_run_prints_what_it_is() -> None:
    run = GeneralAssignment([plain("a", "t1")], {"t1": tps("t1-0")}, Claims(), GroupRacks({}, {}))
    assert repr(run) == "<GeneralAssignment members=1 topics=1>"


# --- cooperative rounds ---------------------------------------------------------------------------


def test_two_rounds_hand_over() -> None:
    """G-18: first the owner gives up, then the newcomer gets; what is kept is kept throughout."""
    first = group_of(
        {"t1": 2, "t2": 2}, owner("a", "t1 t2", "t1-0,1 t2-0,1", 1), plain("b", "t1", "t2")
    )
    assert assign("cooperative-sticky", first) == {"a": list(tps("t1-0 t2-0")), "b": []}
    second = Group(
        first.topics,
        (owner("a", "t1 t2", "t1-0 t2-0", 2), replace(first.members[1], generation_id=2)),
    )
    final = {"a": list(tps("t1-0 t2-0")), "b": list(tps("t1-1 t2-1"))}
    assert assign("cooperative-sticky", second) == final


# --- size -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("is_uniform", [True, False])
def test_large_groups(is_uniform: bool) -> None:
    """1,000 members and 10,000 partitions, all owned by one member, then a tenth leaves."""
    topics = {f"t{i:03}": 100 for i in range(100)}
    names = tuple(topics)
    everything = tuple(TopicPartition(name, i) for name in names for i in range(100))
    others = (
        GroupMember(f"m{i:04}", names if is_uniform or i % 3 else names[i % 50 :])
        for i in range(1, 1000)
    )
    group = group_of(topics, GroupMember("m0000", names, everything, 1), *others)
    assigned = assign("sticky", group)
    assert not faults(group, assigned)
    assert not movable(group, assigned)
    stayed = tuple(
        replace(m, owned_partitions=tuple(assigned[m.member_id]), generation_id=2)
        for m in group.members[100:]
    )
    smaller = replace(group, members=stayed)
    after = assign("cooperative-sticky", smaller)
    assert not faults(smaller, after)
    assert all(set(m.owned_partitions) <= set(after[m.member_id]) for m in stayed)
