"""Commits and committed offsets."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

import confluent_kafka
import pytest

from kfast import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kfast.errors import (
    CommitFailedError,
    InvalidGroupIdError,
    KafkaError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetMetadataTooLargeError,
    UnknownTopicOrPartitionError,
)
from tests.integration.both.brokers import Broker, Writer
from tests.integration.both.conftest import TopicFactory
from tests.integration.group_members import QUICK
from tests.integration.support import (
    PATIENCE_SECONDS,
    Reading,
    admin,
    assigned,
    consuming,
    tps,
    unique,
    until,
)

pytestmark = pytest.mark.integration

COOPERATIVE: Final[dict[str, Any]] = {
    **QUICK,
    "partition_assignment_strategy": ["cooperative-sticky"],
}
BY_HAND: Final[dict[str, Any]] = {"enable_auto_commit": False, "fetch_max_wait_ms": 50}


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(start, start + count)]


def until_assigned(*consumers: KafkaConsumer, total: int) -> None:
    """Poll all of them in turn until they share so many partitions."""

    def is_shared() -> bool:
        for consumer in consumers:
            consumer.poll(20)
        shares = [len(consumer.assignment()) for consumer in consumers]
        return all(shares) and sum(shares) == total

    until(is_shared, f"{total} partitions shared")


def committed(servers: str, group_id: str, tp: TopicPartition) -> int:
    """Return what librdkafka says that a group has committed, -1 for nothing."""
    asked = confluent_kafka.ConsumerGroupTopicPartitions(
        group_id, [confluent_kafka.TopicPartition(*tp)]
    )
    client = admin(servers)
    found = client.list_consumer_group_offsets([asked])[group_id].result(PATIENCE_SECONDS)
    offset = int(found.topic_partitions[0].offset)
    return offset if offset >= 0 else -1


def offset_of(consumer: KafkaConsumer, tp: TopicPartition) -> int:
    """Return what kfast says that its group has committed, 0 for nothing."""
    found = consumer.committed([tp])[tp]
    return 0 if found is None else found.offset


# --- by hand --------------------------------------------------------------------------------------


def test_what_is_committed_is_where_the_next_one_begins(
    kafka: Broker, new_topic: TopicFactory, writer: Writer
) -> None:
    """C-01, C-03, C-09, C-11, P-01: without a subscription; metadata and leader epoch come back."""
    topic = new_topic(2)
    first, second = tps(topic, 2)
    writer.write(topic, numbers(10))
    group = {"group_id": unique("group"), **BY_HAND}
    with assigned(kafka.bootstrap_servers, [first, second], **group) as consumer:
        assert consumer.committed([first, second]) == {first: None, second: None}
        Reading(consumer).until({first: 4}, max_records=4)
        consumer.commit()
        assert consumer.committed(first) == 4
        # The epoch of the batch they came from; nothing was read of the second partition.
        assert consumer.committed(first, metadata=True) == OffsetAndMetadata(4, "", 0)
        consumer.commit({second: OffsetAndMetadata(7, "a note\N{SNOWMAN}", -1)})
        assert consumer.committed([second]) == {second: OffsetAndMetadata(7, "a note\N{SNOWMAN}")}
        consumer.commit({second: 0})
    assert committed(kafka.bootstrap_servers, str(group["group_id"]), first) == 4
    with assigned(kafka.bootstrap_servers, [first, second], **group) as consumer:
        assert consumer.position(first) == 4
        assert Reading(consumer).until({first: 10}).offsets(first) == list(range(4, 10))


def test_the_text_of_a_commit_has_a_limit(kafka: Broker, new_topic: TopicFactory) -> None:
    """C-10: 4096 bytes are stored, one more is an error that names the partition."""
    tp = TopicPartition(new_topic(), 0)
    with consuming(kafka.bootstrap_servers, group_id=unique("group"), **BY_HAND) as consumer:
        consumer.assign([tp])
        longest = OffsetAndMetadata(1, "x" * 4096)
        consumer.commit({tp: longest})
        assert consumer.committed([tp]) == {tp: longest}
        with pytest.raises(OffsetMetadataTooLargeError) as caught:
            consumer.commit({tp: OffsetAndMetadata(2, "x" * 4097)})
        assert (caught.value.topic, caught.value.partition) == tp
        assert consumer.committed(tp) == 1


def test_one_partition_that_cannot_be_committed(kafka: Broker, new_topic: TopicFactory) -> None:
    """C-12: the error names it, and what else the call committed is stored."""
    good, bad = TopicPartition(new_topic(), 0), TopicPartition("no-such-topic", 3)
    with consuming(kafka.bootstrap_servers, group_id=unique("group"), **BY_HAND) as consumer:
        consumer.assign([good])
        with pytest.raises(KafkaError) as caught:
            consumer.commit({good: 5, bad: 6}, timeout_ms=2_000)
        assert isinstance(caught.value, UnknownTopicOrPartitionError | KafkaTimeoutError)
        assert "no-such-topic-3" in str(caught.value)
        assert consumer.committed(good) == 5


def test_no_group_no_commits(kafka: Broker, new_topic: TopicFactory) -> None:
    """C-11, A-05."""
    tp = TopicPartition(new_topic(), 0)
    with assigned(kafka.bootstrap_servers, [tp]) as consumer:
        with pytest.raises(InvalidGroupIdError):
            consumer.commit()
        with pytest.raises(InvalidGroupIdError):
            consumer.committed(tp)


def test_commits_keep_their_order(kafka: Broker, new_topic: TopicFactory) -> None:
    """C-02, C-05: callbacks in order, on this thread, before a later commit() returns."""
    tp = TopicPartition(new_topic(), 0)
    calls: list[tuple[int, KafkaError | None]] = []

    def done(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
        calls.append((offsets[tp].offset, error))

    with assigned(kafka.bootstrap_servers, [tp], group_id=unique("group"), **BY_HAND) as consumer:
        for offset in range(1, 101):
            consumer.commit_async({tp: OffsetAndMetadata(offset)}, done)
        consumer.commit({tp: 101})
        assert calls == [(offset, None) for offset in range(1, 101)]
        assert consumer.committed(tp) == 101
        consumer.commit_async({tp: OffsetAndMetadata(102)}, done)
    assert calls[100:] == [(102, None)]  # close() waits for it


def test_a_stranger_cannot_commit_for_a_group_with_members(
    kafka: Broker, new_topic: TopicFactory
) -> None:
    """C-07, C-11: assigned by hand, with the name of a group that others are in."""
    topic = new_topic()
    group_id = unique("group")
    with consuming(kafka.bootstrap_servers, topic, group_id=group_id, **COOPERATIVE) as member:
        until_assigned(member, total=1)
        with assigned(
            kafka.bootstrap_servers, tps(topic, 1), group_id=group_id, **BY_HAND
        ) as stranger:
            with pytest.raises(CommitFailedError) as caught:
                stranger.commit({TopicPartition(topic, 0): 1})
            assert caught.value.topic == topic


# --- automatic ------------------------------------------------------------------------------------


def test_auto_commit_stays_behind_what_is_being_worked_on(
    kafka: Broker, new_topic: TopicFactory, writer: Writer
) -> None:
    """A-01, A-02: a poll commits what earlier polls returned, never what it returns itself."""
    tp = TopicPartition(new_topic(), 0)
    writer.write(tp.topic, numbers(100))
    group = {"group_id": unique("group"), "auto_commit_interval_ms": 0, "fetch_max_wait_ms": 50}
    with (
        consuming(kafka.bootstrap_servers, tp.topic, **group) as consumer,
        assigned(kafka.bootstrap_servers, [tp], group_id=group["group_id"], **BY_HAND) as observer,
    ):
        handed_out = 0
        while handed_out < 100:
            records = consumer.poll(1_000, max_records=10)
            now = offset_of(observer, tp)
            assert now <= handed_out, "the batch just returned is committed already"
            handed_out += records.count()
        # Nothing commits by itself: without a poll it stays there.
        assert offset_of(observer, tp) <= 90
        until(lambda: consumer.poll(20) is not None and observer.committed(tp) == 100, "all")


def test_auto_commit_on_close_and_when_partitions_change(
    kafka: Broker, new_topic: TopicFactory, writer: Writer
) -> None:
    """A-01, L-02: the interval is far away, and yet nothing is read again."""
    topic = new_topic(2)
    first, second = tps(topic, 2)
    for tp in (first, second):
        writer.write(topic, numbers(10), partition=tp.partition)
    group_id = unique("group")
    group: dict[str, Any] = {"group_id": group_id, "auto_commit_interval_ms": 3_600_000}
    with assigned(kafka.bootstrap_servers, [first], **group) as consumer:
        Reading(consumer).until({first: 10})
        assert consumer.committed(first) is None
        consumer.assign([second])
        until(lambda: consumer.committed(first) == 10, "the commit of assign()")
        Reading(consumer).until({second: 6}, max_records=6)
    assert committed(kafka.bootstrap_servers, group_id, second) == 6
    with assigned(kafka.bootstrap_servers, [second], **group) as consumer:
        Reading(consumer).until({second: 10})
        consumer.close(autocommit=False)
    assert committed(kafka.bootstrap_servers, group_id, second) == 6


def test_a_batch_left_by_an_exception_is_not_committed(
    kafka: Broker, new_topic: TopicFactory, writer: Writer
) -> None:
    """A-02: the with statement knows that the last batch was not finished."""
    tp = TopicPartition(new_topic(), 0)
    writer.write(tp.topic, numbers(10))
    group_id = unique("group")
    consumer = KafkaConsumer(
        tp.topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group_id,
        auto_offset_reset="earliest",
    )

    def work() -> None:
        with consumer:
            done = 0
            while done < 6:
                done += consumer.poll(1_000, max_records=3).count()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert committed(kafka.bootstrap_servers, group_id, tp) == 3


# --- committed offsets that are gone --------------------------------------------------------------


@pytest.mark.parametrize("policy", ["latest", "none"])
def test_offsets_that_expired(
    kafka: Broker, new_topic: TopicFactory, writer: Writer, policy: str
) -> None:
    """P-01, P-02: with the group's offsets gone the policy decides."""
    tp = TopicPartition(new_topic(), 0)
    writer.write(tp.topic, numbers(10))
    group_id = unique("group")
    settings = {"group_id": group_id, "auto_offset_reset": policy, **BY_HAND}
    with assigned(kafka.bootstrap_servers, [tp], **settings) as consumer:
        consumer.commit({tp: 5})
    with assigned(kafka.bootstrap_servers, [tp], **settings) as consumer:
        assert consumer.position(tp) == 5
    kafka.delete_group(group_id)
    with consuming(kafka.bootstrap_servers, tp.topic, **settings) as consumer:
        if policy == "none":
            with pytest.raises(NoOffsetForPartitionError) as caught:
                until(lambda: consumer.poll(100), "an error")
            assert (caught.value.topic, caught.value.partition) == tp
            consumer.seek(tp, 2)
            assert Reading(consumer).until({tp: 10}).offsets(tp) == list(range(2, 10))
        else:
            until(lambda: consumer.poll(20) is not None and consumer.assignment(), "assignment")
            assert consumer.position(tp) == 10


# --- topics that are deleted and created again ----------------------------------------------------


@pytest.mark.parametrize("kind", ["next_offset", "next_offsets", "auto"])
def test_a_topic_created_anew_is_read_from_its_first_record(
    kafka: Broker, new_topic: TopicFactory, writer: Writer, kind: str
) -> None:
    """R-08, R-10: nothing of the earlier one is committed to it, on close or of old batches."""
    tp = TopicPartition(new_topic(), 0)
    writer.write(tp.topic, numbers(100))
    group_id = unique("group")
    group: dict[str, Any] = {**BY_HAND, "group_id": group_id, "enable_auto_commit": kind == "auto"}
    with assigned(kafka.bootstrap_servers, [tp], **group) as consumer:
        records = consumer.poll(30_000)
        assert records.count() == 100
        consumer.commit()
        consumer.pause(tp)
        kafka.delete_topic(tp.topic)
        kafka.create_topic(tp.topic)
        writer.write(tp.topic, numbers(150))
        if kind == "next_offset":
            consumer.commit({tp: records[tp].next_offset})
        elif kind == "next_offsets":
            consumer.commit(records.next_offsets())
    assert committed(kafka.bootstrap_servers, group_id, tp) in (-1, 0)
    with assigned(kafka.bootstrap_servers, [tp], **group) as successor:
        assert Reading(successor).until({tp: 150}).offsets(tp) == list(range(150))


# --- transactions ---------------------------------------------------------------------------------


def test_a_filtered_tail_is_committed(
    kafka: Broker, new_topic: TopicFactory, writer: Writer
) -> None:
    """C-04: what follows the last record delivered, aborted records and markers, is behind it."""
    tp = TopicPartition(new_topic(), 0)
    writer.write(tp.topic, numbers(3))
    with writer.transaction(unique("tx"), commit=False) as transaction:
        transaction.write(tp.topic, numbers(4))
    group = {"group_id": unique("group"), "isolation_level": "read_committed", **BY_HAND}
    with assigned(kafka.bootstrap_servers, [tp], **group) as consumer:
        reading = Reading(consumer).until({tp: 8})
        assert reading.offsets(tp) == [0, 1, 2]
        consumer.commit()
        assert consumer.committed(tp) == 8  # three records, four aborted ones and a marker


def test_offsets_in_an_open_transaction(
    kafka: Broker, new_topic: TopicFactory, writer: Writer
) -> None:
    """T-11, T-12: they are waited for: neither the old offset nor none is taken for them."""
    tp = TopicPartition(new_topic(), 0)
    writer.write(tp.topic, numbers(10))
    group = {**COOPERATIVE, "group_id": unique("group"), "enable_auto_commit": False}
    with ExitStack() as stack:
        with consuming(kafka.bootstrap_servers, tp.topic, **group) as consumer:
            Reading(consumer).until({tp: 4}, max_records=4)
            consumer.commit({tp: 2})
            transaction = stack.enter_context(writer.transaction(unique("tx")))
            transaction.send_offsets({tp: OffsetAndMetadata(4)}, consumer.group_metadata())
            with pytest.raises(KafkaTimeoutError) as caught:
                consumer.committed(tp, timeout_ms=700)
            assert tp.topic in str(caught.value)
        with consuming(kafka.bootstrap_servers, tp.topic, **group) as successor:
            until(lambda: successor.poll(20) is not None and successor.assignment(), "assignment")
            assert not successor.poll(500)  # it does not know where to begin, and does not guess
            stack.close()
            assert Reading(successor).until({tp: 10}).offsets(tp) == list(range(4, 10))
            assert successor.committed(tp) == 4
