"""KIP-848 groups of several members against the fake coordinator, in virtual time."""

from __future__ import annotations

import random

import pytest

from kfast.consumer.group.kip848.membership import ConsumerMembership
from kfast.consumer.group.membership import RebalanceKind
from kfast.errors import GroupMaxSizeReachedError, UnsupportedVersionError
from kfast.testing.cluster import FakeCluster
from kfast.types import SubscriptionPattern, TopicPartition
from tests.end_to_end.virtual import make_cluster, write
from tests.simulation.loopback_group import LoopbackGroup, LoopbackMember

PARTITIONS = 6
RECORDS = 20
ALL = {TopicPartition("t", n) for n in range(PARTITIONS)}


def group(**configs: object) -> LoopbackGroup:
    cluster = make_cluster(3, PARTITIONS, RECORDS)
    cluster.features["group.version"] = 1
    return LoopbackGroup(cluster, group_protocol="consumer", **configs)


def grow(group: LoopbackGroup, count: int) -> list[LoopbackMember]:
    """Add members and wait until all share evenly."""
    members = [group.add() for _ in range(count)]
    assert group.run_until(lambda: group.is_balanced(PARTITIONS)), group
    return members


def everything(cluster: FakeCluster) -> set[tuple[TopicPartition, int]]:
    return {(tp, n) for tp in ALL for n in range(cluster.log(*tp).log_end_offset)}


def lost(member: LoopbackMember) -> list[set[TopicPartition]]:
    return [partitions for kind, partitions in member.calls if kind is RebalanceKind.LOSE]


def test_one_member_reads_everything() -> None:
    """States JOINING to STABLE against a coordinator."""
    virtual = group()
    (member,) = grow(virtual, 1)
    assert virtual.run_until(lambda: set(virtual.read_by()) == everything(virtual.cluster))
    assert member.membership.state_name == "stable"
    assert member.calls == [(RebalanceKind.ASSIGN, ALL)]
    assert set(virtual.read_by().values()) == {1}
    assert member.errors == []


def test_members_come_and_go_and_nothing_is_read_twice() -> None:
    """K-04, K-08: every change of hands commits first; the invariants hold at every step."""
    virtual = group()
    a, b = grow(virtual, 2)
    for tp in ALL:
        write(virtual.cluster, tp.partition, RECORDS)
    c = virtual.add()
    assert virtual.run_until(lambda: virtual.is_balanced(PARTITIONS))
    assert [len(share) for share in virtual.shares()] == [2, 2, 2]
    for tp in ALL:
        write(virtual.cluster, tp.partition, RECORDS)
    assert virtual.run_until(lambda: set(virtual.read_by()) == everything(virtual.cluster))
    virtual.run(6_000)
    assert set(virtual.read_by().values()) == {1}
    assert lost(a) == lost(b) == lost(c) == []
    commits = a.group.commits
    pending = commits.commit(a.consumed(frozenset(ALL)), virtual.clock.now, None)
    assert virtual.run_until(lambda: pending.is_done)
    assert pending.error is None
    left = a.leave()
    assert virtual.run_until(lambda: left.is_done)
    assert virtual.run_until(lambda: [len(s) for s in virtual.shares()] == [0, 3, 3])
    virtual.run(1_000)
    assert set(virtual.read_by().values()) == {1}


def test_a_member_that_is_killed_is_replaced_after_its_session() -> None:
    """G-26: what it had not committed is read again, by others; nothing is missing."""
    virtual = group()
    a, b = grow(virtual, 2)
    virtual.run(1_000)
    a.is_dead = True
    for tp in ALL:
        write(virtual.cluster, tp.partition, RECORDS)
    assert not virtual.run_until(lambda: b.delivered() == ALL, 40_000)
    assert virtual.run_until(lambda: b.delivered() == ALL, 20_000)
    assert virtual.run_until(lambda: set(virtual.read_by()) == everything(virtual.cluster))
    assert lost(b) == []


def test_a_fenced_member_loses_everything_and_rejoins() -> None:
    """K-06: same member id, a new epoch, no partition in two hands."""
    virtual = group()
    a, b = grow(virtual, 2)
    before = a.membership.identity
    assert before is not None
    mine = a.delivered()
    virtual.cluster.groups.expire_member("g", before.member_id)
    assert virtual.run_until(lambda: lost(a) == [mine])
    assert virtual.run_until(lambda: virtual.is_balanced(PARTITIONS))
    after = a.membership.identity
    assert after is not None
    assert after.member_id == before.member_id
    assert after.generation_id > before.generation_id
    assert lost(b) == []


def test_a_coordinator_that_moves_causes_no_rebalance() -> None:
    """G-25: heartbeats resume at the new one, no rebalance, fetching goes on."""
    virtual = group()
    members = grow(virtual, 3)
    virtual.run(6_000)
    calls = [list(member.calls) for member in members]
    cluster = virtual.cluster
    old = cluster.groups.coordinator("g")
    new = next(node for node in cluster.nodes if node != old)
    cluster.groups.move_coordinator("g", new, is_loading=True)
    for tp in ALL:
        write(cluster, tp.partition, RECORDS)
    assert virtual.run_until(lambda: set(virtual.read_by()) == everything(cluster), 10_000)
    cluster.groups.finish_loading("g")
    virtual.run(60_000)
    assert [member.calls for member in members] == calls
    assert all(member.membership.state_name == "stable" for member in members)
    assert all(member.errors == [] for member in members)
    beats = [r for r in cluster.requests.select(68) if r.time_ms > virtual.clock.now - 10_000]
    assert {r.node_id for r in beats} == {new}
    assert len(beats) >= 3


def test_a_coordinator_that_dies_is_survived() -> None:
    """G-25, G-04: a lost connection; the session goes on at the next one."""
    virtual = group()
    members = grow(virtual, 2)
    calls = [list(member.calls) for member in members]
    cluster = virtual.cluster
    cluster.stop_node(cluster.groups.coordinator("g"))
    for tp in ALL:
        write(cluster, tp.partition, RECORDS)
    virtual.run(60_000)
    assert set(virtual.read_by()) == everything(cluster)
    assert [member.calls for member in members] == calls


def test_without_poll_the_partitions_go_to_other_members() -> None:
    """K-08, G-06: leaves by itself, loses at its next poll, joins again."""
    virtual = group(max_poll_interval_ms=10_000)
    a, b = grow(virtual, 2)
    mine = a.delivered()
    a.is_polling = False
    assert virtual.run_until(lambda: b.delivered() == ALL, 20_000)
    assert a.membership.state_name == "stale"
    assert lost(a) == []
    a.is_polling = True
    assert virtual.run_until(lambda: lost(a) == [mine])
    assert virtual.run_until(lambda: virtual.is_balanced(PARTITIONS))


def test_a_slow_revocation_delays_the_new_owner() -> None:
    """K-04: a revoked partition has no owner until it is acknowledged."""
    virtual = group()
    (a,) = grow(virtual, 1)
    a.is_polling = False
    b = virtual.add()
    virtual.run(30_000)
    assert b.delivered() == set()
    assert len(a.delivered()) == 3, "held, not delivered"
    assert a.subscriptions.assigned_partitions() == ALL
    a.is_polling = True
    assert virtual.run_until(lambda: virtual.is_balanced(PARTITIONS))


def test_a_subscription_that_changes_moves_only_what_it_must() -> None:
    """K-02, K-04: new names at once, the old topic is revoked, the new one assigned."""
    virtual = group()
    virtual.cluster.create_topic("u", 2)
    a, b = grow(virtual, 2)
    a.subscriptions.subscribe(["u"])
    assert virtual.run_until(lambda: {tp.topic for tp in a.delivered()} == {"u"})
    assert virtual.run_until(lambda: b.delivered() == ALL)
    assert lost(a) == lost(b) == []


def test_new_partitions_and_topics_created_anew_are_followed() -> None:
    """K-05: partitions appear, and a topic comes back under another id."""
    virtual = group(metadata_max_age_ms=5_000)
    a, b = grow(virtual, 2)
    virtual.cluster.add_partitions("t", PARTITIONS + 2)
    assert virtual.run_until(lambda: virtual.is_balanced(PARTITIONS + 2))
    old = virtual.cluster.topic_id("t")
    virtual.checks_owners = False  # the old topic's partitions and the new one's are not the same
    virtual.cluster.recreate_topic("t", PARTITIONS)
    new = virtual.cluster.topic_id("t")
    assert new != old

    def owned(member: LoopbackMember) -> set[bytes]:
        membership = member.membership
        assert isinstance(membership, ConsumerMembership)
        return {tip.topic_id for tip in membership._reconciler.completed}

    assert virtual.run_until(lambda: owned(a) == owned(b) == {new}), virtual
    virtual.checks_owners = True
    virtual.run(1_000)
    assert virtual.is_balanced(PARTITIONS)


def test_a_pattern_that_the_brokers_match() -> None:
    """K-10: topics are known by id only, and found as they appear."""
    virtual = group()
    virtual.cluster.create_topic("x-1", 2)
    member = virtual.add()
    member.subscriptions.unsubscribe()
    member.subscriptions.subscribe_broker_pattern(SubscriptionPattern("x-.*"))
    assert virtual.run_until(lambda: {tp.topic for tp in member.delivered()} == {"x-1"})
    virtual.cluster.create_topic("x-2", 1)
    virtual.cluster.append("x-2", 0, [b"v"])
    assert virtual.run_until(lambda: {tp.topic for tp in member.delivered()} == {"x-1", "x-2"})
    assert virtual.run_until(lambda: member.read == {TopicPartition("x-2", 0): [0]})
    member.subscriptions.subscribe_broker_pattern(SubscriptionPattern("x-2"))
    assert virtual.run_until(lambda: {tp.topic for tp in member.delivered()} == {"x-2"})


def test_a_static_member_rejoins_with_its_partitions() -> None:
    """K-08, G-20: leaves with -2, its successor under another member id gets its place."""
    virtual = group()
    a = virtual.add(group_instance_id="one")
    b = virtual.add(group_instance_id="two")
    assert virtual.run_until(lambda: virtual.is_balanced(PARTITIONS))
    share, calls = a.delivered(), list(b.calls)
    left = a.leave(is_closing=True)
    assert virtual.run_until(lambda: left.is_done)
    a.is_dead = True
    successor = virtual.add(group_instance_id="one")
    assert virtual.run_until(lambda: successor.delivered() == share)
    assert b.calls == calls, "no other member noticed"


def test_a_full_group_and_a_cluster_without_the_protocol_are_reported() -> None:
    """K-09, K-11."""
    virtual = group()
    virtual.cluster.groups.settings.group_max_size = 1
    grow(virtual, 1)
    late = virtual.add()
    virtual.run(1_000)
    assert isinstance(late.errors[0], GroupMaxSizeReachedError)
    old = LoopbackGroup(make_cluster(release="3.9"), group_protocol="consumer")
    member = old.add()
    old.run(1_000)
    assert isinstance(member.errors[0], UnsupportedVersionError)
    assert "group_protocol" in str(member.errors[0])


@pytest.mark.parametrize("seed", range(8))
def test_churn_loses_nothing_and_no_partition_has_two_owners(seed: int) -> None:
    """G-26: joins, leaves, kills, fencing, absence and moving coordinators, in a random order."""
    rng = random.Random(seed)
    virtual = group(max_poll_interval_ms=15_000)
    cluster = virtual.cluster
    cluster.groups.settings.group_consumer_session_timeout_ms = 12_000
    cluster.groups.settings.group_consumer_heartbeat_interval_ms = 1_000
    virtual.add()
    for _ in range(25):
        virtual.run(rng.randrange(100, 4_000))
        living = [m for m in virtual.members if not m.is_dead]
        victim = rng.choice(living)
        identity = victim.membership.identity
        action = rng.randrange(7)
        if action <= 1 and len(living) < 4:
            virtual.add()
        elif action == 2 and len(living) > 1:
            victim.is_dead = True
        elif action == 3 and len(living) > 1:
            victim.leave(is_closing=True)
            virtual.run(200)
            victim.is_dead = True
        elif action == 4 and identity is not None:
            cluster.groups.expire_member("g", identity.member_id)
        elif action == 5:
            victim.is_polling = not victim.is_polling
        else:
            cluster.groups.move_coordinator("g", rng.choice(list(cluster.nodes)))
        write(cluster, rng.randrange(PARTITIONS), 5)
    for member in virtual.members:
        member.is_polling = True
    assert virtual.run_until(lambda: virtual.is_balanced(PARTITIONS), 90_000), virtual
    assert virtual.run_until(lambda: set(virtual.read_by()) == everything(cluster), 30_000)
    assert all(member.errors == [] for member in virtual.members)
