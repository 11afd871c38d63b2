"""Look-ups of what does not exist, or not yet, in virtual time."""

from __future__ import annotations

import pytest

from kfast.errors import KafkaTimeoutError, UnknownTopicOrPartitionError
from kfast.types import TopicPartition
from tests.end_to_end.virtual import T0, make_cluster
from tests.simulation.loopback_consumer import LoopbackConsumer

MISSING = TopicPartition("orders", 0)
BEYOND = TopicPartition("t", 7)


@pytest.mark.parametrize(
    ("tp", "text"),
    [
        (MISSING, 'no topic "orders" on this cluster'),
        (BEYOND, "t has one partition, 0: there is no partition 7"),
    ],
)
def test_what_does_not_exist_is_not_waited_for_to_the_end(tp: TopicPartition, text: str) -> None:
    """P-07, E-06: an error after a second or so in which the cluster knew nothing of it."""
    consumer = LoopbackConsumer(make_cluster())
    started = consumer.clock.now
    ended: list[int] = []
    pending = consumer.offsets.list_offsets({T0: -1, tp: -1}, started + 60_000)
    pending.add_callback(lambda _: ended.append(consumer.clock.now))
    with pytest.raises(UnknownTopicOrPartitionError) as caught:
        consumer.wait(pending)
    assert caught.value.message == text
    assert caught.value.topic == tp.topic
    assert caught.value.partition == (None if tp is MISSING else tp.partition)
    assert caught.value.hint
    assert 1_000 <= ended[0] - started <= 3_000
    assert consumer.metadata.topics == frozenset()


@pytest.mark.parametrize("tp", [MISSING, BEYOND])
def test_what_was_just_created_is_found(tp: TopicPartition) -> None:
    """P-07, M-05: brokers learn of a new topic one after the other."""
    cluster = make_cluster()
    consumer = LoopbackConsumer(cluster)

    def create() -> None:
        if tp is MISSING:
            cluster.create_topic(tp.topic)
        else:
            cluster.add_partitions(tp.topic, 8)

    consumer.network.schedule(900, create)
    found = consumer.list_offsets({T0: -1, tp: -1}, timeout_ms=60_000)
    assert {tp: hit.offset for tp, hit in found.items() if hit} == {T0: 20, tp: 0}


@pytest.mark.parametrize("tp", [MISSING, BEYOND])
def test_a_short_timeout_comes_first(tp: TopicPartition) -> None:
    """P-07: a caller who has less than a second learns of the timeout, and of its cause."""
    consumer = LoopbackConsumer(make_cluster())
    with pytest.raises(KafkaTimeoutError) as caught:
        consumer.list_offsets({tp: -1}, timeout_ms=500)
    assert "orders" in str(caught.value) or "no partition 7" in str(caught.value)


def test_metadata_from_before_the_question_does_not_count() -> None:
    """P-07: a topic created between the last refresh and the question exists."""
    cluster = make_cluster()
    consumer = LoopbackConsumer(cluster)
    consumer.assign(MISSING)
    consumer.run(5_000)
    cluster.create_topic("orders")
    found = consumer.list_offsets({MISSING: -1}, timeout_ms=10_000)
    assert found[MISSING] is not None
