"""Errors that are retried for ever before a first record: they are neither silent nor an end.

The fake broker answers one API with a retriable error for as long as a case lasts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kfast import KafkaConsumer, TopicPartition
from kfast.consumer.retried_errors import NOTICE_MS
from kfast.errors import ErrorCode, KafkaTimeoutError
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kfast.testing.cluster import FakeCluster
from kfast.testing.fault_table import FaultRule
from kfast.testing.faults import EditResponse, PartitionError, TopLevelError
from tests.end_to_end.stage import Stage, error_of, eventually, read

NO_NODE = -1
T0 = TopicPartition("t", 0)
LOADING = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
UNAVAILABLE = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
NO_LEADER = int(ErrorCode.LEADER_NOT_AVAILABLE)
UNSTABLE = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
CONSUMER = {"group_protocol": "consumer"}

CASES: dict[str, tuple[int, int, dict[str, Any], str]] = {
    "coordinator": (ApiKey.FIND_COORDINATOR, UNAVAILABLE, {}, "COORDINATOR_NOT_AVAILABLE"),
    "coordinator, consumer protocol": (
        ApiKey.FIND_COORDINATOR,
        UNAVAILABLE,
        CONSUMER,
        "COORDINATOR_NOT_AVAILABLE",
    ),
    "join": (ApiKey.JOIN_GROUP, LOADING, {}, "COORDINATOR_LOAD_IN_PROGRESS"),
    "join at another broker": (ApiKey.JOIN_GROUP, UNAVAILABLE, {}, "COORDINATOR_NOT_AVAILABLE"),
    "sync": (ApiKey.SYNC_GROUP, LOADING, {}, "COORDINATOR_LOAD_IN_PROGRESS"),
    "heartbeat": (
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        LOADING,
        CONSUMER,
        "COORDINATOR_LOAD_IN_PROGRESS",
    ),
    "topic": (ApiKey.METADATA, NO_LEADER, {"group_id": None}, "LEADER_NOT_AVAILABLE"),
    "start positions": (
        ApiKey.LIST_OFFSETS,
        int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        {"group_id": None},
        "NOT_LEADER_OR_FOLLOWER",
    ),
    "committed offsets": (ApiKey.OFFSET_FETCH, LOADING, {}, "COORDINATOR_LOAD_IN_PROGRESS"),
}


@pytest.fixture
def stage() -> Iterator[Stage]:
    cluster = FakeCluster(1)
    cluster.features["group.version"] = 1
    cluster.create_topic("t", 1)
    cluster.append("t", 0, [b"%d" % number for number in range(10)])
    with Stage(cluster, group_id="g", bootstrap_timeout_ms=1_500) as found:
        yield found
        cluster.faults.clear()  # closing commits


def always(stage: Stage, api: int, code: int) -> FaultRule:
    by_partition = {ApiKey.METADATA, ApiKey.LIST_OFFSETS}
    fault = PartitionError(code) if api in by_partition else TopLevelError(code)
    return stage.cluster.faults.add(fault, api=api, times=None)


def raised(call: Callable[[], object]) -> KafkaTimeoutError:
    with pytest.raises(KafkaTimeoutError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("name", CASES)
def test_an_iteration_does_not_end_as_if_there_were_no_data(stage: Stage, name: str) -> None:
    """Y-03, Y-04, Y-06, Y-12: it raises why, health has it, and it goes on once it works."""
    api, code, configs, word = CASES[name]
    rule = always(stage, api, code)
    consumer = stage.consumer("t", consumer_timeout_ms=400, **configs)
    error = raised(lambda: next(consumer))
    assert word in (error.cause or ""), error
    assert '"g"' in error.message or configs == {"group_id": None}
    problem = consumer.health().problem
    assert problem is not None
    assert word in problem
    assert word in repr(consumer) or name in {"committed offsets", "topic", "start positions"}
    stage.cluster.faults.remove(rule)
    assert sum(map(len, read(consumer, 10).values())) == 10
    eventually(lambda: consumer.health().problem is None)


@pytest.mark.parametrize("name", CASES)
def test_polls_are_empty_until_it_is_certain(stage: Stage, name: str) -> None:
    """Y-03, Y-04, Y-06, Y-12: until bootstrap_timeout_ms after the first attempt."""
    api, code, configs, word = CASES[name]
    always(stage, api, code)
    started = time.monotonic()
    consumer = stage.consumer("t", **configs)
    error = error_of(consumer)
    assert time.monotonic() - started >= 1.5
    assert type(error) is KafkaTimeoutError
    assert word in (error.cause or "")
    assert word in (raised(lambda: next(consumer)).cause or "")


CALLS: dict[str, Callable[[KafkaConsumer], object]] = {
    "commit": lambda consumer: consumer.commit({T0: 1}, timeout_ms=300),
    "committed": lambda consumer: consumer.committed(T0, timeout_ms=300),
    "position": lambda consumer: consumer.position(T0, timeout_ms=300),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_without_a_coordinator_says_so_and_what_to_do(stage: Stage, name: str) -> None:
    """Y-03: the usual cause is the replication factor of the offsets topic."""
    always(stage, ApiKey.FIND_COORDINATOR, UNAVAILABLE)
    consumer = stage.consumer()
    consumer.assign([T0])
    error = raised(lambda: CALLS[name](consumer))
    assert "COORDINATOR_NOT_AVAILABLE" in (error.cause or "")
    assert (error.hint or "").startswith(
        "set offsets.topic.replication.factor=1 on the brokers: usually it is higher"
    )


def test_a_consumer_that_reads_does_not_need_a_coordinator(stage: Stage) -> None:
    """Y-03: partitions assigned by hand with positions that were sought."""
    always(stage, ApiKey.FIND_COORDINATOR, UNAVAILABLE)
    consumer = stage.consumer(consumer_timeout_ms=400, auto_commit_interval_ms=50)
    consumer.assign([T0])
    consumer.seek(T0, 0)
    assert [record.offset for record in consumer] == list(range(10))
    eventually(lambda: "COORDINATOR_NOT_AVAILABLE" in str(consumer.health().problem))


def test_a_member_whose_coordinator_is_gone_goes_on_reading(stage: Stage) -> None:
    """Y-03: an end of the data is an end, and polls raise nothing."""
    consumer = stage.consumer("t", consumer_timeout_ms=400, heartbeat_interval_ms=50)
    assert len(list(consumer)) == 10
    always(stage, ApiKey.FIND_COORDINATOR, UNAVAILABLE)
    always(stage, ApiKey.HEARTBEAT, int(ErrorCode.NOT_COORDINATOR))
    eventually(lambda: consumer.health().problem is not None)
    stage.cluster.append("t", 0, [b"x"])
    assert len(list(consumer)) == 1
    assert not consumer.poll(timeout_ms=1_600)


def test_offsets_of_an_open_transaction_are_named(stage: Stage) -> None:
    """Y-06: they are waited for as long as the transaction is open."""
    stage.cluster.faults.add(PartitionError(UNSTABLE), api=ApiKey.OFFSET_FETCH, times=None)
    consumer = stage.consumer("t", consumer_timeout_ms=400)
    assert "UNSTABLE_OFFSET_COMMIT" in (raised(lambda: next(consumer)).cause or "")


def test_one_partition_without_a_leader_does_not_keep_polls_from_the_others(stage: Stage) -> None:
    """Y-12: iterations and position() name it, once it lasts; polls go on."""
    stage.cluster.create_topic("u", 2)
    stage.cluster.move_leader("u", 1, NO_NODE)
    stage.cluster.append("u", 0, [b"x"])
    consumer = stage.consumer("u", group_id=None, consumer_timeout_ms=NOTICE_MS + 400)
    assert next(consumer).value == b"x"
    error = raised(lambda: next(consumer))
    assert error.message.startswith("positions to start from were not found within ")
    assert "u-1 has no leader" in (error.cause or "")
    error = raised(lambda: consumer.position(TopicPartition("u", 1), timeout_ms=300))
    assert "u-1 has no leader" in (error.cause or "")
    assert not consumer.poll(timeout_ms=1_600)


def test_an_assignment_of_topics_without_a_name_is_reported(stage: Stage) -> None:
    """Y-05: metadata never has the topic ids of the coordinator's assignment."""

    def reassign(response: object, _: object) -> None:
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.assignment is not None:
            response.assignment = Assignment([TopicPartitions(b"\x07" * 16, [0])])

    stage.cluster.faults.add(
        EditResponse(reassign), api=ApiKey.CONSUMER_GROUP_HEARTBEAT, times=None
    )
    consumer = stage.consumer("t", consumer_timeout_ms=600, **CONSUMER)
    error = raised(lambda: next(consumer))
    assert error.found == "07" * 16
    assert "topics" in error.message
