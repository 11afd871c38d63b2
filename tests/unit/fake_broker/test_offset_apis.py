"""ListOffsets and OffsetForLeaderEpoch as the fake broker answers them."""

from __future__ import annotations

import pytest

from kfast.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kfast.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.fault_actions import PartitionError
from tests.fake_broker.releases import Api
from tests.reference.batches import Record
from tests.unit.fake_broker.wire import ask


def make_cluster() -> FakeCluster:
    cluster = FakeCluster(2)
    cluster.create_topic("t", leaders=[1], leader_epoch=3)
    cluster.append("t", 0, [Record(value=b"v", timestamp=1000 + 10 * n) for n in range(5)])
    return cluster


def list_offset(
    cluster: FakeCluster,
    timestamp: int,
    version: int = 11,
    *,
    epoch: int = -1,
    partition: int = 0,
    isolation_level: int = 0,
    node_id: int = 1,
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition, epoch, timestamp)
    request = ListOffsetsRequest(
        isolation_level=isolation_level, topics=[ListOffsetsTopic("t", [asked])]
    )
    response = ask(cluster, request, version, node_id)
    found: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return found


@pytest.mark.parametrize("version", range(2, 12))
def test_ends_and_times_in_every_version(version: int) -> None:
    cluster = make_cluster()
    epoch = 3 if version >= 4 else -1
    expected = {
        -1: (5, -1, epoch),
        -2: (0, -1, epoch),
        1015: (2, 1020, epoch),
        2000: (-1, -1, -1),
    }
    for timestamp, answer in expected.items():
        found = list_offset(cluster, timestamp, version)
        assert (found.offset, found.timestamp, found.leader_epoch) == answer
        assert found.error_code == 0


def test_special_timestamps_need_their_version() -> None:
    cluster = make_cluster()
    assert list_offset(cluster, -3, 7).offset == 4
    assert list_offset(cluster, -3, 6).error_code == 35
    assert list_offset(cluster, -4, 8).offset == 0
    assert list_offset(cluster, -5, 9).offset == -1
    assert list_offset(cluster, -6, 10).error_code == 35


def test_the_latest_offset_depends_on_the_isolation_level() -> None:
    cluster = make_cluster()
    with cluster.writing("t", 0) as writer:
        writer.append([b"open"], producer_id=1, is_transactional=True)
    assert list_offset(cluster, -1).offset == 6
    assert list_offset(cluster, -1, isolation_level=1).offset == 5


def test_errors_of_list_offsets() -> None:
    cluster = make_cluster()
    assert list_offset(cluster, -1, partition=9).error_code == 3
    assert list_offset(cluster, -1, node_id=2).error_code == 6
    assert list_offset(cluster, -1, epoch=2).error_code == 74
    assert list_offset(cluster, -1, epoch=4).error_code == 75
    cluster.denied_topics.add("t")
    assert list_offset(cluster, -1).error_code == 29
    cluster.denied_topics.clear()
    cluster.faults.add(PartitionError(78, "t", 0), api=Api.LIST_OFFSETS)
    assert list_offset(cluster, -1).error_code == 78
    assert list_offset(cluster, -1).error_code == 0
    twice = [ListOffsetsPartition(0, -1, -1)] * 2
    response = ask(cluster, ListOffsetsRequest(topics=[ListOffsetsTopic("t", twice)]), 11)
    assert [found.error_code for found in response.topics[0].partitions] == [42, 42]


def epoch_end(
    cluster: FakeCluster, leader_epoch: int, version: int = 4, *, epoch: int = -1
) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(0, epoch, leader_epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", [asked])])
    found: EpochEndOffset = ask(cluster, request, version).topics[0].partitions[0]
    return found


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_epochs_end(version: int) -> None:
    cluster = make_cluster()
    cluster.move_leader("t", 0, 1)
    cluster.append("t", 0, [b"new"])
    expected = {2: (2, 0), 3: (3, 5), 4: (4, 6), 5: (-1, -1)}
    for leader_epoch, answer in expected.items():
        found = epoch_end(cluster, leader_epoch, version)
        assert (found.leader_epoch, found.end_offset) == answer


def test_a_truncation_shows_in_the_epoch_end() -> None:
    cluster = make_cluster()
    cluster.move_leader("t", 0, 1, truncate_to=2)
    cluster.append("t", 0, [b"other"] * 9)
    assert epoch_end(cluster, 3).end_offset == 2
    assert epoch_end(cluster, 3, epoch=3).error_code == 74
