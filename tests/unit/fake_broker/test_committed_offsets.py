"""OffsetCommit and OffsetFetch: who may commit, what is read back, ids, transactions."""

from __future__ import annotations

from typing import Any

import pytest

from kfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kfast.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kfast.types import TopicPartition
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.fault_actions import PartitionError, TopLevelError
from tests.fake_broker.releases import Api
from tests.unit.fake_broker.group_clients import GROUP, Client, Member, settled

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.create_topic("t", 2)
    return made


def commit(
    cluster: FakeCluster,
    offsets: dict[TopicPartition, int],
    version: int = 9,
    generation: int = -1,
    member_id: str = "",
    metadata: str | None = "m",
) -> dict[TopicPartition, int]:
    """Commit with leader epoch 7; return the errors."""
    request = OffsetCommitRequest(GROUP, generation, member_id)
    for (topic, number), offset in offsets.items():
        partition = OffsetCommitRequestPartition(number, offset, 7, metadata)
        request.topics.append(OffsetCommitRequestTopic(topic, cluster.topic_id(topic), [partition]))
    answer = Client(cluster).ask(request, version, cluster.groups.now_ms)
    names = dict(zip((cluster.topic_id(t) for t, _ in offsets), offsets, strict=False))
    return {
        TopicPartition(topic.name or names[topic.topic_id].topic, one.partition_index): (
            one.error_code
        )
        for topic in answer.topics
        for one in topic.partitions
    }


def fetch(
    cluster: FakeCluster,
    *partitions: TopicPartition,
    version: int = 9,
    require_stable: bool = False,
    group_id: str = GROUP,
    everything: bool = False,
) -> dict[TopicPartition, tuple[int, int, str | None, int]] | int:
    """Return (offset, epoch, metadata, error) per partition, or the error of the group."""
    request = OffsetFetchRequest(require_stable=require_stable and version >= 7)
    if version <= 7:
        request.group_id = group_id
        request.topics = [OffsetFetchRequestTopic(t, [p]) for t, p in partitions]
        if everything:
            request.topics = None
    else:
        topics = [OffsetFetchRequestTopics(t, cluster.topic_id(t), [p]) for t, p in partitions]
        request.groups = [OffsetFetchRequestGroup(group_id, topics=None if everything else topics)]
    answer: Any = Client(cluster, group_id).ask(request, version, cluster.groups.now_ms)
    found = answer if version <= 7 else answer.groups[0]
    if found.error_code:
        return int(found.error_code)
    return {
        TopicPartition(
            topic.name if version <= 9 else cluster.topic_name(topic.topic_id),
            one.partition_index,
        ): (one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code)
        for topic in found.topics
        for one in topic.partitions
    }


# --- what is stored -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6, 11))
def test_commits_of_every_version(cluster: FakeCluster, version: int) -> None:
    assert commit(cluster, {T0: 5, T1: 6}, version) == {T0: 0, T1: 0}
    assert cluster.groups.committed(GROUP) == {T0: 5, T1: 6}


@pytest.mark.parametrize("version", range(5, 11))
def test_fetches_of_every_version(cluster: FakeCluster, version: int) -> None:
    commit(cluster, {T0: 5})
    nothing = (-1, -1, "", 0)
    assert fetch(cluster, T0, T1, version=version) == {T0: (5, 7, "m", 0), T1: nothing}
    assert fetch(cluster, version=version, everything=True) == {T0: (5, 7, "m", 0)}
    assert fetch(cluster, T0, version=version, group_id="other") == {T0: nothing}


def test_every_accepted_commit_is_remembered(cluster: FakeCluster) -> None:
    for offset in (5, 9, 7):
        commit(cluster, {T0: offset}, metadata=None)
    assert commit(cluster, {T0: 8}, metadata="x" * 4097) == {T0: 12}
    history = cluster.groups.offsets(GROUP).history
    assert [(partition, entry.offset) for partition, entry in history] == [
        (T0, 5),
        (T0, 9),
        (T0, 7),
    ]
    assert fetch(cluster, T0) == {T0: (7, 7, "", 0)}


def test_offsets_go_with_the_topic(cluster: FakeCluster) -> None:
    commit(cluster, {T0: 5})
    cluster.recreate_topic("t", 2)
    assert fetch(cluster, T0) == {T0: (-1, -1, "", 0)}
    commit(cluster, {T0: 1})
    cluster.groups.offsets(GROUP).forget(T0)
    assert cluster.groups.committed(GROUP) == {}


def test_unknown_and_denied_topics(cluster: FakeCluster) -> None:
    unknown = TopicPartition("u", 0)
    assert commit(cluster, {unknown: 1}) == {unknown: 3}
    assert commit(cluster, {unknown: 1}, 10) == {unknown: 100}
    assert fetch(cluster, unknown, version=10) == {TopicPartition("", 0): (-1, -1, "", 100)}
    assert fetch(cluster, unknown) == {unknown: (-1, -1, "", 0)}
    commit(cluster, {T0: 5})
    cluster.denied_topics.add("t")
    assert commit(cluster, {T0: 6}) == {T0: 29}
    assert fetch(cluster, T0) == {T0: (-1, -1, "", 29)}
    assert fetch(cluster, everything=True) == {}


# --- who may commit -------------------------------------------------------------------------------


def test_commits_from_outside_need_an_empty_group(cluster: FakeCluster) -> None:
    assert commit(cluster, {T0: 1}) == {T0: 0}
    member = Member(cluster)
    now = settled(member)
    assert commit(cluster, {T0: 2}) == {T0: 25}
    assert member.commit(3, now) == 0
    assert member.leave(now) == 0
    assert commit(cluster, {T0: 4}) == {T0: 0}
    assert cluster.groups.committed(GROUP) == {T0: 4}


def test_commits_of_strangers(cluster: FakeCluster) -> None:
    assert commit(cluster, {T0: 1}, 8, generation=3, member_id="m") == {T0: 22}
    assert commit(cluster, {T0: 1}, 9, generation=3, member_id="m") == {T0: 69}
    member = Member(cluster)
    settled(member)
    assert commit(cluster, {T0: 1}, generation=1, member_id="m") == {T0: 25}
    assert commit(cluster, {T0: 1}, generation=0, member_id=member.member_id) == {T0: 22}
    assert cluster.groups.committed(GROUP) == {}


def test_a_denied_group(cluster: FakeCluster) -> None:
    cluster.groups.denied.add(GROUP)
    assert commit(cluster, {T0: 1}) == {T0: 30}
    assert fetch(cluster, T0) == 30
    assert fetch(cluster, T0, version=5) == 30


# --- transactions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [7, 9])
def test_offsets_of_an_open_transaction(cluster: FakeCluster, version: int) -> None:
    """KIP-447: 88 for who asks for stable offsets, the old one for the others."""
    commit(cluster, {T0: 5})
    offsets = cluster.groups.offsets(GROUP)
    offsets.add_pending(9, T0, 8)
    unstable = fetch(cluster, T0, T1, version=version, require_stable=True)
    assert unstable == {T0: (-1, -1, "", 88), T1: (-1, -1, "", 0)}
    assert fetch(cluster, T0, version=version) == {T0: (5, 7, "m", 0)}
    offsets.finish_pending(9, committed=False)
    assert fetch(cluster, T0, version=version, require_stable=True) == {T0: (5, 7, "m", 0)}
    offsets.add_pending(9, T0, 8)
    offsets.finish_pending(9, committed=True)
    assert fetch(cluster, T0, version=version, require_stable=True) == {T0: (8, -1, "", 0)}


# --- faults ---------------------------------------------------------------------------------------


def test_injected_errors(cluster: FakeCluster) -> None:
    cluster.faults.add(PartitionError(3, "t", 1), api=Api.OFFSET_COMMIT)
    assert commit(cluster, {T0: 1, T1: 2}) == {T0: 0, T1: 3}
    assert cluster.groups.committed(GROUP) == {T0: 1}
    cluster.faults.add(PartitionError(88), api=Api.OFFSET_FETCH)
    assert fetch(cluster, T0) == {T0: (-1, -1, "", 88)}
    cluster.faults.add(TopLevelError(14), api=Api.OFFSET_FETCH, times=2)
    assert fetch(cluster, T0) == 14
    assert fetch(cluster, T0, version=7) == 14
    assert fetch(cluster, T0) == {T0: (1, 7, "m", 0)}
