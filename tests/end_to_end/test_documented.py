"""What the documents say of positions, pauses, nulls and signals, statement by statement."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kfast
from kfast import KafkaConsumer, TopicPartition
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from tests.document_examples import examples
from tests.end_to_end.groups import PROTOCOLS, Notes, cluster_of, committed, join, member
from tests.end_to_end.stage import Stage, eventually, read

MakeStage = Callable[..., Stage]
T = [TopicPartition("t", number) for number in range(2)]


# --- where a partition begins ---------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        ("latest", [b"after"]),
        ("earliest", [b"old", b"before", b"after"]),
        ("by_duration:PT1H", [b"before", b"after"]),
    ],
)
def test_a_partition_added_later_begins_as_the_reset_says(
    make_stage: MakeStage, protocol: str, reset: str, expected: list[bytes]
) -> None:
    """V-07: with latest what was written before the member had it is never delivered."""
    cluster = cluster_of(1, records=0)
    stage = make_stage(cluster, metadata_max_age_ms=200, auto_offset_reset=reset)
    consumer = member(stage, protocol)
    join(consumer, partitions=1)
    now_ms = time.time_ns() // 1_000_000
    with cluster.changing():
        cluster.add_partitions("t", 2)
        records = [Record(value=b"old"), Record(value=b"before", timestamp=now_ms)]
        cluster.append("t", 1, records, batch_records=1)
    found: list[Any] = []

    def is_assigned() -> bool:
        found.extend(read_values(consumer))
        return T[1] in consumer.assignment()

    eventually(is_assigned)
    consumer.position(T[1])
    cluster.append("t", 1, [Record(value=b"after", timestamp=now_ms)])

    def has_the_last() -> bool:
        found.extend(read_values(consumer))
        return b"after" in found

    eventually(has_the_last)
    assert found == expected


def read_values(consumer: KafkaConsumer) -> list[Any]:
    return [value for batch in consumer.poll(50).values() for value in batch.values.to_list()]


def test_auto_commit_keeps_where_a_partition_without_records_begins(make_stage: MakeStage) -> None:
    """V-07: so that what is written while no member runs is delivered to the next one."""
    cluster = cluster_of(1, records=10)
    stage = make_stage(cluster, auto_offset_reset="latest")
    consumer = member(stage)
    join(consumer, partitions=1)
    assert consumer.position(T[0]) == 10
    consumer.close()
    assert committed(cluster) == {0: 10}
    cluster.append("t", 0, [b"meanwhile"])
    assert read(member(stage), 1) == {T[0]: [(10, b"meanwhile")]}


def test_a_group_without_commits_begins_at_the_end_again(make_stage: MakeStage) -> None:
    """V-07: with latest; what came while nobody had the partition is not delivered."""
    cluster = cluster_of(1, records=0)
    stage = make_stage(cluster, auto_offset_reset="latest", enable_auto_commit=False)
    first = member(stage)
    join(first, partitions=1)
    first.position(T[0])
    cluster.append("t", 0, [b"one"])
    assert read(first, 1) == {T[0]: [(0, b"one")]}
    first.close()
    cluster.append("t", 0, [b"two"])
    second = member(stage)
    join(second, partitions=1)
    assert second.position(T[0]) == 2


# --- pause ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "assignor", "is_kept"),
    [
        ("classic", None, False),  # the default, while a member of the group lists range
        ("classic", "range", False),
        ("classic", "sticky", False),
        ("classic", "cooperative-sticky", True),
        ("consumer", None, True),
    ],
)
def test_what_a_rebalance_leaves_paused(
    make_stage: MakeStage, protocol: str, assignor: str | None, is_kept: bool
) -> None:
    """V-08: partitions that are not revoked; under an eager assignor all are."""
    settings = {} if assignor is None else {"partition_assignment_strategy": [assignor]}
    stage = make_stage(cluster_of(2))
    first = member(stage, protocol, **settings)
    join(first)
    first.pause(*T)
    second = member(stage, protocol, **settings)
    join(first, second)
    (kept,) = first.assignment()
    assert (first.paused() == {kept}) is is_kept
    second.close()
    join(first)
    assert first.paused() == ({kept} if is_kept else set())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_pauses_again_before_anything_is_delivered(
    make_stage: MakeStage, protocol: str
) -> None:
    """V-08"""

    def pause(name: str, partitions: list[TopicPartition], consumer: KafkaConsumer) -> None:
        if name == "assigned":
            consumer.pause(*partitions)

    stage = make_stage(cluster_of(2))
    first = member(stage, protocol, listener=Notes(pause))
    for _ in range(5):
        assert not first.poll(50)
    second = member(stage, protocol, listener=Notes(pause))
    eventually(
        lambda: (
            not first.poll(20)
            and not second.poll(20)
            and all(len(each.assignment()) == 1 for each in (first, second))
        )
    )
    assert first.paused() == first.assignment()
    assert second.paused() == second.assignment()


# --- callables ------------------------------------------------------------------------------------


class Named:
    """As kafka-python's deserializers."""

    def deserialize(self, topic: str, raw: bytes) -> str:
        assert raw is not None
        return f"{topic}: {raw.decode()}"


@pytest.mark.parametrize(
    ("deserializer", "expected"),
    [(bytes.decode, ["", None, "x"]), (Named(), ["t: ", None, "t: x"])],
)
def test_null_keys_and_values_are_not_passed_to_callables(
    make_stage: MakeStage, deserializer: Any, expected: list[str | None]
) -> None:
    """V-09: they are None; what is empty is passed."""
    cluster = cluster_of(1, records=0)
    cluster.append("t", 0, [Record(each, each) for each in (b"", None, b"x")])
    stage = make_stage(cluster, key_deserializer=deserializer, value_deserializer=deserializer)
    consumer = stage.consumer()
    consumer.assign(T[:1])
    (batch,) = consumer.batches(timeout_ms=1_000)
    assert [record.key for record in batch] == expected
    assert [record.value for record in batch] == expected
    assert batch.to_arrow().column("value").to_pylist() == expected


# --- signals --------------------------------------------------------------------------------------


@pytest.fixture
def _handlers() -> Iterator[None]:
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)}
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in previous.items():
        signal.signal(number, handler)


def orders() -> FakeCluster:
    cluster = cluster_of(1)
    cluster.create_topic("orders", 2)
    for partition in range(2):
        cluster.append("orders", partition, [b"x"] * 10)
    return cluster


@pytest.mark.usefixtures("_handlers")
def test_a_loop_that_sigterm_ends_commits_only_what_came_before(make_stage: MakeStage) -> None:
    """V-11: the batch in hand is read again, other than with close() in a finally."""
    (code,) = examples("docs/errors-and-logs.md", "Signals")
    cluster = orders()
    stage = make_stage(cluster)
    batches: list[kfast.PartitionRecords] = []

    def store(batch: kfast.PartitionRecords) -> None:
        batches.append(batch)
        if len(batches) == 3:
            signal.raise_signal(signal.SIGTERM)

    few = code.replace('"earliest",', '"earliest", max_poll_records=5,')
    assert few != code
    with pytest.raises(SystemExit):
        exec(
            few.replace("localhost:9092", stage.server.bootstrap_servers),
            {"kfast": kfast, "store": store},
        )
    done = {0: 0, 1: 0}
    for batch in batches[:2]:
        done[batch.partition] = batch.next_offset
    assert committed(cluster, "billing") == done

    consumer = stage.consumer("orders", group_id="other", max_poll_records=5)
    batches.clear()
    with pytest.raises(SystemExit):
        deque(map(store, consumer.batches(timeout_ms=10_000)))
    consumer.close()
    assert sum(committed(cluster, "other").values()) == sum(map(len, batches))


class TimeIsUp(Exception):
    """What a soft time limit raises."""


@pytest.mark.usefixtures("_handlers")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_consumer_goes_on_after_a_time_limit(make_stage: MakeStage, protocol: str) -> None:
    """V-11: the exception comes out of a poll that waits, as it is; records come once."""

    def is_up(*_: object) -> None:
        raise TimeIsUp

    cluster = cluster_of(1, records=0)
    consumer = member(make_stage(cluster), protocol)
    join(consumer, partitions=1)
    signal.signal(signal.SIGALRM, is_up)
    for offset in range(3):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        began = time.monotonic()
        with pytest.raises(TimeIsUp):
            consumer.poll(60_000)
        assert time.monotonic() - began < 20
        cluster.append("t", 0, [b"new"])
        assert read(consumer, 1) == {T[0]: [(offset, b"new")]}
    consumer.close()
    assert committed(cluster) == {0: 3}
