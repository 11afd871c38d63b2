"""The coordinator of classic groups: joins, generations, sessions, static members."""

from __future__ import annotations

import pytest

from kfast.protocol.messages.heartbeat import HeartbeatRequest
from kfast.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kfast.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kfast.protocol.messages.sync_group import SyncGroupRequest
from tests.fake_broker.classic_groups import GroupState
from tests.fake_broker.cluster import FakeCluster
from tests.unit.fake_broker.group_clients import GROUP, Client, Member, group_of, settled


def joining(member_id: str = "", **fields: object) -> JoinGroupRequest:
    request = JoinGroupRequest(
        GROUP, 10_000, 60_000, member_id, None, "consumer", [JoinGroupRequestProtocol("range")]
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


# --- joining --------------------------------------------------------------------------------------


def test_a_new_member_needs_an_id_first(cluster: FakeCluster) -> None:
    """G-02: from version 4 on (KIP-394)."""
    client = Client(cluster)
    first = client.ask(joining(), 4)
    assert (first.error_code, first.member_id != "") == (79, True)
    client.send(joining(first.member_id), 4, 0)
    assert client.receive(0) is None
    answer = client.receive(50)
    assert (answer.error_code, answer.member_id, answer.generation_id) == (0, first.member_id, 1)
    assert (answer.leader, answer.protocol_name) == (first.member_id, "range")
    older = Client(cluster)
    older.send(joining(), 3, 60)
    assert older.receive(60) is None  # parked: it is a member at once
    assert group_of(cluster).state is GroupState.PREPARING_REBALANCE


def test_an_id_that_is_not_used_does_not_hold_the_group_up_for_ever(cluster: FakeCluster) -> None:
    member = Member(cluster)
    now = settled(member)
    Client(cluster).ask(joining(), 9, now)
    member.join(now)
    assert member.has_joined(now + 9_999) is False
    assert member.has_joined(now + 10_000)


def test_the_first_rebalance_waits_for_more_members(cluster: FakeCluster) -> None:
    """Every member that comes in the meantime extends the wait, up to the rebalance timeout."""
    cluster.groups.settings.group_initial_rebalance_delay_ms = 3_000
    first, second = Member(cluster), Member(cluster)
    first.join(0)
    second.join(2_000)
    assert not first.has_joined(5_999)
    assert first.has_joined(6_000)
    assert second.has_joined(6_000)
    assert first.is_leader
    assert not second.is_leader
    assert first.joined is not None
    assert [one.member_id for one in first.joined.members] == [first.member_id, second.member_id]
    assert second.joined is not None
    assert second.joined.members == []
    assert group_of(cluster).state is GroupState.COMPLETING_REBALANCE


def test_no_initial_delay(cluster: FakeCluster) -> None:
    cluster.groups.settings.group_initial_rebalance_delay_ms = 0
    member = Member(cluster, version=3)
    member.join(7)
    assert member.generation == 1


def test_the_protocol_most_members_prefer(cluster: FakeCluster) -> None:
    members = [
        Member(cluster, "range", "sticky"),
        Member(cluster, "sticky", "range"),
        Member(cluster, "roundrobin", "sticky", "range"),
    ]
    settled(*members)
    assert members[0].joined is not None
    assert members[0].joined.protocol_name == "sticky"


def test_members_without_a_common_protocol(cluster: FakeCluster) -> None:
    """G-16: error 23, and the group is left alone."""
    member = Member(cluster, "range")
    now = settled(member)
    other = Client(cluster)
    for request in (
        joining(protocols=[JoinGroupRequestProtocol("sticky")]),
        joining(protocol_type="connect"),
        joining(protocols=[]),
        joining(protocol_type=""),
    ):
        assert other.ask(request, 9, now).error_code == 23
    assert member.heartbeat(now) == 0


def test_joins_that_are_refused(cluster: FakeCluster) -> None:
    client = Client(cluster)
    assert client.ask(joining("m-1"), 9).error_code == 25
    assert client.ask(joining(session_timeout_ms=5_999), 9).error_code == 26
    assert client.ask(joining(session_timeout_ms=1_800_001), 9).error_code == 26
    assert client.ask(joining(group_id=""), 9).error_code == 24
    cluster.groups.settings.group_max_size = 1
    now = settled(Member(cluster))
    assert client.ask(joining(), 9, now).error_code == 81
    assert client.ask(joining("m-1", group_instance_id="i"), 9, now).error_code == 81
    cluster.groups.denied.add(GROUP)
    assert client.ask(joining(), 9, now).error_code == 30


@pytest.mark.parametrize("version", range(3, 10))
def test_every_version(cluster: FakeCluster, version: int) -> None:
    member = Member(cluster, version=version)
    settled(member)
    assert member.joined is not None
    assert len(member.joined.members) == 1
    assert Client(cluster).ask(joining("nobody"), version, 1_000).error_code == 25


# --- rebalances -----------------------------------------------------------------------------------


def test_a_second_member(cluster: FakeCluster) -> None:
    """G-03: the first one hears of it by heartbeat and rejoins; both get the next generation."""
    first, second = Member(cluster), Member(cluster)
    now = settled(first)
    second.join(now)
    assert second.receive(now + 5) is None
    assert first.heartbeat(now + 5) == 27
    assert first.commit(1, now + 5) == 0
    first.join(now + 6)
    assert first.has_joined(now + 6)
    assert second.has_joined(now + 6)
    assert (first.generation, second.generation) == (2, 2)
    assert first.is_leader
    assert first.commit(2, now + 7) == 27
    assert first.heartbeat(now + 7) == 0


def test_a_follower_waits_for_the_leader(cluster: FakeCluster) -> None:
    leader, follower = Member(cluster), Member(cluster)
    leader.join()
    follower.join()
    assert leader.has_joined(1_000)
    assert follower.has_joined(1_000)
    follower.sync(1_001)
    assert follower.synced(5_000) is None
    leader.sync(5_001, {leader.member_id: b"L"})
    assert leader.synced(5_001) == (0, b"L")
    assert follower.synced(5_001) == (0, b"")  # the leader forgot it
    assert group_of(cluster).state is GroupState.STABLE
    follower.sync(5_002)
    assert follower.synced(5_002) == (0, b"")


def test_a_member_that_joins_interrupts_syncing(cluster: FakeCluster) -> None:
    leader, follower, third = (Member(cluster) for _ in range(3))
    leader.join()
    follower.join()
    assert leader.has_joined(1_000)
    assert follower.has_joined(1_000)
    follower.sync(1_001)
    third.join(1_002)
    assert follower.synced(1_002) == (27, b"")
    leader.sync(1_003, {})
    assert leader.synced(1_003) == (27, b"")


def test_syncs_that_are_refused(cluster: FakeCluster) -> None:
    member = Member(cluster)
    client = Client(cluster)
    assert client.ask(SyncGroupRequest(GROUP, 1, "m"), 5).error_code == 25
    now = settled(member)
    me = member.member_id
    refused = [
        (SyncGroupRequest(GROUP, 1, "m"), 25),
        (SyncGroupRequest(GROUP, 0, me), 22),
        (SyncGroupRequest(GROUP, 1, me, protocol_name="sticky"), 23),
        (SyncGroupRequest(GROUP, 1, me, protocol_type="connect"), 23),
        (SyncGroupRequest("", 1, me), 24),
    ]
    for request, error in refused:
        assert client.ask(request, 5, now).error_code == error
    member.sync(now)
    assert member.synced(now) == (0, me.encode())


def test_a_lost_join_answer_is_given_again(cluster: FakeCluster) -> None:
    """The same join while the group completes starts no new rebalance."""
    leader, follower = Member(cluster), Member(cluster)
    leader.join()
    follower.join()
    assert leader.has_joined(1_000)
    assert follower.has_joined(1_000)
    for member, count in ((leader, 2), (follower, 0)):
        member.join(1_001)
        assert member.has_joined(1_001)
        assert member.generation == 1
        assert member.joined is not None
        assert len(member.joined.members) == count
    follower.protocols["range"] = b"other topics"
    follower.join(1_002)
    assert follower.receive(1_002) is None
    assert group_of(cluster).state is GroupState.PREPARING_REBALANCE


def test_who_may_start_a_rebalance_of_a_stable_group(cluster: FakeCluster) -> None:
    """The leader always, a follower only with a changed subscription."""
    leader, follower = Member(cluster), Member(cluster)
    now = settled(leader, follower)
    follower.join(now)
    assert follower.has_joined(now)
    assert follower.generation == 1
    assert leader.heartbeat(now) == 0
    leader.join(now)
    assert leader.receive(now) is None
    assert follower.heartbeat(now) == 27
    follower.join(now)
    assert follower.has_joined(now)
    assert leader.has_joined(now)
    assert follower.generation == 2


def test_who_does_not_rejoin_in_time_is_dropped(cluster: FakeCluster) -> None:
    """G-07: the group waits for its longest rebalance timeout."""
    first = Member(cluster, rebalance_timeout_ms=20_000, session_timeout_ms=60_000)
    second = Member(cluster, rebalance_timeout_ms=30_000, session_timeout_ms=60_000)
    now = settled(first, second)
    first.join(now)
    assert first.receive(now + 29_999) is None
    assert second.heartbeat(now + 29_999) == 27
    assert first.has_joined(now + 30_000)
    assert first.joined is not None
    assert [one.member_id for one in first.joined.members] == [first.member_id]
    assert second.heartbeat(now + 30_001) == 25


def test_a_leader_that_is_gone_is_replaced(cluster: FakeCluster) -> None:
    leader, follower = Member(cluster), Member(cluster)
    now = settled(leader, follower)
    assert leader.leave(now) == 0
    assert follower.heartbeat(now) == 27
    follower.join(now)
    assert follower.has_joined(now)
    assert follower.is_leader


def test_who_joins_but_does_not_sync_is_dropped(cluster: FakeCluster) -> None:
    leader = Member(cluster, rebalance_timeout_ms=20_000, session_timeout_ms=60_000)
    follower = Member(cluster, rebalance_timeout_ms=20_000, session_timeout_ms=60_000)
    leader.join()
    follower.join()
    assert leader.has_joined(1_000)
    assert follower.has_joined(1_000)
    follower.sync(1_000)
    assert follower.synced(20_000) is None
    assert follower.synced(25_000) == (27, b"")
    assert leader.heartbeat(25_000) == 25


# --- sessions and leaving -------------------------------------------------------------------------


def test_a_session_ends(cluster: FakeCluster) -> None:
    """G-26: without heartbeats the member is removed and the others rebalance."""
    first, second = Member(cluster), Member(cluster, session_timeout_ms=30_000)
    now = settled(first, second)
    assert first.heartbeat(now + 9_000) == 0
    assert second.heartbeat(now + 18_999) == 0
    assert second.heartbeat(now + 19_000) == 27
    assert first.heartbeat(now + 19_001) == 25


def test_commits_count_as_heartbeats(cluster: FakeCluster) -> None:
    member = Member(cluster)
    now = settled(member)
    assert member.commit(5, now + 9_000) == 0
    assert member.heartbeat(now + 18_000) == 0


def test_a_parked_member_has_no_session_but_a_new_one_five_minutes(cluster: FakeCluster) -> None:
    old = Member(cluster, rebalance_timeout_ms=900_000, session_timeout_ms=6_000)
    slow = Member(cluster, rebalance_timeout_ms=900_000, session_timeout_ms=1_800_000)
    new = Member(cluster, rebalance_timeout_ms=900_000)
    now = settled(old, slow)
    new.join(now)
    old.join(now)
    assert not old.has_joined(now + 299_999)
    assert not new.has_joined(now + 299_999)
    assert new.has_joined(now + 300_000)
    assert new.joined is not None
    assert new.joined.error_code == 25
    assert slow.heartbeat(now + 300_001) == 27
    slow.join(now + 300_002)
    assert old.has_joined(now + 300_002)
    assert old.heartbeat(now + 306_001) == 0


def test_leaving(cluster: FakeCluster) -> None:
    member, other = Member(cluster), Member(cluster)
    now = settled(member, other)
    assert other.leave(now) == 0
    assert other.leave(now) == 25
    assert member.heartbeat(now) == 27
    assert member.leave(now) == 0
    group = group_of(cluster)
    assert (group.state, group.generation) == (GroupState.EMPTY, 2)
    assert Client(cluster, "unknown").ask(LeaveGroupRequest("unknown"), 5).error_code == 25
    assert Client(cluster, "").ask(LeaveGroupRequest(""), 5).error_code == 24


def test_leaving_in_version_2(cluster: FakeCluster) -> None:
    member = Member(cluster)
    now = settled(member)
    client = Client(cluster)
    assert client.ask(LeaveGroupRequest(GROUP, "nobody"), 2, now).error_code == 25
    assert client.ask(LeaveGroupRequest(GROUP, member.member_id), 2, now).error_code == 0
    assert member.heartbeat(now) == 25


def test_a_member_that_leaves_while_parked(cluster: FakeCluster) -> None:
    member, other = Member(cluster), Member(cluster)
    now = settled(member, other)
    member.join(now)
    gone = LeaveGroupRequest(GROUP, members=[MemberIdentity(member.member_id)])
    assert Client(cluster).ask(gone, 5, now).members[0].error_code == 0
    assert member.has_joined(now)
    assert member.joined is not None
    assert member.joined.error_code == 25


def test_a_test_can_remove_a_member(cluster: FakeCluster) -> None:
    member = Member(cluster)
    now = settled(member)
    cluster.groups.expire_member(GROUP, member.member_id)
    assert member.heartbeat(now) == 25


def test_a_deleted_group(cluster: FakeCluster) -> None:
    member, other = Member(cluster), Member(cluster)
    now = settled(member, other)
    assert member.commit(3, now) == 0
    other.join(now)
    group = group_of(cluster)
    cluster.groups.delete_group(GROUP)
    assert group.state is GroupState.DEAD
    assert other.has_joined(now) is True
    assert other.joined is not None
    assert member.heartbeat(now) == 25
    assert cluster.groups.committed(GROUP) == {}


# --- static members -------------------------------------------------------------------------------


def test_a_static_member_comes_back(cluster: FakeCluster) -> None:
    """G-20: same assignment, same generation, no rebalance; the leader is told to skip."""
    leader = Member(cluster, instance_id="a")
    follower = Member(cluster, instance_id="b")
    now = settled(leader, follower)
    for old, is_leader in ((leader, True), (follower, False)):
        again = Member(cluster, instance_id=old.instance_id)
        again.join(now)
        assert again.member_id not in {"", old.member_id}
        assert again.generation == 1
        assert again.joined is not None
        assert again.joined.skip_assignment is is_leader
        assert (again.joined.leader == again.member_id) is is_leader
        assert len(again.joined.members) == (2 if is_leader else 0)
        again.sync(now)
        assert again.synced(now) == (0, old.member_id.encode())
        assert again.heartbeat(now) == 0
        assert old.heartbeat(now) == 82
        assert old.commit(1, now) == 82
        assert old.leave(now) == 82


def test_before_version_9_a_returning_leader_is_not_told_that_it_leads(
    cluster: FakeCluster,
) -> None:
    old = Member(cluster, instance_id="a", version=8)
    now = settled(old)
    again = Member(cluster, instance_id="a", version=8)
    again.join(now)
    assert again.joined is not None
    assert again.joined.leader == old.member_id
    assert again.joined.members == []
    assert again.is_leader is False


def test_a_static_member_with_other_protocols_rebalances(cluster: FakeCluster) -> None:
    leader, follower = Member(cluster, "range", "sticky"), Member(cluster, instance_id="b")
    follower.protocols = {"range": b"", "sticky": b""}
    now = settled(leader, follower)
    again = Member(cluster, "sticky", instance_id="b")
    again.join(now)
    assert again.receive(now) is None
    assert leader.heartbeat(now) == 27


def test_a_parked_join_is_fenced_by_the_next_instance(cluster: FakeCluster) -> None:
    """G-21: the newer process wins."""
    first = Member(cluster, instance_id="a")
    other = Member(cluster)
    now = settled(first, other)
    first.protocols["range"] = b"changed"
    first.join(now)
    second = Member(cluster, instance_id="a")
    second.join(now + 1)
    assert first.has_joined(now + 1)
    assert first.joined is not None
    assert first.joined.error_code == 82
    other.join(now + 2)
    assert second.has_joined(now + 2)
    assert second.generation == 2


def test_static_members_stay_until_their_session_ends(cluster: FakeCluster) -> None:
    static = Member(cluster, instance_id="a", rebalance_timeout_ms=5_000)
    dynamic = Member(cluster, rebalance_timeout_ms=5_000)
    now = settled(static, dynamic)
    assert static.heartbeat(now + 4_000) == 0
    dynamic.protocols["range"] = b"changed"
    dynamic.join(now + 4_000)
    assert not dynamic.has_joined(now + 8_999)
    assert dynamic.has_joined(now + 9_000)
    assert dynamic.joined is not None
    assert dynamic.generation == 2
    assert dynamic.is_leader
    assert len(dynamic.joined.members) == 2
    assert static.heartbeat(now + 9_001) == 22


def test_leaving_by_instance_id(cluster: FakeCluster) -> None:
    member = Member(cluster, instance_id="a")
    now = settled(member)
    client = Client(cluster)
    gone = [MemberIdentity("", "b"), MemberIdentity("m", "a"), MemberIdentity("", "a")]
    answer = client.ask(LeaveGroupRequest(GROUP, members=gone), 5, now)
    assert [one.error_code for one in answer.members] == [25, 82, 0]
    assert member.heartbeat(now) == 25


def test_unknown_instances(cluster: FakeCluster) -> None:
    member = Member(cluster, instance_id="a")
    now = settled(member)
    client = Client(cluster)
    assert client.ask(HeartbeatRequest(GROUP, 1, member.member_id, "b"), 4, now).error_code == 25
    wrong = joining("m-1", group_instance_id="a")
    assert client.ask(wrong, 9, now).error_code == 82
