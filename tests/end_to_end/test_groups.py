"""Consumers in groups, through the public API: rebalances, listeners, leaving, who one is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import kfast
from kfast import KafkaConsumer, TopicPartition
from kfast.errors import IllegalStateError, InvalidGroupIdError, KafkaError, WakeupError
from kfast.protocol.api_keys import ApiKey
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import NeverAnswer
from tests.end_to_end.groups import (
    GROUP,
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

both = pytest.mark.parametrize("protocol", PROTOCOLS)

TELEMETRY = {71, 72}
"""GetTelemetrySubscriptions and PushTelemetry."""

MANUAL: dict[str, Any] = {"enable_auto_commit": False}


# --- sharing --------------------------------------------------------------------------------------


@both
def test_members_share_the_partitions_and_go_on_where_others_left_off(
    make_stage: MakeStage, protocol: str
) -> None:
    """P-01, C-01: everything is read once, across members that come and go."""
    stage = make_stage(cluster_of())
    first = member(stage, protocol, **MANUAL)
    assert read_all(first, 20) == {0: list(range(10)), 1: list(range(10))}
    first.commit({T0: 10, T1: kfast.OffsetAndMetadata(7)})
    second = member(stage, protocol, **MANUAL)
    join(first, second)
    assert first.assignment() | second.assignment() == {T0, T1}
    third = member(stage, protocol, **MANUAL)
    first.close()
    second.close()
    assert read_all(third, 3) == {1: [7, 8, 9]}
    assert third.assignment() == {T0, T1}


@both
def test_listeners_run_on_the_application_thread_and_may_call_the_consumer(
    make_stage: MakeStage, protocol: str
) -> None:
    """G-13: position, seek, commit and pause work inside; the seek and the pause hold."""

    def act(name: str, partitions: list[TopicPartition], consumer: KafkaConsumer) -> None:
        if name == "assigned" and partitions:
            assert consumer.assignment() >= set(partitions)
            assert [consumer.position(tp) for tp in partitions] == [0] * len(partitions)
            consumer.seek(T0, 8)
            consumer.pause(T1)
        elif name == "revoked":
            consumer.commit({T0: 9})

    notes = Notes(act)
    cluster = cluster_of()
    consumer = member(make_stage(cluster), protocol, listener=notes, **MANUAL)
    assert read_all(consumer, 2) == {0: [8, 9]}
    assert consumer.paused() == {T1}
    consumer.close()
    assert notes.calls == [("assigned", [0, 1]), ("revoked", [0, 1])]
    assert notes.threads == {threading.get_ident()}
    assert committed(cluster) == {0: 9}


@both
@pytest.mark.parametrize("when", ["assigned", "revoked"])
def test_a_listener_that_raises_is_reported_after_the_change(
    make_stage: MakeStage, protocol: str, when: str
) -> None:
    """G-13: poll raises once the assignment is in place, and the consumer stays usable."""
    failures = [when]

    def act(name: str, partitions: list[TopicPartition], _: KafkaConsumer) -> None:
        if partitions and name in failures:
            failures.remove(name)
            raise ValueError("a mistake of mine")

    stage = make_stage(cluster_of())
    first = member(stage, protocol, listener=Notes(act), **MANUAL)
    errors: list[KafkaError] = []
    second: list[KafkaConsumer] = []

    def is_shared() -> bool:
        try:
            first.poll(timeout_ms=20)
        except KafkaError as error:
            errors.append(error)
        if not second and first.assignment():
            second.append(member(stage, protocol, **MANUAL))
        for other in second:
            other.poll(timeout_ms=20)
        return bool(second) and len(first.assignment()) == len(second[0].assignment()) == 1

    eventually(is_shared)
    (error,) = errors
    assert error.message == "the rebalance listener failed: ValueError: a mistake of mine"
    assert isinstance(error.__cause__, ValueError)
    assert not failures


def test_nothing_of_a_revoked_partition_comes_after_its_revocation(make_stage: MakeStage) -> None:
    """G-08: not even the rest of a batch that iteration was in the middle of."""
    stage = make_stage(cluster_of(2, 2_000))
    notes = Notes()
    first = member(stage, listener=notes, consumer_timeout_ms=200, **MANUAL)
    yielded = [next(first)]
    second: list[KafkaConsumer] = []
    seen: list[tuple[int, int]] = []
    for record in first:
        yielded.append(record)
        seen.append((len(notes.calls), record.partition))
        if not second:
            second.append(member(stage, **MANUAL))
        second[0].poll(timeout_ms=0)
        if len(yielded) % 100 == 0:
            threading.Event().wait(0.02)  # the group takes its time, in the background
    assert ("revoked", [0, 1]) in notes.calls
    kept = {tp.partition for tp in first.assignment()}
    assert len(kept) == 1
    assert {partition for calls, partition in seen if calls >= 3} <= kept


@both
def test_a_lost_membership_calls_on_partitions_lost(make_stage: MakeStage, protocol: str) -> None:
    """G-12, A-03: on_lost instead of on_revoked, nothing is committed, the group is rejoined."""
    cluster = cluster_of()
    notes = Notes()
    consumer = member(make_stage(cluster), protocol, listener=notes)
    read_all(consumer, 20)
    cluster.groups.expire_member(GROUP, consumer.group_metadata().member_id)
    poll_until(lambda: len(notes.calls) == 3, consumer)
    assert notes.calls == [("assigned", [0, 1]), ("lost", [0, 1]), ("assigned", [0, 1])]
    assert committed(cluster) == {}


def test_a_listener_without_on_partitions_lost_gets_revoked(make_stage: MakeStage) -> None:
    """G-12: the default of on_partitions_lost, and listeners of other clients without it."""
    cluster = cluster_of()
    revoked: list[list[TopicPartition]] = []

    class Duck:
        def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            pass

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            revoked.append(partitions)

    consumer = member(make_stage(cluster), listener=Duck(), **MANUAL)
    join(consumer)
    cluster.groups.expire_member(GROUP, consumer.group_metadata().member_id)
    poll_until(lambda: bool(revoked), consumer)
    assert revoked == [[T0, T1]]


def test_pauses_and_positions_survive_a_cooperative_rebalance(make_stage: MakeStage) -> None:
    """P-11, G-10: what is kept stays as it is, what is paused stays a member."""
    stage = make_stage(cluster_of())
    settings = {"partition_assignment_strategy": ["cooperative-sticky"], **MANUAL}
    notes = Notes()
    first = member(stage, listener=notes, **settings)
    read_all(first, 20)
    first.pause(T0, T1)
    second = member(stage, **settings)
    join(first, second)
    (kept,) = first.assignment()
    (given,) = second.assignment()
    assert first.paused() == {kept}
    assert first.position(kept) == 10  # nothing was committed: it was not looked up again
    assert second.paused() == set()
    assert notes.calls == [("assigned", [0, 1]), ("revoked", [given.partition])]


def test_enforce_rebalance_joins_once_more(make_stage: MakeStage) -> None:
    """G-14: exactly one join, with the reason in it."""
    cluster = cluster_of()
    consumer = member(make_stage(cluster), **MANUAL)
    join(consumer)
    joins = len(cluster.requests.select(ApiKey.JOIN_GROUP))
    generation = consumer.group_metadata().generation_id
    consumer.enforce_rebalance("for the test")
    poll_until(lambda: consumer.group_metadata().generation_id > generation, consumer)
    requests = cluster.requests.select(ApiKey.JOIN_GROUP)[joins:]
    assert [request.message.reason for request in requests] == ["for the test"]


# --- leaving --------------------------------------------------------------------------------------


def asked(cluster: FakeCluster, *apis: ApiKey) -> list[ApiKey]:
    return [ApiKey(entry.api_key) for entry in cluster.requests if entry.api_key in apis]


def test_close_does_everything_in_order(make_stage: MakeStage) -> None:
    """L-02, A-01: commit, callbacks, on_revoked, leave; then connections; a second one nothing."""
    cluster = cluster_of()
    order: list[str] = []

    class Interceptor:
        def on_commit(self, offsets: dict[TopicPartition, kfast.OffsetAndMetadata]) -> None:
            order.append(f"committed {sorted(at.offset for at in offsets.values())}")

        def close(self) -> None:
            order.append("interceptor closed")

    notes = Notes(lambda name, *_: order.append(name))
    consumer = member(make_stage(cluster), listener=notes, interceptor_classes=[Interceptor()])
    read_all(consumer, 20)
    consumer.commit_async({T0: 3}, lambda offsets, error: order.append(f"callback {error}"))
    cluster.requests.clear()
    consumer.close()
    assert order == [
        "assigned",
        "committed [3]",
        "callback None",
        "committed [10, 10]",
        "revoked",
        "interceptor closed",
    ]
    assert committed(cluster) == {0: 10, 1: 10}
    tail = asked(cluster, ApiKey.OFFSET_COMMIT, ApiKey.LEAVE_GROUP)
    assert tail[-1] is ApiKey.LEAVE_GROUP
    assert tail.count(ApiKey.LEAVE_GROUP) == 1
    group = cluster.groups.classic(GROUP)
    assert group is not None
    assert not group.members
    consumer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.commit()
    eventually(lambda: cluster.connections == {})


def test_close_may_leave_things_out(make_stage: MakeStage) -> None:
    """G-22: autocommit=False commits nothing, remain_in_group leaves the member where it is."""
    cluster = cluster_of()
    consumer = member(make_stage(cluster))
    read_all(consumer, 20)
    cluster.requests.clear()
    consumer.close(autocommit=False, operation="remain_in_group")
    assert asked(cluster, ApiKey.OFFSET_COMMIT, ApiKey.LEAVE_GROUP) == []
    assert committed(cluster) == {}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [((False,), {}), ((False, 5_000), {}), ((True,), {0: 10, 1: 10}), ((5_000, False), {})],
)
def test_close_takes_its_arguments_in_the_order_of_kafka_python(
    make_stage: MakeStage, arguments: tuple[int, ...], expected: dict[int, int]
) -> None:
    """E-14: close(autocommit, timeout_ms); a bool is no time."""
    cluster = cluster_of()
    consumer = member(make_stage(cluster))
    read_all(consumer, 20)
    consumer.close(*arguments)  # type: ignore[arg-type]
    assert committed(cluster) == expected


@pytest.mark.parametrize("api", [ApiKey.OFFSET_COMMIT, ApiKey.LEAVE_GROUP])
def test_close_ends_in_time_without_a_coordinator(make_stage: MakeStage, api: ApiKey) -> None:
    """L-01: each step has what is left of the time, and none is left out."""
    cluster = cluster_of()
    notes = Notes()
    consumer = member(make_stage(cluster), listener=notes)
    read_all(consumer, 20)
    cluster.faults.add(NeverAnswer(), api=api, times=None)
    started = time.monotonic()
    consumer.close(timeout_ms=500)
    assert time.monotonic() - started < 1.5
    assert notes.calls[-1] == ("revoked", [0, 1])


def test_a_listener_that_raises_does_not_stop_close(make_stage: MakeStage) -> None:
    """L-02: the error is raised at the end, when everything is closed and the group left."""
    cluster = cluster_of()

    def act(name: str, *_: object) -> None:
        if name == "revoked":
            raise ValueError("no")

    consumer = member(make_stage(cluster), listener=Notes(act))
    read_all(consumer, 20)
    with pytest.raises(KafkaError, match="the rebalance listener failed"):
        consumer.close()
    assert committed(cluster) == {0: 10, 1: 10}
    assert asked(cluster, ApiKey.LEAVE_GROUP) == [ApiKey.LEAVE_GROUP]
    eventually(lambda: cluster.connections == {})


@both
def test_unsubscribe_leaves_and_drops_positions(make_stage: MakeStage, protocol: str) -> None:
    """G-23, A-01: commits, revokes, leaves; then one can subscribe or assign anew."""
    cluster = cluster_of()
    notes = Notes()
    consumer = member(make_stage(cluster), protocol, listener=notes)
    read_all(consumer, 20)
    consumer.unsubscribe()
    assert (consumer.assignment(), consumer.subscription()) == (set(), None)
    assert notes.calls[-1] == ("revoked", [0, 1])
    assert committed(cluster) == {0: 10, 1: 10}

    def members() -> int:
        groups = cluster.groups
        found = groups.classic(GROUP) or groups.consumer(GROUP)
        return 0 if found is None else len(found.members)

    eventually(lambda: members() == 0)
    with pytest.raises(IllegalStateError, match="without anything to read"):
        consumer.poll()
    consumer.assign([T0])
    assert consumer.position(T0) == 10
    consumer.unsubscribe()
    consumer.subscribe(["t"])
    join(consumer)
    assert len(notes.calls) == 2  # the listener went with its subscription


def test_ways_to_subscribe_exclude_each_other_in_a_group(make_stage: MakeStage) -> None:
    """G-24: mixing raises, a new subscription replaces the old one at the next rebalance."""
    cluster = cluster_of()
    cluster.create_topic("u", 1)
    consumer = member(make_stage(cluster), **MANUAL)
    join(consumer)
    with pytest.raises(IllegalStateError, match="exclude one another"):
        consumer.assign([T0])
    with pytest.raises(IllegalStateError, match="exclude one another"):
        consumer.subscribe(pattern="t.*")
    assert consumer.assignment() == {T0, T1}
    consumer.subscribe(["u"])
    poll_until(lambda: consumer.assignment() == {TopicPartition("u", 0)}, consumer)
    consumer.unsubscribe()
    consumer.subscribe(pattern="[tu]")
    poll_until(lambda: len(consumer.assignment()) == 3, consumer)


# --- threads, wakeup ------------------------------------------------------------------------------


def test_a_wakeup_does_not_interrupt_a_listener(make_stage: MakeStage) -> None:
    """L-03: commit and position inside it come to their ends; the poll after it raises, once."""
    cluster = cluster_of()
    found: list[int] = []

    def act(name: str, partitions: list[TopicPartition], consumer: KafkaConsumer) -> None:
        if name == "assigned":
            consumer.wakeup()
            consumer.commit({T0: 4})
            found.extend(consumer.position(tp) for tp in partitions)

    consumer = member(make_stage(cluster), listener=Notes(act), **MANUAL)
    with pytest.raises(WakeupError):
        poll_until(lambda: False, consumer)
    assert len(found) == 2
    assert committed(cluster) == {0: 4}
    consumer.seek_to_beginning()  # the poll with the listener may have returned records already
    assert read_all(consumer, 10)


def test_a_second_thread_is_refused_during_a_callback(make_stage: MakeStage) -> None:
    """L-05: the guard knows the thread that is inside, not just that one is."""
    refused: list[BaseException] = []

    def act(name: str, _: list[TopicPartition], consumer: KafkaConsumer) -> None:
        def intrude() -> None:
            try:
                consumer.commit()
            except KafkaError as error:
                refused.append(error)

        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join(10)

    consumer = member(make_stage(cluster_of()), listener=Notes(act), **MANUAL)
    join(consumer)
    assert refused
    assert all(isinstance(error, IllegalStateError) for error in refused)
    assert "two threads at once" in str(refused[0])


# --- who one is -----------------------------------------------------------------------------------


@both
def test_group_metadata_is_the_live_membership(make_stage: MakeStage, protocol: str) -> None:
    """T-11, L-11: no member before joining, afterwards what the coordinator knows."""
    cluster = cluster_of()
    consumer = member(make_stage(cluster), protocol, group_instance_id="me", **MANUAL)
    before = consumer.group_metadata()
    assert before == kfast.ConsumerGroupMetadata(GROUP, -1, "", "me")
    join(consumer)
    now = consumer.group_metadata()
    assert (now.group_id, now.group_instance_id) == (GROUP, "me")
    found = cluster.groups.classic(GROUP) or cluster.groups.consumer(GROUP)
    assert found is not None
    assert now.member_id in found.members
    assert now.generation_id > 0
    health = consumer.health()
    assert health.membership == now
    assert health.member_state is not None
    assert health.connections > 0
    assert health.ms_since_poll is not None


def test_without_a_group_there_is_nothing_to_commit_to(make_stage: MakeStage) -> None:
    """C-11: raised at once, with a hint."""
    consumer = make_stage(cluster_of()).consumer("t")
    for call in (
        consumer.commit,
        consumer.commit_async,
        consumer.group_metadata,
        lambda: consumer.committed(T0),
    ):
        with pytest.raises(InvalidGroupIdError, match="without a group") as caught:
            call()
        assert caught.value.hint == 'pass group_id="..." to KafkaConsumer'
    with pytest.raises(IllegalStateError, match="without being in a group"):
        consumer.enforce_rebalance()
    assert consumer.health().member_state is None
    assert "consumer-coordinator-metrics" not in consumer.metrics()


def test_routine_life_in_a_group_logs_no_warning(
    make_stage: MakeStage, caplog: pytest.LogCaptureFixture
) -> None:
    """O-01: joining, sharing and leaving are not worth one."""
    cluster = cluster_of()
    stage = make_stage(cluster)
    warm = member(stage, **MANUAL)
    read_all(warm, 20)
    warm.commit()
    caplog.clear()
    other = member(stage)
    join(warm, other)
    other.close()
    join(warm)
    warm.close()
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert warnings == []


@both
def test_every_request_carries_the_clients_name(make_stage: MakeStage, protocol: str) -> None:
    """O-07: on the connections for data and for the coordinator, from first to last.

    And brokers that ask for telemetry (KIP-714) are sent none.
    """
    cluster = cluster_of()
    for api in TELEMETRY:
        cluster.set_versions(api, (0, 0))
    consumer = member(make_stage(cluster), protocol, client_id="meter-7")
    read_all(consumer, 20)
    consumer.commit()
    consumer.close()
    keys = {request.api_key for request in cluster.requests}
    assert {
        ApiKey.API_VERSIONS,
        ApiKey.FETCH,
        ApiKey.OFFSET_COMMIT,
        ApiKey.FIND_COORDINATOR,
    } <= keys
    assert not TELEMETRY & keys
    assert {request.client_id for request in cluster.requests} == {"meter-7"}
