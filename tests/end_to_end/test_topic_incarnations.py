"""Commits belong to the topic id that their offsets were read under, and keep the leader epoch."""

from __future__ import annotations

import contextlib
import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import kfast
from kfast import (
    ConsumerRecords,
    KafkaConsumer,
    OffsetAndMetadata,
    PartitionRecords,
    TopicPartition,
    transactions,
)
from kfast.errors import UnknownTopicOrPartitionError
from kfast.protocol.api_keys import ApiKey
from kfast.table.group_commits import GroupCommits
from kfast.table.topic_ids import id_text
from kfast.testing.cluster import FakeCluster
from kfast.testing.groups.group_coordinator import Committed
from kfast.types import OffsetOfTopic, format_uuid, topic_id_of
from tests.end_to_end.groups import GROUP, PROTOCOLS, cluster_of, committed, member
from tests.end_to_end.stage import Stage, eventually, offsets, read
from tests.end_to_end.virtual import make_cluster

MakeStage = Callable[..., Stage]
Log = pytest.LogCaptureFixture

T0 = TopicPartition("t", 0)
MANUAL: dict[str, Any] = {"enable_auto_commit": False}
QUICK: dict[str, Any] = {"metadata_max_age_ms": 50}
RELEASES = ["3.9", "4.3"]
"""OffsetCommit with names only, and with topic ids."""


def by_hand(stage: Stage, **configs: Any) -> KafkaConsumer:
    consumer = stage.consumer(group_id=GROUP, **QUICK, **configs)
    consumer.assign([T0])
    return consumer


def poll_all(consumer: KafkaConsumer, records: int = 10) -> ConsumerRecords:
    """Return so many records of t-0, of one poll."""
    found = consumer.poll(timeout_ms=10_000)
    assert found.count() == records
    return found


def create_anew(cluster: FakeCluster, records: int = 150) -> None:
    with cluster.changing():
        cluster.recreate_topic("t", 1)
        cluster.append("t", 0, [b"new"] * records)


def until_noticed(consumer: KafkaConsumer, cluster: FakeCluster) -> None:
    """Poll, with the partition paused, until the metadata has the topic's present id."""
    consumer.pause(T0)
    metadata = consumer._runtime.metadata

    def has_noticed() -> bool:
        assert not consumer.poll(timeout_ms=20)
        known = metadata.cluster.topic_id("t")
        return known == cluster.topic_id("t") or "t" not in metadata.cluster.topics

    eventually(has_noticed)


def stored_anew(cluster: FakeCluster) -> list[int]:
    """Return the offsets stored for the topic as it is now."""
    now = cluster.topic_id("t")
    history = cluster.groups.offsets(GROUP).history
    return [entry.offset for _, entry in history if entry.topic_id == now]


def warnings(log: Log) -> list[str]:
    return [
        each.getMessage()
        for each in log.records
        if each.levelno == logging.WARNING and "is not committed" in each.getMessage()
    ]


# --- one incarnation of a topic -------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("is_closing", [False, True])
def test_a_paused_partition_is_not_committed_to_a_topic_created_anew(
    make_stage: MakeStage, caplog: Log, release: str, is_closing: bool
) -> None:
    """R-08: neither by commit() nor on close, whether the change was noticed or is noticed now."""
    cluster = cluster_of(1, release=release)
    former = cluster.topic_id("t")
    consumer = by_hand(make_stage(cluster), **({} if is_closing else MANUAL))
    poll_all(consumer)
    consumer.pause(T0)
    create_anew(cluster)
    if release == "3.9":  # without ids in the request only a refresh tells
        until_noticed(consumer, cluster)
    if is_closing:
        consumer.close()
    else:
        consumer.commit()
    assert stored_anew(cluster) in ([], [0])  # the position that it starts from
    for text in warnings(caplog):
        assert "t-0" in text
        assert format_uuid(former) in text


def test_a_commit_that_is_tried_again_stays_with_the_topic_that_it_was_read_of(
    make_stage: MakeStage, caplog: Log
) -> None:
    """R-08: the coordinator refuses the former id, and the new one is not tried in its place."""
    cluster = cluster_of(1)
    former = cluster.topic_id("t")
    stage = make_stage(cluster)
    consumer = stage.consumer(group_id=GROUP, metadata_max_age_ms=300_000, **MANUAL)
    consumer.assign([T0])
    poll_all(consumer)
    consumer.pause(T0)
    create_anew(cluster)
    consumer.commit(timeout_ms=10_000)
    assert stored_anew(cluster) == []
    (text,) = warnings(caplog)
    assert format_uuid(former) in text
    assert format_uuid(cluster.topic_id("t")) in text


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_read_of_a_topic_that_is_gone_is_not_committed_by_its_name(
    make_stage: MakeStage, caplog: Log, release: str, protocol: str
) -> None:
    """R-09: neither when its partitions are revoked, nor on close."""
    cluster = cluster_of(1, release=release)
    former = cluster.topic_id("t")
    cluster.create_topic("other")
    consumer = member(make_stage(cluster, **QUICK), protocol, auto_commit_interval_ms=3_600_000)
    consumer.subscribe(["t", "other"])
    read(consumer, 10)
    cluster.delete_topic("t")
    metadata = consumer._runtime.metadata
    consumer.pause(T0)

    def has_noticed() -> bool:
        with contextlib.suppress(UnknownTopicOrPartitionError):
            consumer.poll(timeout_ms=20)
        return "t" not in metadata.cluster.topics

    eventually(has_noticed)
    before = len(cluster.requests.select(ApiKey.OFFSET_COMMIT))
    consumer.close()
    for request in cluster.requests.select(ApiKey.OFFSET_COMMIT)[before:]:
        for topic in request.message.topics:
            assert (topic.name, topic.topic_id) not in {("t", bytes(16)), ("", former)}
    assert TopicPartition("t", 0) not in cluster.groups.committed(GROUP)
    (text,) = warnings(caplog)
    assert "there is no such topic now" in text
    assert format_uuid(former) in text


Form = Callable[[KafkaConsumer, ConsumerRecords], None]
FORMS: dict[str, Form] = {
    "next_offsets": lambda c, r: c.commit(r.next_offsets()),
    "pickled": lambda c, r: c.commit(pickle.loads(pickle.dumps(r)).next_offsets()),
    "next_offsets of a slice": lambda c, r: c.commit(ConsumerRecords([r[T0][:5]]).next_offsets()),
    "with a text": lambda c, r: c.commit(
        {tp: at._replace(metadata="x") for tp, at in r.next_offsets().items()}
    ),
    "next_offset": lambda c, r: c.commit({T0: r[T0].next_offset}),
    "of a slice": lambda c, r: c.commit({T0: r[T0][:5].next_offset}),
    "of a row": lambda c, r: c.commit({T0: r[T0][7].offset + 1}),
    "kafka-python": lambda c, r: c.commit({T0: OffsetAndMetadata(r[T0][7].offset + 1, "", -1)}),
    "async": lambda c, r: c.commit_async({T0: r[T0].next_offset}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("release", RELEASES)
def test_an_earlier_batch_is_not_committed_to_a_topic_created_anew(
    make_stage: MakeStage, caplog: Log, release: str, form: str
) -> None:
    """R-10: whatever the form, once the change was noticed; the other partitions are."""
    cluster = cluster_of(1, release=release)
    former = cluster.topic_id("t")
    consumer = by_hand(make_stage(cluster), **MANUAL)
    records = poll_all(consumer)
    create_anew(cluster)
    until_noticed(consumer, cluster)
    FORMS[form](consumer, records)
    outcomes: list[Any] = []
    consumer.commit_async({T0: 0}, lambda at, error: outcomes.append((at, error)))
    eventually(lambda: (consumer.poll(timeout_ms=20), bool(outcomes))[1])
    assert outcomes == [({T0: (0, "", -1)}, None)]
    assert stored_anew(cluster) == [0]
    (text,) = warnings(caplog)
    assert "t-0" in text
    assert format_uuid(former) in text
    assert format_uuid(cluster.topic_id("t")) in text


def test_a_callback_is_given_what_was_stored(make_stage: MakeStage) -> None:
    """R-10, C-02: without the offsets that were left out."""
    cluster = cluster_of(1)
    cluster.create_topic("other")
    consumer = by_hand(make_stage(cluster), **MANUAL)
    records = poll_all(consumer)
    create_anew(cluster)
    until_noticed(consumer, cluster)
    outcomes: list[Any] = []
    other = TopicPartition("other", 0)
    consumer.commit_async(
        {**records.next_offsets(), other: OffsetAndMetadata(3)},
        lambda at, error: outcomes.append((at, error)),
    )
    eventually(lambda: (consumer.poll(timeout_ms=20), bool(outcomes))[1])
    assert outcomes == [({other: OffsetAndMetadata(3)}, None)]


def test_a_topic_created_anew_is_committed_as_it_is_read(make_stage: MakeStage) -> None:
    """R-10: what is read of the new one, and offsets that the application chooses."""
    cluster = cluster_of(1)
    consumer = by_hand(make_stage(cluster), **MANUAL)
    poll_all(consumer)
    create_anew(cluster)
    found = read(consumer, 150)
    assert offsets(found) == list(range(150))
    consumer.commit({T0: 5})
    consumer.commit({T0: 1_000})
    consumer.commit()
    assert stored_anew(cluster) == [5, 1_000, 150]


def test_another_consumer_does_not_commit_an_earlier_topics_offsets(make_stage: MakeStage) -> None:
    """R-10: `next_offsets` carry the id from one consumer to another."""
    cluster = cluster_of(1)
    stage = make_stage(cluster)
    records = poll_all(by_hand(stage, **MANUAL))
    create_anew(cluster)
    other = by_hand(stage, **MANUAL)
    read(other, 150)
    other.commit(records.next_offsets())
    assert stored_anew(cluster) == []
    other.commit()
    assert stored_anew(cluster) == [150]


def test_an_earlier_assignment_is_remembered(make_stage: MakeStage) -> None:
    """R-10: a bare offset of it, after the partition was unassigned and assigned again."""
    cluster = cluster_of(1)
    consumer = by_hand(make_stage(cluster), **MANUAL)
    records = poll_all(consumer)
    consumer.unsubscribe()
    create_anew(cluster)
    consumer.assign([T0])
    consumer.seek(T0, 0)
    until_noticed(consumer, cluster)
    consumer.commit({T0: records[T0].next_offset})
    assert stored_anew(cluster) == []


def test_a_transaction_leaves_out_what_was_read_of_an_earlier_topic(
    make_stage: MakeStage, caplog: Log
) -> None:
    """R-11: by what the group's metadata knows when the offsets are sent."""
    cluster = cluster_of(1)
    consumer = by_hand(make_stage(cluster), **MANUAL)
    records = poll_all(consumer)
    calls: list[Any] = []

    class Producer:
        def send_offsets_to_transaction(self, *arguments: Any) -> None:
            calls.append([(each.topic, each.offset, each.leader_epoch) for each in arguments[0]])

    transactions.send_offsets(Producer(), records.next_offsets(), consumer.group_metadata())
    assert calls == [[("t", 10, 0)]]
    create_anew(cluster)
    until_noticed(consumer, cluster)
    transactions.send_offsets(Producer(), records.next_offsets(), consumer.group_metadata())
    assert len(calls) == 1
    (text,) = warnings(caplog)
    assert format_uuid(cluster.topic_id("t")) in text


@pytest.mark.parametrize("release", RELEASES)
def test_an_ingest_commits_to_the_topic_that_it_has_read(
    make_stage: MakeStage, release: str
) -> None:
    """R-12: offsets in the table are of the topic ids that it has read."""
    cluster = cluster_of(1, release=release)
    ids = {"t": id_text(cluster.topic_id("t"))}
    servers = make_stage(cluster).server.bootstrap_servers
    commits = GroupCommits({"bootstrap.servers": servers, "metadata.max.age.ms": 50}, GROUP)
    commits.commit({T0: 10}, ids)
    assert committed(cluster) == {0: 10}
    create_anew(cluster)
    consumer = commits._consumer
    assert consumer is not None
    until_noticed(consumer, cluster)
    commits.commit({T0: 100}, ids)
    assert stored_anew(cluster) == []
    commits.close()


# --- leader epochs --------------------------------------------------------------------------------


def epochs() -> FakeCluster:
    """Return a cluster whose t-0 has ten records of leader epoch 0, and ten of epoch 1."""
    cluster = make_cluster(nodes=2, leaders=[1], records=10)
    cluster.features["group.version"] = 1
    cluster.move_leader("t", 0, 2)
    cluster.append("t", 0, [b"x"] * 10, batch_records=5)
    return cluster


def stored(cluster: FakeCluster) -> tuple[int, int]:
    entry = cluster.groups.offsets(GROUP).get(T0)
    assert isinstance(entry, Committed)
    return entry.offset, entry.leader_epoch


@pytest.mark.parametrize("is_async", [False, True])
def test_what_was_handed_out_is_committed_with_its_epoch(
    make_stage: MakeStage, is_async: bool
) -> None:
    """R-06: as a batch's next offset, that of a row, bare numbers, of any earlier batch."""
    cluster = epochs()
    consumer = by_hand(make_stage(cluster), max_poll_records=4, **MANUAL)

    def commit(at: Any) -> tuple[int, int]:
        if not is_async:
            consumer.commit({T0: at})
        else:
            outcomes: list[Any] = []
            consumer.commit_async({T0: at}, lambda *outcome: outcomes.append(outcome))
            eventually(lambda: (consumer.poll(timeout_ms=20, max_records=1), bool(outcomes))[1])
            assert outcomes[0][1] is None
        return stored(cluster)

    batches: list[PartitionRecords] = []
    while sum(len(batch) for batch in batches) < 16:
        batches += consumer.poll(timeout_ms=10_000).batches()
    for batch in batches:
        epoch = batch.leader_epoch
        assert commit(batch.next_offset) == (batch.next_offset, epoch)
        assert commit(batch[0].offset + 1) == (batch[0].offset + 1, epoch)
        assert commit(OffsetAndMetadata(batch.next_offset, "x")) == (batch.next_offset, epoch)
    assert {batch.leader_epoch for batch in batches} == {0, 1}
    assert commit(OffsetAndMetadata(12, "", 0)) == (12, 0), "what the caller says counts"
    assert commit(10) == (10, 0)
    assert commit(11) == (11, 1)
    assert commit(1_000) == (1_000, -1), "never handed out"


def test_epochs_outlive_seeks_and_assignments(make_stage: MakeStage) -> None:
    """R-06: also of an offset that was committed or sought to with its epoch."""
    cluster = epochs()
    consumer = by_hand(make_stage(cluster), **MANUAL)
    read(consumer, 20)
    consumer.seek(T0, 5)
    consumer.commit()
    assert stored(cluster) == (5, 0)
    consumer.commit({T0: 15})
    assert stored(cluster) == (15, 1)
    consumer.unsubscribe()
    consumer.assign([T0])
    consumer.commit({T0: 8})
    assert stored(cluster) == (8, 0)
    consumer.seek(T0, OffsetAndMetadata(3, "", 0))
    consumer.commit({T0: 3})
    assert stored(cluster) == (3, 0)
    again = by_hand(make_stage(cluster), **MANUAL)
    assert again.position(T0) == 3
    again.commit({T0: 3})
    assert stored(cluster) == (3, 0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_next_member_notices_a_truncation(make_stage: MakeStage, protocol: str) -> None:
    """R-07, P-16: after the README's own form of commit it reads what others wrote in its place."""
    cluster = make_cluster(nodes=2, leaders=[1], records=10)
    cluster.features["group.version"] = 1
    cluster.groups.settings.group_consumer_heartbeat_interval_ms = 50
    stage = make_stage(cluster)
    with member(stage, protocol, **MANUAL) as first:
        for batch in first.batches(timeout_ms=10_000):
            first.commit({batch.topic_partition: batch.next_offset})
            if batch.next_offset == 10:
                break
    cluster.move_leader("t", 0, 2, truncate_to=8)
    cluster.append("t", 0, [b"in its place"] * 7)
    second = member(stage, protocol, **MANUAL)
    assert offsets(read(second, 7)) == list(range(8, 15))


def test_offsets_compare_print_and_unpack_as_before() -> None:
    """R-06: what they carry besides shows nowhere."""
    at = OffsetOfTopic.of(5, "x", 2, b"i" * 16)
    assert at == OffsetAndMetadata(5, "x", 2) == (5, "x", 2)
    assert repr(at) == "OffsetAndMetadata(offset=5, metadata='x', leader_epoch=2)"
    assert hash(at) == hash(OffsetAndMetadata(5, "x", 2))
    changed = pickle.loads(pickle.dumps(at._replace(offset=6)))
    assert changed == (6, "x", 2)
    assert topic_id_of(changed) == topic_id_of(at) == b"i" * 16
    assert topic_id_of((5, "x", 2)) is None
    membership = kfast.ConsumerGroupMetadata("g", topic_ids={"t": b""})
    assert membership == kfast.ConsumerGroupMetadata("g")
    assert "topic_ids" not in repr(membership)
