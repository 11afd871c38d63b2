"""Topics that appear, grow, vanish, are forbidden or do not exist."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kfast import TopicPartition
from kfast.errors import (
    ConfigurationError,
    IllegalStateError,
    InvalidTopicError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import EditResponse, PartitionError
from tests.end_to_end.stage import Stage, error_of, eventually, offsets, read
from tests.end_to_end.virtual import T0, make_cluster, write

MakeStage = Callable[..., Stage]


def test_an_assigned_topic_that_does_not_exist_yet_is_waited_for(make_stage: MakeStage) -> None:
    """M-05: other topics are read meanwhile, and it is read once it is there."""
    cluster = make_cluster(nodes=1)
    consumer = make_stage(cluster).consumer()
    consumer.assign([T0, TopicPartition("later", 0)])
    assert offsets(read(consumer, 20)) == list(range(20))
    cluster.create_topic("later")
    cluster.append("later", 0, [b"x"] * 3)
    assert offsets(read(consumer, 3), topic="later") == [0, 1, 2]


def test_subscribing_to_an_unknown_topic_says_so_once(make_stage: MakeStage) -> None:
    """E-06: the error names the topic and a near one; the consumer goes on waiting for it."""
    cluster = FakeCluster()
    cluster.create_topic("orders")
    consumer = make_stage(cluster).consumer("oders")
    error = error_of(consumer)
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert 'no topic "oders"' in str(error)
    assert 'did you mean "orders"?' in str(error)
    cluster.create_topic("oders")
    cluster.append("oders", 0, [b"x"])
    assert offsets(read(consumer, 1), topic="oders") == [0]


def test_reading_never_creates_a_topic_when_that_is_not_wanted(make_stage: MakeStage) -> None:
    """M-06: not with allow_auto_create_topics=False, not by patterns, not by look-ups."""
    cluster = make_cluster(nodes=1)
    cluster.has_auto_creation = True
    stage = make_stage(cluster)
    error_of(stage.consumer("absent", allow_auto_create_topics=False))
    by_pattern = stage.consumer(metadata_max_age_ms=100)
    by_pattern.subscribe(pattern="absent.*")
    by_pattern.poll(timeout_ms=300)
    assert by_pattern.partitions_for_topic("absent") is None
    assert by_pattern.topics() == {"t"}
    assert set(cluster.topics) == {"t"}
    asked = cluster.requests.messages(MetadataRequest)
    assert not any(request.allow_auto_topic_creation for request in asked)


def test_a_topic_may_be_created_by_subscribing(make_stage: MakeStage) -> None:
    """M-06: the broker may create it when the configuration says so in words."""
    cluster = FakeCluster()
    cluster.has_auto_creation = True
    stage = make_stage(cluster)
    error_of(stage.consumer("fresh"))
    assert not cluster.topics
    consumer = stage.consumer("fresh", allow_auto_create_topics=True)
    eventually(lambda: not consumer.poll(timeout_ms=50) and "fresh" in cluster.topics)
    cluster.append("fresh", 0, [b"x"])
    assert offsets(read(consumer, 1), topic="fresh") == [0]


def test_patterns_follow_topics_as_they_come_and_go(make_stage: MakeStage) -> None:
    """M-07: new matching topics are read, vanished ones leave, internal ones stay out."""
    cluster = FakeCluster()
    for name in ("log-a", "other"):
        cluster.create_topic(name)
        cluster.append(name, 0, [b"x"])
    cluster.create_topic("log-internal", is_internal=True)
    consumer = make_stage(cluster, metadata_max_age_ms=50).consumer()
    consumer.subscribe(pattern="log-.*")
    assert offsets(read(consumer, 1), topic="log-a") == [0]
    assert consumer.subscription() == {"log-a"}
    cluster.create_topic("log-b", 2)
    cluster.append("log-b", 1, [b"x"])
    assert offsets(read(consumer, 1), 1, "log-b") == [0]
    cluster.delete_topic("log-a")
    eventually(
        lambda: (
            not consumer.poll(timeout_ms=20)
            and consumer.assignment() == {TopicPartition("log-b", 0), TopicPartition("log-b", 1)}
        )
    )
    inner = make_stage(cluster).consumer(exclude_internal_topics=False)
    inner.subscribe(pattern="log-.*")
    inner.poll(timeout_ms=300)
    assert inner.subscription() == {"log-b", "log-internal"}


def test_new_partitions_are_read_from_their_start(make_stage: MakeStage) -> None:
    """M-08, P-18: growth of a subscribed topic is noticed at the next refresh."""
    cluster = make_cluster(nodes=1)
    consumer = make_stage(cluster, metadata_max_age_ms=50).consumer("t")
    assert offsets(read(consumer, 20)) == list(range(20))
    cluster.add_partitions("t", 3)
    write(cluster, 2, 5)
    assert offsets(read(consumer, 5), 2) == list(range(5))
    assert consumer.assignment() == {TopicPartition("t", number) for number in range(3)}


def test_a_deleted_topic_leaves_the_others_alone(make_stage: MakeStage) -> None:
    """M-02: deletion is noticed, nothing spins, the rest is read on."""
    cluster = make_cluster(nodes=1)
    cluster.create_topic("gone")
    cluster.append("gone", 0, [b"x"])
    consumer = make_stage(cluster, metadata_max_age_ms=100).consumer("t", "gone")
    read(consumer, 21)
    cluster.delete_topic("gone")
    write(cluster, 0, 5)
    found: list[int] = []
    errors: list[Exception] = []

    def step() -> bool:
        try:
            found.extend(row.offset for row in consumer.poll(timeout_ms=50).get(T0) or ())
        except UnknownTopicOrPartitionError as error:
            errors.append(error)
        return len(found) == 5

    eventually(step)
    assert found == list(range(20, 25))
    assert len(errors) <= 1


def test_a_recreated_topic_is_read_anew(make_stage: MakeStage) -> None:
    """M-02: a new topic id drops positions, epochs and what was buffered."""
    cluster = make_cluster(nodes=1, partitions=2)
    consumer = make_stage(cluster, metadata_max_age_ms=100).consumer("t")
    read(consumer, 40)
    with cluster.changing():
        cluster.recreate_topic("t", 1)
        cluster.append("t", 0, [b"new"] * 7)
    found = read(consumer, 7)
    assert found == {T0: [(n, b"new") for n in range(7)]}


def test_a_forbidden_topic_raises_and_can_be_granted(make_stage: MakeStage) -> None:
    """E-06: the error names the topic, others flow, and it works once it is granted."""
    cluster = make_cluster(nodes=1)
    cluster.create_topic("secret")
    cluster.append("secret", 0, [b"x"])
    cluster.denied_topics.add("secret")
    consumer = make_stage(cluster).consumer("t", "secret")
    found: list[int] = []
    errors: list[TopicAuthorizationError] = []

    def step() -> bool:
        try:
            for batch in consumer.poll(timeout_ms=50).values():
                found.extend(batch.offsets.tolist())
        except TopicAuthorizationError as error:
            errors.append(error)
        return len(found) >= 20 and bool(errors)

    eventually(step)
    assert found == list(range(20))
    assert "secret" in str(errors[0])
    cluster.denied_topics.clear()
    granted: list[int] = []

    def step_again() -> bool:
        try:
            rows = consumer.poll(timeout_ms=50).get(TopicPartition("secret", 0)) or ()
            granted.extend(row.offset for row in rows)
        except TopicAuthorizationError as error:
            errors.append(error)
        return bool(granted)

    eventually(step_again)
    assert granted == [0]


def test_what_a_topic_has(make_stage: MakeStage) -> None:
    """E-10: partitions_for_topic and topics ask the cluster without subscribing."""
    cluster = make_cluster(nodes=2, partitions=3)
    cluster.create_topic("__internal", is_internal=True)
    stage = make_stage(cluster)
    consumer = stage.consumer()
    assert consumer.partitions_for_topic("t") == {0, 1, 2}
    assert consumer.partitions_for_topic("absent") is None
    assert consumer.topics() == {"t"}
    assert stage.consumer(exclude_internal_topics=False).topics() == {"t", "__internal"}
    assert consumer.subscription() is None


def test_misuse_raises_locally(make_stage: MakeStage) -> None:
    """E-05: nothing of this needs a broker."""
    cluster = make_cluster(nodes=1)
    consumer = make_stage(cluster).consumer()
    with pytest.raises(IllegalStateError):
        consumer.poll()
    with pytest.raises(ConfigurationError):
        consumer.subscribe("t")
    for name in ("", ".", "..", "a" * 250, "a b", "a/b", "ä"):
        with pytest.raises(InvalidTopicError):
            consumer.subscribe([name])
    consumer.subscribe(["t"])
    with pytest.raises(IllegalStateError):
        consumer.assign([T0])
    with pytest.raises(IllegalStateError):
        consumer.subscribe(pattern="t.*")
    consumer.unsubscribe()
    consumer.assign([T0])
    with pytest.raises(IllegalStateError):
        consumer.subscribe(["t"])
    assert len(cluster.requests) == 0


def test_a_pattern_finds_a_topic_that_is_just_being_created(make_stage: MakeStage) -> None:
    """U-09: what matches and has no leader yet is asked for again at once."""
    cluster = make_cluster(nodes=1)
    cluster.create_topic("t2")
    cluster.append("t2", 0, [b"x"] * 3)
    cluster.faults.add(PartitionError(5, "t2"), api=ApiKey.METADATA, times=4)
    consumer = make_stage(cluster).consumer()
    consumer.subscribe(pattern="t")
    assert sum(map(len, read(consumer, 23).values())) == 23


def take_offline(response: MetadataResponse, _: object) -> None:
    for topic in response.topics:
        if topic.name == "unrelated":
            topic.partitions[0].error_code, topic.partitions[0].leader_id = 5, -1


@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_pattern_does_not_refresh_for_topics_that_it_does_not_match(
    make_stage: MakeStage, group_id: str | None
) -> None:
    """U-09: an unrelated partition without a leader costs nothing; one that matches is found."""
    cluster = make_cluster(nodes=1)
    cluster.create_topic("unrelated")
    cluster.faults.add(EditResponse(take_offline), api=ApiKey.METADATA, times=None)
    consumer = make_stage(cluster, retry_backoff_max_ms=50).consumer(group_id=group_id)
    consumer.subscribe(pattern="t$")
    read(consumer, 20)
    before = len([each for each in cluster.requests if each.api_key == ApiKey.METADATA])
    deadline = time.monotonic() + 0.6
    while time.monotonic() < deadline:
        consumer.poll(timeout_ms=100)
    after = len([each for each in cluster.requests if each.api_key == ApiKey.METADATA])
    assert after - before <= 3
    cluster.faults.clear()
    consumer.subscribe(pattern="(t|unrelated)$")
    eventually(lambda: not consumer.poll(timeout_ms=50) and len(consumer.assignment()) == 2)
