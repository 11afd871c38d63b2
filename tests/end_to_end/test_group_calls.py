"""Calls of a group member while its group is in trouble: they end in time and do as they say."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kfast import KafkaConsumer, TopicPartition
from kfast.errors import IllegalStateError, WakeupError
from kfast.protocol.api_keys import ApiKey
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import NeverAnswer, PartitionError
from tests.end_to_end.groups import (
    PROTOCOLS,
    Notes,
    cluster_of,
    committed,
    join,
    member,
    poll_until,
    read_all,
)
from tests.end_to_end.stage import Stage, eventually

MakeStage = Callable[..., Stage]

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
COORDINATOR_LOADING = 14
PROMPT_S = 5.0

both = pytest.mark.parametrize("protocol", PROTOCOLS)


def left(cluster: FakeCluster, protocol: str) -> int:
    """Return how many members have sent that they leave."""
    if protocol == "classic":
        return len(cluster.requests.select(ApiKey.LEAVE_GROUP))
    heartbeats = cluster.requests.select(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    return sum(request.message.member_epoch < 0 for request in heartbeats)


@both
def test_a_poll_does_not_wait_for_the_commit_before_a_revocation(
    make_stage: MakeStage, protocol: str
) -> None:
    """X-01: it ends in its time, `wakeup` ends it, and the listener is called behind the commit."""
    notes = Notes()
    cluster = cluster_of()
    stage = make_stage(cluster)
    first = member(stage, protocol, listener=notes, auto_commit_interval_ms=60_000)
    read_all(first, 20)
    cluster.faults.add(NeverAnswer(), api=ApiKey.OFFSET_COMMIT, times=None)
    second = member(stage, protocol, enable_auto_commit=False)

    def step() -> bool:
        begun = time.monotonic()
        first.poll(timeout_ms=20)
        assert time.monotonic() - begun < PROMPT_S
        second.poll(timeout_ms=20)
        return bool(cluster.requests.select(ApiKey.OFFSET_COMMIT))

    eventually(step)
    for _ in range(5):
        assert step()
    first.wakeup()
    with pytest.raises(WakeupError):
        first.poll(timeout_ms=60_000)
    assert [name for name, _ in notes.calls] == ["assigned"]
    first.close(timeout_ms=0)
    assert [name for name, _ in notes.calls] == ["assigned", "revoked"]


@both
@pytest.mark.parametrize("call", ["unsubscribe", "subscribe", "assign"])
def test_a_listener_may_unsubscribe(make_stage: MakeStage, protocol: str, call: str) -> None:
    """X-02: it is called once, and nothing of what another member owns by now is read."""

    def act(name: str, partitions: list[TopicPartition], consumer: KafkaConsumer) -> None:
        if name == "revoked":
            if call == "unsubscribe":
                consumer.unsubscribe()
            else:
                getattr(consumer, call)([])

    notes = Notes(act)
    cluster = cluster_of()
    stage = make_stage(cluster)
    first = member(stage, protocol, listener=notes, enable_auto_commit=False)
    read_all(first, 20)
    second = member(stage, protocol, enable_auto_commit=False)

    def step() -> bool:
        second.poll(timeout_ms=20)
        first.poll(timeout_ms=20)
        return False

    with pytest.raises(IllegalStateError, match="without anything to read"):
        eventually(step)
    assert first.assignment() == set()
    revoked = [number for name, numbers in notes.calls if name == "revoked" for number in numbers]
    assert sorted(revoked) == sorted(set(revoked))
    poll_until(lambda: second.assignment() == {T0, T1}, second)


@both
@pytest.mark.parametrize("is_commit_failing", [False, True])
def test_a_member_leaves_without_time_to_wait_for_it(
    make_stage: MakeStage, protocol: str, is_commit_failing: bool
) -> None:
    """X-03, L-01: close(0) sends that it leaves, whatever becomes of its commits."""
    cluster = cluster_of()
    stage = make_stage(cluster)
    consumer = member(stage, protocol, auto_commit_interval_ms=60_000)
    read_all(consumer, 20)
    if is_commit_failing:
        cluster.faults.add(
            PartitionError(COORDINATOR_LOADING), api=ApiKey.OFFSET_COMMIT, times=None
        )
    begun = time.monotonic()
    consumer.close(timeout_ms=200 if is_commit_failing else 0)
    assert time.monotonic() - begun < PROMPT_S
    assert cluster.requests.wait_for(lambda _: left(cluster, protocol) == 1, PROMPT_S)


@both
def test_nothing_is_delivered_of_what_a_slow_listener_has_lost(
    make_stage: MakeStage, protocol: str
) -> None:
    """X-05, G-06: the membership ended inside the listener; what is buffered is lost at once."""
    order: list[str] = []

    def act(name: str, partitions: list[TopicPartition], consumer: KafkaConsumer) -> None:
        order.append(name)
        if name == "revoked":
            group = consumer._runtime.group
            assert group is not None
            eventually(lambda: group.membership.identity is None)

    cluster = cluster_of(records=500)
    stage = make_stage(cluster)
    settings: dict[str, Any] = {"enable_auto_commit": False}
    if protocol == "classic":
        settings["partition_assignment_strategy"] = ["cooperative-sticky"]
    slow = member(stage, protocol, listener=Notes(act), max_poll_interval_ms=700, **settings)
    other = member(stage, protocol, **settings)
    poll_until(lambda: bool(slow.assignment()), slow)

    def step() -> bool:
        if slow.poll(timeout_ms=20, max_records=1):
            order.append("records")
        other.poll(timeout_ms=20, max_records=1)
        return "lost" in order

    eventually(step, lambda: str(order))
    assert order[order.index("revoked") + 1] == "lost"


@both
def test_a_changed_subscription_ends_delivery_at_once(make_stage: MakeStage, protocol: str) -> None:
    """X-06: nothing that is buffered of a topic that was left out is handed out any more."""
    cluster = cluster_of(1, records=500)
    cluster.create_topic("u", 1)
    cluster.append("u", 0, [b"y"] * 10)
    stage = make_stage(cluster)
    notes = Notes()
    consumer = member(stage, protocol, auto_commit_interval_ms=60_000)
    while not consumer.poll(timeout_ms=200, max_records=10):
        pass
    consumer.subscribe(["u"], listener=notes)
    topics: set[str] = set()
    seen = 0
    while seen < 10:
        records = consumer.poll(timeout_ms=200, max_records=10)
        topics |= {tp.topic for tp in records}
        seen += records.count()
    assert topics == {"u"}
    assert consumer.assignment() == {TopicPartition("u", 0)}
    offsets = cluster.groups.committed("g")
    assert offsets[T0] == 10, "what was handed out"


def test_a_changed_subscription_ends_delivery_without_a_group(make_stage: MakeStage) -> None:
    """X-06: also what an iteration has in hand."""
    cluster = cluster_of(1, records=500)
    cluster.create_topic("u", 1)
    cluster.append("u", 0, [b"y"] * 10)
    consumer = make_stage(cluster).consumer("t")
    row = next(consumer)
    assert row.topic == "t"
    consumer.subscribe(["u"])
    assert [next(consumer).topic for _ in range(10)] == ["u"] * 10


def test_unsubscribing_is_completed_by_the_next_call(make_stage: MakeStage) -> None:
    """X-07: after an exception of a signal handler in the middle of it."""
    cluster = cluster_of()
    stage = make_stage(cluster)
    notes = Notes()
    consumer = member(stage, listener=notes)
    read_all(consumer, 20)
    subscriptions = consumer._subscriptions
    unsubscribe = subscriptions.unsubscribe

    def interrupted() -> None:
        subscriptions.unsubscribe = unsubscribe  # type: ignore[method-assign]
        raise TimeoutError("mine")

    subscriptions.unsubscribe = interrupted  # type: ignore[method-assign]
    with pytest.raises(TimeoutError, match="mine"):
        consumer.unsubscribe()
    with pytest.raises(IllegalStateError, match="without anything to read"):
        consumer.poll(timeout_ms=0)
    assert [name for name, _ in notes.calls] == ["assigned", "revoked"]
    assert consumer.assignment() == set()
    assert committed(cluster) == {0: 10, 1: 10}
    other = member(stage)
    join(other)
