"""What is read without a group: topics, patterns, and topics that come, grow and go."""

from __future__ import annotations

import pytest

from kfast import TopicPartition
from kfast.errors import IllegalStateError, UnknownTopicOrPartitionError
from tests.integration.both.brokers import Broker, Writer
from tests.integration.both.conftest import TopicFactory
from tests.integration.kafka_writer import Message
from tests.integration.support import (
    Reading,
    assigned,
    consuming,
    tps,
    unique,
    until,
)

pytestmark = pytest.mark.integration

QUICK = 200
"""``metadata_max_age_ms`` where the cluster is to be looked at often."""


def test_topics(kafka: Broker, new_topic: TopicFactory, writer: Writer) -> None:
    """F-11, E-10: all partitions of all topics subscribed to; a new subscription replaces it."""
    one, two, three = new_topic(2), new_topic(3), new_topic(1)
    for name, partitions in ((one, 2), (two, 3), (three, 1)):
        writer.write(
            name, [Message(b"%d" % n, partition=n % partitions) for n in range(60 * partitions)]
        )
    with consuming(kafka.bootstrap_servers, one, two) as consumer:
        assert consumer.subscription() == {one, two}
        reading = Reading(consumer).until_count(300)
        assert consumer.assignment() == {*tps(one, 2), *tps(two, 3)}
        for tp in consumer.assignment():
            assert reading.offsets(tp) == list(range(60))
        with pytest.raises(IllegalStateError):
            consumer.assign(tps(one, 1))
        consumer.subscribe([two, three])
        reading.until_count(360)
        assert reading.offsets(TopicPartition(three, 0)) == list(range(60))
        assert consumer.assignment() == {*tps(two, 3), *tps(three, 1)}
        consumer.unsubscribe()
        assert consumer.assignment() == set()
        assert consumer.subscription() is None
        with pytest.raises(IllegalStateError):
            consumer.poll(0)


def test_a_pattern(kafka: Broker, new_topic: TopicFactory, writer: Writer) -> None:
    """M-07, P-18: topics that match come and go at refresh; internal ones stay out."""
    prefix = unique("pattern")
    servers = kafka.bootstrap_servers
    other = new_topic()
    writer.write(other, [b"other"])
    kafka.create_topic(f"{prefix}-a", 2)
    writer.write(f"{prefix}-a", [b"a"] * 5)
    with consuming(servers, metadata_max_age_ms=QUICK) as consumer:
        consumer.subscribe(pattern=f"({prefix}-.*|__consumer_offsets|__transaction_state)")
        reading = Reading(consumer).until_count(5)
        assert consumer.assignment() == set(tps(f"{prefix}-a", 2))
        assert consumer.subscription() == {f"{prefix}-a"}
        kafka.create_topic(f"{prefix}-b")
        writer.write(f"{prefix}-b", [b"b"] * 3)
        reading.until_count(8)
        assert consumer.subscription() == {f"{prefix}-a", f"{prefix}-b"}
        kafka.delete_topic(f"{prefix}-a")

        def is_dropped() -> bool:
            reading.poll(20)
            return consumer.assignment() == set(tps(f"{prefix}-b", 1))

        until(is_dropped, "the vanished topic to be dropped")
        writer.write(f"{prefix}-b", [b"b"] * 3)
        reading.until_count(11)
        assert reading.offsets(TopicPartition(f"{prefix}-b", 0)) == list(range(6))


@pytest.mark.parametrize("by_pattern", [False, True], ids=["topic", "pattern"])
def test_new_partitions(
    kafka: Broker, new_topic: TopicFactory, writer: Writer, by_pattern: bool
) -> None:
    """M-08, P-18: partitions added later are read from the start, the old ones go on."""
    topic = new_topic(1)
    writer.write(topic, [b"old"] * 10)
    with consuming(kafka.bootstrap_servers, metadata_max_age_ms=QUICK) as consumer:
        if by_pattern:
            consumer.subscribe(pattern=topic)
        else:
            consumer.subscribe([topic])
        reading = Reading(consumer).until_count(10)
        kafka.add_partitions(topic, 4)
        writer.write(topic, [Message(b"new", partition=n % 4) for n in range(40)])
        reading.until_count(50)
        assert consumer.assignment() == set(tps(topic, 4))
        assert reading.offsets(TopicPartition(topic, 0)) == list(range(20))
        for tp in tps(topic, 4)[1:]:
            assert reading.offsets(tp) == list(range(10))


def test_an_assigned_topic_that_does_not_exist_yet(
    kafka: Broker, new_topic: TopicFactory, writer: Writer
) -> None:
    """M-05, M-06: it is waited for and not created; others are read meanwhile."""
    present, name = new_topic(), unique("later")
    later = TopicPartition(name, 0)
    writer.write(present, [b"here"] * 5)
    with assigned(kafka.bootstrap_servers, [later, TopicPartition(present, 0)]) as consumer:
        reading = Reading(consumer).until_count(5)
        writer.write(present, [b"here"] * 5)
        reading.until_count(10)
        assert name not in consumer.topics()
        kafka.create_topic(name)
        writer.write(name, [b"there"] * 7)
        reading.until({later: 7})
        assert reading.offsets(later) == list(range(7))


def test_a_subscribed_topic_that_does_not_exist(
    kafka: Broker, new_topic: TopicFactory, writer: Writer
) -> None:
    """M-06: it is an error with the nearest name, once, and read as soon as it exists."""
    near = new_topic()
    name = near + "x"
    with consuming(kafka.bootstrap_servers, name) as consumer:
        with pytest.raises(UnknownTopicOrPartitionError) as raised:
            until(lambda: consumer.poll(300), "the error")
        assert near in str(raised.value)
        assert not consumer.poll(0)
        assert name not in consumer.topics()
        kafka.create_topic(name)
        writer.write(name, [b"there"] * 7)
        assert Reading(consumer).until_count(7).offsets(TopicPartition(name, 0)) == list(range(7))


@pytest.mark.parametrize("assign", [False, True], ids=["subscribed", "assigned"])
def test_a_topic_deleted_and_made_again(
    kafka: Broker, new_topic: TopicFactory, writer: Writer, assign: bool
) -> None:
    """M-02, F-16: the new topic of the same name is read by policy, not from the old position."""
    topic = new_topic(2)
    writer.write(topic, [Message(b"old", partition=n % 2) for n in range(200)])
    with consuming(kafka.bootstrap_servers, metadata_max_age_ms=QUICK) as consumer:
        if assign:
            consumer.assign(tps(topic, 1))
        else:
            consumer.subscribe([topic])
        reading = Reading(consumer).until_count(100 if assign else 200)
        kafka.delete_topic(topic)
        kafka.create_topic(topic, 1)
        writer.write(topic, [b"new"] * 30)
        reading.forget()
        while reading.count < 30:
            try:
                reading.until_count(30)
            except UnknownTopicOrPartitionError:
                continue  # it was away for a moment
        tp = TopicPartition(topic, 0)
        assert reading.offsets(tp) == list(range(30))
        assert reading.values(tp) == [b"new"] * 30
        if not assign:
            until(
                lambda: [consumer.poll(20), consumer.assignment() == {tp}][1],
                "the partition that is no more to be dropped",
            )


def test_topics_taken_on_between_refreshes(
    kafka: Broker, new_topic: TopicFactory, writer: Writer
) -> None:
    """M-01, M-05: what is wanted anew is asked for at once, whatever went on before."""
    topic = new_topic(1)
    writer.write(topic, [b"value"] * 10)
    tp = TopicPartition(topic, 0)
    for _ in range(20):
        with consuming(kafka.bootstrap_servers) as consumer:
            assert consumer.partitions_for_topic(topic) == {0}
            consumer.assign([tp])
            consumer.seek(tp, 4)
            assert Reading(consumer).until_count(6, 10).offsets(tp) == list(range(4, 10))
