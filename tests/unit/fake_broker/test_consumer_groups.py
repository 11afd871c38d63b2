"""The coordinator of KIP-848 groups: epochs, reconciliation, fencing, static members."""

from __future__ import annotations

from typing import Any

import pytest

from kfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kfast.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.consumer_groups import ConsumerGroup
from tests.fake_broker.consumer_members import MemberState
from tests.fake_broker.fault_actions import Drop, TopLevelError
from tests.fake_broker.releases import Api
from tests.unit.fake_broker.group_clients import GROUP, Client, Member, settled
from tests.unit.fake_broker.wire import frame

Partition = tuple[str, int]


def group_of(cluster: FakeCluster) -> ConsumerGroup:
    group = cluster.groups.consumer(GROUP)
    assert group is not None
    return group


class Consumer(Client):
    """A KIP-848 member.

    Attributes
    ----------
    epoch : int
        From the last answer without error.
    owned : set
        What it was assigned last; acknowledged by ``acknowledge``.
    """

    def __init__(self, cluster: FakeCluster, member_id: str, instance_id: str | None = None):
        super().__init__(cluster)
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: set[Partition] = set()

    def ask_as(self, epoch: int, now_ms: int = 0, version: int = 1, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(GROUP, self.member_id, epoch, self.instance_id)
        for name, value in fields.items():
            setattr(request, name, value)
        answer = self.ask(request, version, now_ms)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {
                    (self.cluster.topic_name(topic.topic_id), number)
                    for topic in answer.assignment.topic_partitions
                    for number in topic.partitions
                }
        return answer

    def join(self, *topics: str, now_ms: int = 0, **fields: Any) -> Any:
        fields.setdefault("subscribed_topic_names", [*topics])
        fields.setdefault("rebalance_timeout_ms", 60_000)
        fields.setdefault("topic_partitions", [])
        return self.ask_as(0, now_ms, **fields)

    def beat(self, now_ms: int = 0, **fields: Any) -> Any:
        return self.ask_as(self.epoch, now_ms, **fields)

    def acknowledge(self, now_ms: int = 0, owned: set[Partition] | None = None) -> Any:
        """Say what is owned."""
        topics: dict[str, TopicPartitions] = {}
        for name, number in sorted(self.owned if owned is None else owned):
            entry = TopicPartitions(self.cluster.topic_id(name))
            topics.setdefault(name, entry).partitions.append(number)
        return self.beat(now_ms, topic_partitions=[*topics.values()])

    def leave(self, now_ms: int = 0, epoch: int = -1) -> Any:
        return self.ask_as(epoch, now_ms)


def numbers(consumer: Consumer) -> set[int]:
    return {number for _, number in consumer.owned}


# --- joining --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_the_first_member(cluster: FakeCluster, version: int) -> None:
    consumer = Consumer(cluster, "m")
    answer = consumer.join("t", "later", version=version)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m", 2)
    assert answer.heartbeat_interval_ms == 5_000
    assert numbers(consumer) == {0, 1, 2, 3}
    assert consumer.beat().assignment is None
    assert consumer.acknowledge().assignment is None
    full = consumer.beat(
        subscribed_topic_names=["t"],
        rebalance_timeout_ms=60_000,
        topic_partitions=[],
    )
    assert full.assignment is not None


def test_version_0_gives_member_ids(cluster: FakeCluster) -> None:
    answer = Consumer(cluster, "").join("t", version=0)
    assert answer.error_code == 0
    assert answer.member_id


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"rebalance_timeout_ms": -1}, 42),
        ({"topic_partitions": None}, 42),
        ({"topic_partitions": [TopicPartitions(bytes(16), [0])]}, 42),
        ({"subscribed_topic_names": None}, 42),
        ({"member_id": ""}, 42),
        ({"group_id": ""}, 42),
        ({"instance_id": ""}, 42),
        ({"rack_id": ""}, 42),
        ({"member_epoch": -2}, 42),
        ({"member_epoch": -3}, 42),
        ({"server_assignor": "sticky"}, 112),
        ({"subscribed_topic_regex": "("}, 128),
        ({"subscribed_topic_names": []}, 0),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}, 0),
        ({"server_assignor": "range"}, 0),
        ({"member_epoch": 1}, 69),
        ({"member_epoch": -1}, 69),
    ],
)
def test_joins_that_are_refused(cluster: FakeCluster, fields: dict[str, Any], error: int) -> None:
    """The rules seen on a 4.3 broker; error answers carry epoch 0 and interval 0."""
    group_id = fields.get("group_id", GROUP)
    cluster.groups.move_coordinator(group_id, 1)
    answer = Consumer(cluster, "m").join("t", **fields)
    assert answer.error_code == error
    if error:
        assert (answer.member_epoch, answer.heartbeat_interval_ms) == (0, 0)
        assert answer.assignment is None


def test_who_is_not_let_in(cluster: FakeCluster) -> None:
    cluster.groups.denied.add(GROUP)
    assert Consumer(cluster, "a").join("t").error_code == 30
    cluster.groups.denied.clear()
    cluster.denied_topics.add("t")
    assert Consumer(cluster, "a").join("t").error_code == 29
    cluster.denied_topics.clear()
    cluster.features["group.version"] = 0
    assert Consumer(cluster, "a").join("t").error_code == 35
    cluster.features["group.version"] = 1
    cluster.groups.settings.group_max_size = 1
    assert Consumer(cluster, "a").join("t").error_code == 0
    assert Consumer(cluster, "b").join("t").error_code == 81
    assert Consumer(cluster, "a").join("t").error_code == 0


def test_both_protocols_do_not_mix(cluster: FakeCluster) -> None:
    member = Member(cluster)
    now = settled(member)
    consumer = Consumer(cluster, "m")
    assert consumer.join("t", now_ms=now).error_code == 69
    assert member.leave(now) == 0
    assert consumer.join("t", now_ms=now).error_code == 0
    other = Member(cluster)
    other.join(now)
    assert other.joined is not None
    assert other.joined.error_code == 23
    assert member.heartbeat(now) == 25
    assert consumer.leave(now).error_code == 0
    settled(other, now_ms=now)


# --- reconciliation -------------------------------------------------------------------------------


def test_partitions_move_when_their_owner_gave_them_up(cluster: FakeCluster) -> None:
    first, second = Consumer(cluster, "a"), Consumer(cluster, "b")
    first.join("t")
    second.join("t")
    assert (numbers(second), second.epoch) == (set(), 3)
    members = group_of(cluster).members
    assert members["b"].state is MemberState.UNRELEASED_PARTITIONS

    before = first.epoch
    told = first.beat()
    assert (told.assignment is not None, first.epoch) == (True, before)
    assert numbers(first) == {0, 1}
    assert members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert second.beat().assignment is None
    assert first.beat().assignment is None  # says nothing of what it owns
    first.acknowledge(owned={("t", number) for number in range(3)})
    assert first.epoch == before
    first.acknowledge()
    assert first.epoch == 3
    second.beat()
    assert numbers(second) == {2, 3}
    assert {one.state for one in members.values()} == {MemberState.STABLE}


def test_a_member_that_leaves_frees_its_partitions(cluster: FakeCluster) -> None:
    first, second = Consumer(cluster, "a"), Consumer(cluster, "b")
    first.join("t")
    second.join("t")
    answer = first.leave()
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (0, -1, 0)
    second.beat()
    assert numbers(second) == {0, 1, 2, 3}
    assert first.leave().error_code == 25


def test_changed_subscriptions(cluster: FakeCluster) -> None:
    cluster.create_topic("u", 2)
    consumer = Consumer(cluster, "a")
    consumer.join("t")
    epoch = consumer.epoch
    consumer.beat(subscribed_topic_names=["u"])
    assert consumer.owned == set()  # what it gives up comes first
    consumer.acknowledge()
    assert consumer.owned == {("u", 0), ("u", 1)}
    assert consumer.epoch == epoch + 1
    consumer.beat(subscribed_topic_names=["u"])
    assert consumer.epoch == epoch + 1


def test_topics_that_come_grow_and_go(cluster: FakeCluster) -> None:
    consumer = Consumer(cluster, "a")
    consumer.join("u")
    assert consumer.owned == set()
    cluster.create_topic("u", 1)
    consumer.beat()
    assert consumer.owned == {("u", 0)}
    cluster.add_partitions("u", 3)
    consumer.beat()
    assert consumer.owned == {("u", 0), ("u", 1), ("u", 2)}
    cluster.delete_topic("u")
    consumer.beat()
    assert consumer.owned == set()


def test_patterns(cluster: FakeCluster) -> None:
    """A pattern matches whole names, of topics that come later too; empty takes it back."""
    cluster.create_topic("tt", 1)
    cluster.create_topic("secret", 1)
    cluster.create_topic("__t", 1, is_internal=True)
    cluster.denied_topics.add("secret")
    consumer = Consumer(cluster, "a")
    consumer.join(subscribed_topic_names=None, subscribed_topic_regex="t|s.*|__t|new.*")
    assert {topic for topic, _ in consumer.owned} == {"t"}
    cluster.create_topic("new1", 1)
    consumer.beat()
    assert {topic for topic, _ in consumer.owned} == {"t", "new1"}
    consumer.beat(subscribed_topic_regex="", subscribed_topic_names=["tt"])
    consumer.acknowledge()
    assert consumer.owned == {("tt", 0)}


def test_the_assignor_most_members_ask_for(cluster: FakeCluster) -> None:
    cluster.create_topic("u", 3)
    members = [Consumer(cluster, "a"), Consumer(cluster, "b")]
    for member in members:
        member.join("t", "u", server_assignor="range")
    for _ in range(2):
        for member in members:
            member.acknowledge()
    assert members[0].owned == {("t", 0), ("t", 1), ("u", 0), ("u", 1)}
    members[0].beat(server_assignor="uniform")
    members[1].beat(server_assignor="uniform")
    for _ in range(3):
        for member in members:
            member.acknowledge()
    assert {len(member.owned) for member in members} == {3, 4}


# --- epochs ---------------------------------------------------------------------------------------


def test_wrong_epochs_are_fenced(cluster: FakeCluster) -> None:
    consumer = Consumer(cluster, "a")
    consumer.join("t")
    assert consumer.ask_as(1).error_code == 110
    assert consumer.ask_as(99).error_code == 110
    assert Consumer(cluster, "b").ask_as(2).error_code == 25
    assert consumer.beat().error_code == 0


def test_a_lost_answer_is_forgiven(cluster: FakeCluster) -> None:
    """The epoch before is accepted from a member that owns no more than it was given."""
    first, second = Consumer(cluster, "a"), Consumer(cluster, "b")
    first.join("t")
    first.acknowledge()
    second.join("t")
    first.beat()
    old = first.epoch
    first.acknowledge()
    assert first.epoch == old + 1
    first.epoch = old
    assert first.beat().error_code == 110
    assert first.acknowledge(owned={("t", 0), ("t", 3)}).error_code == 110
    assert first.acknowledge(owned={("t", 0)}).error_code == 0
    assert first.epoch == old + 1


def test_a_known_member_joins_again(cluster: FakeCluster) -> None:
    consumer = Consumer(cluster, "a")
    consumer.join("t")
    answer = consumer.join("t")
    assert (answer.error_code, answer.member_epoch) == (0, 2)
    assert numbers(consumer) == {0, 1, 2, 3}


# --- time -----------------------------------------------------------------------------------------


def test_a_session_ends(cluster: FakeCluster) -> None:
    first, second = Consumer(cluster, "a"), Consumer(cluster, "b")
    first.join("t")
    second.join("t", now_ms=1_000)
    second.beat(44_999)
    assert numbers(second) == set()
    second.beat(45_000)
    assert numbers(second) == {0, 1, 2, 3}
    assert first.beat(45_001).error_code == 25


def test_who_does_not_give_up_in_time_is_removed(cluster: FakeCluster) -> None:
    first, second = Consumer(cluster, "a"), Consumer(cluster, "b")
    first.join("t", rebalance_timeout_ms=20_000)
    second.join("t")
    first.beat(1_000)
    first.beat(20_999)
    second.beat(20_999)
    assert numbers(second) == set()
    second.beat(21_000)
    assert numbers(second) == {0, 1, 2, 3}
    assert first.beat(21_000).error_code == 25


def test_a_move_restarts_sessions(cluster: FakeCluster) -> None:
    """G-25"""
    consumer = Consumer(cluster, "a")
    consumer.join("t")
    cluster.groups.start_loading(GROUP)
    assert consumer.beat(44_000).error_code == 14
    cluster.groups.advance(50_000)
    cluster.groups.finish_loading(GROUP)
    assert consumer.beat(50_000).error_code == 0
    assert consumer.epoch == 2


# --- static members -------------------------------------------------------------------------------


def test_a_static_member_comes_back(cluster: FakeCluster) -> None:
    """G-20: after -2 its partitions wait for it, and nobody else's change."""
    first, other = Consumer(cluster, "a", "i"), Consumer(cluster, "b")
    first.join("t")
    other.join("t")
    first.beat()
    first.acknowledge()
    other.beat()
    epoch = group_of(cluster).epoch
    second = Consumer(cluster, "c", "i")
    assert second.join("t").error_code == 111
    assert first.leave(epoch=-2).member_epoch == -2
    other.beat()
    assert numbers(other) == {2, 3}
    assert second.join("t").error_code == 0
    assert (numbers(second), second.epoch) == ({0, 1}, epoch)
    assert group_of(cluster).epoch == epoch
    assert first.beat().error_code == 82
    assert first.leave().error_code == 82
    assert second.leave().error_code == 0
    other.beat()
    assert numbers(other) == {0, 1, 2, 3}


def test_the_same_static_member_comes_back(cluster: FakeCluster) -> None:
    consumer = Consumer(cluster, "a", "i")
    consumer.join("t")
    consumer.leave(epoch=-2)
    assert consumer.join("t").member_epoch == 2
    assert numbers(consumer) == {0, 1, 2, 3}


def test_a_static_member_that_does_not_come_back(cluster: FakeCluster) -> None:
    first, other = Consumer(cluster, "a", "i"), Consumer(cluster, "b")
    first.join("t")
    other.join("t", now_ms=1_000)
    first.leave(2_000, epoch=-2)
    other.beat(44_999)
    assert numbers(other) == set()
    other.beat(45_000)
    assert numbers(other) == {0, 1, 2, 3}


def test_unknown_instances(cluster: FakeCluster) -> None:
    consumer = Consumer(cluster, "a", "i")
    consumer.join("t")
    stranger = Consumer(cluster, "a", "j")
    assert stranger.ask_as(2).error_code == 25
    assert stranger.leave().error_code == 25


# --- offsets --------------------------------------------------------------------------------------


def commit(consumer: Consumer, epoch: int, version: int = 9) -> int:
    topics = [OffsetCommitRequestTopic("t", bytes(16), [OffsetCommitRequestPartition(0, 5)])]
    request = OffsetCommitRequest(GROUP, epoch, consumer.member_id, topics=topics)
    return int(consumer.ask(request, version).topics[0].partitions[0].error_code)


def fetch(consumer: Consumer, epoch: int, member_id: str | None) -> int:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, member_id, epoch, [])])
    return int(consumer.ask(request, 9).groups[0].error_code)


def test_commits_carry_the_member_epoch(cluster: FakeCluster) -> None:
    consumer = Consumer(cluster, "a")
    assert commit(consumer, -1) == 0
    assert commit(consumer, 2) == 69
    consumer.join("t")
    assert commit(consumer, 2) == 0
    assert commit(consumer, 1) == 113
    assert commit(consumer, 3) == 113
    assert commit(consumer, 2, version=8) == 35
    assert commit(Consumer(cluster, "b"), 2) == 25
    consumer.leave()
    assert commit(consumer, 2) == 25
    assert commit(consumer, -1) == 0


def test_fetches_carry_the_member_epoch(cluster: FakeCluster) -> None:
    consumer = Consumer(cluster, "a")
    assert fetch(consumer, 2, "a") == 0
    consumer.join("t")
    assert fetch(consumer, 2, "a") == 0
    assert fetch(consumer, 1, "a") == 113
    assert fetch(consumer, 2, "b") == 25
    assert fetch(consumer, -1, None) == 0


# --- faults ---------------------------------------------------------------------------------------


def test_injected_errors_change_nothing(cluster: FakeCluster) -> None:
    consumer = Consumer(cluster, "a")
    cluster.faults.add(TopLevelError(15), api=Api.CONSUMER_GROUP_HEARTBEAT)
    assert consumer.join("t").error_code == 15
    assert cluster.groups.consumer(GROUP) is None
    consumer.join("t")
    cluster.faults.add(TopLevelError(14), api=Api.CONSUMER_GROUP_HEARTBEAT)
    assert consumer.leave().error_code == 14
    assert consumer.beat().error_code == 0


def test_an_answer_lost_after_it_took_effect(cluster: FakeCluster) -> None:
    consumer = Consumer(cluster, "a")
    cluster.faults.add(Drop(), api=Api.CONSUMER_GROUP_HEARTBEAT)
    request = ConsumerGroupHeartbeatRequest(
        GROUP, "a", 0, None, None, 60_000, ["t"], topic_partitions=[]
    )
    consumer.connection.receive(frame(request, 1), 0)
    assert consumer.connection.is_closed
    assert set(group_of(cluster).members) == {"a"}
    again = Consumer(cluster, "a")
    assert again.join("t").member_epoch == 2


def test_a_test_can_remove_members_and_groups(cluster: FakeCluster) -> None:
    consumer = Consumer(cluster, "a")
    consumer.join("t")
    cluster.groups.expire_member(GROUP, "a")
    assert consumer.beat().error_code == 25
    cluster.groups.delete_group(GROUP)
    assert consumer.beat().error_code == 69
