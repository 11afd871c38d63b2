"""Classic groups whose coordinator moves or stops, and whose answers are lost or late."""

from __future__ import annotations

from kfast.protocol.messages.heartbeat import HeartbeatRequest
from kfast.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.fake_broker.classic_groups import GroupState
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.fault_actions import Delay, Drop, TopLevelError
from tests.fake_broker.releases import Api
from tests.unit.fake_broker.group_clients import GROUP, Client, Member, group_of, settled

# --- coordinators ---------------------------------------------------------------------------------


def test_only_the_coordinator_answers() -> None:
    """G-04: others say 16, a loading one 14."""
    cluster = FakeCluster(2)
    cluster.create_topic("t")
    member = Member(cluster)
    now = settled(member)
    old = cluster.groups.coordinator(GROUP)
    cluster.groups.move_coordinator(GROUP, 3 - old, is_loading=True)
    assert member.heartbeat(now) == 16
    assert member.commit(1, now) == 16
    assert member.leave(now) == 16
    member.connection = cluster.connect(3 - old)
    assert member.heartbeat(now) == 14
    cluster.groups.finish_loading(GROUP)
    assert member.heartbeat(now) == 0


def test_a_move_keeps_the_group_and_restarts_sessions() -> None:
    """G-25: no rebalance within the session."""
    cluster = FakeCluster(2)
    member, other = Member(cluster), Member(cluster)
    now = settled(member, other)
    target = 3 - cluster.groups.coordinator(GROUP)
    assert member.heartbeat(now + 9_000) == 0
    cluster.groups.start_loading(GROUP)
    cluster.groups.advance(now + 60_000)
    cluster.groups.move_coordinator(GROUP, target)
    cluster.groups.finish_loading(GROUP)
    for one in (member, other):
        one.connection = cluster.connect(target)
        assert one.heartbeat(now + 60_001) == 0
    assert group_of(cluster).generation == 1


def test_a_move_gives_up_what_is_parked_and_forgets_the_rebalance() -> None:
    cluster = FakeCluster(2)
    member, new = Member(cluster), Member(cluster)
    now = settled(member)
    new.join(now)
    cluster.groups.move_coordinator(GROUP, 3 - cluster.groups.coordinator(GROUP))
    assert new.has_joined(now)
    assert new.joined is not None
    assert new.joined.error_code == 16
    member.connection = new.connection = cluster.connect(cluster.groups.coordinator(GROUP))
    assert member.heartbeat(now) == 0
    assert new.heartbeat(now) == 25
    assert group_of(cluster).generation == 1


def test_a_stopped_node_hands_its_groups_over() -> None:
    cluster = FakeCluster(3)
    member = Member(cluster)
    now = settled(member)
    old = cluster.groups.coordinator(GROUP)
    cluster.stop_node(old)
    target = cluster.groups.coordinator(GROUP)
    assert target != old
    member.connection = cluster.connect(target)
    assert member.heartbeat(now) == 0
    cluster.start_node(old)
    assert cluster.groups.coordinator(GROUP) == target


def test_a_crash_nobody_noticed_keeps_the_coordinator() -> None:
    cluster = FakeCluster(3)
    old = cluster.groups.coordinator(GROUP)
    cluster.stop_node(old, fails_over=False)
    assert cluster.groups.coordinator(GROUP) == old


# --- faults ---------------------------------------------------------------------------------------


def test_an_injected_error_changes_nothing(cluster: FakeCluster) -> None:
    member = Member(cluster)
    now = settled(member)
    for api in (Api.HEARTBEAT, Api.LEAVE_GROUP, Api.OFFSET_COMMIT):
        cluster.faults.add(TopLevelError(14), api=api, times=2)
    for _ in range(2):
        assert member.heartbeat(now) == 14
        assert member.leave(now) == 14
        assert member.commit(1, now) == 14
    assert member.heartbeat(now) == 0
    cluster.faults.add(TopLevelError(15), api=Api.JOIN_GROUP)
    cluster.faults.add(TopLevelError(15), api=Api.SYNC_GROUP)
    member.join(now)
    assert member.has_joined(now)
    assert member.joined is not None
    assert member.joined.error_code == 15
    member.sync(now)
    assert member.synced(now) == (15, b"")
    assert cluster.groups.committed(GROUP) == {}


def test_an_answer_lost_after_it_took_effect(cluster: FakeCluster) -> None:
    member = Member(cluster)
    now = settled(member)
    cluster.faults.add(Drop(), api=Api.LEAVE_GROUP)
    identity = MemberIdentity(member.member_id)
    member.send(LeaveGroupRequest(GROUP, members=[identity]), 5, now)
    assert member.connection.is_closed
    assert Member(cluster).heartbeat(now) == 25
    assert group_of(cluster).state is GroupState.EMPTY


def test_a_parked_answer_can_be_delayed_further(cluster: FakeCluster) -> None:
    cluster.faults.add(Delay(500), api=Api.JOIN_GROUP, where=lambda entry: entry.message.member_id)
    member = Member(cluster)
    member.join()
    assert not member.has_joined(50)
    assert not member.has_joined(549)
    assert member.has_joined(550)


def test_a_member_whose_connection_breaks_while_parked(cluster: FakeCluster) -> None:
    """It is still a member; when it joins again the old answer is nobody's."""
    member, other = Member(cluster), Member(cluster)
    now = settled(member, other)
    member.join(now)
    member.connection.close(is_reset=True)
    member.connection = cluster.connect(1)
    member.join(now + 1)
    other.join(now + 2)
    assert member.has_joined(now + 2)
    assert member.generation == 2


def test_time_alone_wakes_a_parked_connection(cluster: FakeCluster) -> None:
    """What drives the connections knows when to look again."""
    member = Member(cluster)
    member.join(100)
    assert member.connection.next_event_ms() == 150
    assert member.has_joined(150)
    assert member.connection.next_event_ms() is None


def test_an_answer_made_ready_by_another_connection_is_due_at_once(cluster: FakeCluster) -> None:
    """Whoever sleeps until the next event must not sleep over it."""
    member, other = Member(cluster), Client(cluster)
    member.join(100)
    other.ask(HeartbeatRequest(GROUP, 1, "nobody"), 4, 150)  # time has come to 150 by this
    due_ms = member.connection.next_event_ms()
    assert due_ms is not None
    assert due_ms <= 150
    assert member.has_joined(150)
