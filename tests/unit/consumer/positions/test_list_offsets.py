"""OffsetLookups: beginning_offsets, end_offsets, offsets_for_times."""

from __future__ import annotations

import pytest

from kfast.consumer.pending_result import PendingResult
from kfast.consumer.positions.list_offsets import Offsets
from kfast.errors import (
    AuthenticationError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationError,
)
from kfast.protocol.messages.list_offsets import ListOffsetsRequest
from kfast.types import OffsetAndTimestamp, TopicPartition
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.harness import Harness

TWO_NODES = {T0: (1, 5), T1: (2, 5), T2: (1, 5)}


def lookup(
    harness: Harness, timestamps: dict[TopicPartition, int], timeout_ms: int = 10_000
) -> PendingResult[Offsets]:
    return harness.offsets.list_offsets(timestamps, harness.clock.now_ms() + timeout_ms)


def test_ends_and_times_need_no_assignment_and_move_no_position() -> None:
    """P-08: one request per leader, answers in the order of the question."""
    harness = Harness(TWO_NODES)
    harness.assign({T0: 7})
    result = lookup(harness, {T1: -1, T0: -2, T2: 1234})
    first = harness.take(ListOffsetsRequest, 1)
    assert harness.asked_times(first) == {T0: -2, T2: 1234}
    harness.reply_offsets(first, {T0: 3, T2: 40})
    assert not result.is_done
    harness.reply_offsets(harness.take(ListOffsetsRequest, 2), {T1: 99})
    assert result.value == {
        T1: OffsetAndTimestamp(99, 1099, 5),
        T0: OffsetAndTimestamp(3, 1003, 5),
        T2: OffsetAndTimestamp(40, 1040, 5),
    }
    assert list(result.value) == [T1, T0, T2]
    assert harness.position(T0) == 7
    assert harness.subscriptions.state(T1) is None


@pytest.mark.parametrize("answer", [-1, (43, -1)])
def test_no_record_that_new_is_none(answer: int | tuple[int, int]) -> None:
    """P-07: None where there is no such record, or the format has no times."""
    harness = Harness(TWO_NODES)
    result = lookup(harness, {T0: 5000})
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: answer})
    assert result.value == {T0: None}


def test_minus_one_is_not_an_end() -> None:
    """P-09: -1 for earliest or latest is asked again, never returned."""
    harness = Harness(TWO_NODES)
    result = lookup(harness, {T0: -1})
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: -1})
    assert not result.is_done
    harness.advance(1000)
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: 8})
    assert result.value[T0] == OffsetAndTimestamp(8, 1008, 5)


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78, 100, -1])
def test_one_failing_partition_does_not_delay_the_others(code: int) -> None:
    """P-08: only the failing one is asked again."""
    harness = Harness(TWO_NODES)
    result = lookup(harness, {T0: -2, T2: -2})
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: (code, -1), T2: 1})
    harness.turn()
    assert harness.waiting(ListOffsetsRequest) == []
    harness.advance(harness.next_poll_ms)
    request = harness.take(ListOffsetsRequest)
    assert harness.asked_times(request) == {T0: -2}
    harness.reply_offsets(request, {T0: 6})
    assert result.value[T0] == OffsetAndTimestamp(6, 1006, 5)


def test_a_lost_response_is_requested_again() -> None:
    harness = Harness(TWO_NODES)
    result = lookup(harness, {T0: -2})
    harness.fail(harness.take(ListOffsetsRequest))
    harness.advance(1000)
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: 6})
    assert result.is_done


def test_an_unknown_topic_times_out_by_name() -> None:
    """P-07, E-06: never hangs; the error names what is missing and why."""
    harness = Harness({TopicPartition("orders", 0): (1, 5)})
    missing, absent = TopicPartition("oders", 0), TopicPartition("orders", 77)
    result = lookup(harness, {missing: -1, absent: -1}, 3000)
    harness.turn()
    assert harness.metadata.topics == frozenset({"oders", "orders"})
    assert harness.metadata.is_update_needed
    assert harness.next_poll_ms <= 3000
    harness.advance(2999)
    assert not result.is_done
    harness.advance(1)
    assert isinstance(result.error, KafkaTimeoutError)
    text = str(result.error)
    assert "offsets of oders-0, orders-77 were not found within 3000 ms" in text
    assert 'no topic "oders"' in text
    assert "orders has one partition, 0: there is no partition 77" in text
    assert 'did you mean "orders"?' in text
    assert harness.metadata.topics == frozenset()


def test_the_last_error_is_named_at_the_deadline() -> None:
    harness = Harness(TWO_NODES)
    result = lookup(harness, {T0: -1, T1: -1}, 500)
    harness.turn()
    (first,) = harness.waiting(ListOffsetsRequest, 1)
    harness.reply_offsets(first, {T0: (6, -1)})
    harness.advance(500)
    assert result.error is not None
    assert "NOT_LEADER_OR_FOLLOWER" in str(result.error)
    assert "the leader of t-1 has not responded" in str(result.error)


def test_nothing_reachable_is_said_at_the_deadline() -> None:
    harness = Harness()
    result = lookup(harness, {T0: -1}, 500)
    harness.advance(500)
    assert "no broker could be reached" in str(result.error)


def test_late_responses_are_ignored() -> None:
    harness = Harness(TWO_NODES)
    result = lookup(harness, {T0: -1}, 500)
    request = harness.take(ListOffsetsRequest)
    harness.advance(500)
    assert result.error is not None
    harness.reply_offsets(request, {T0: 5})
    harness.fail(request, KafkaError("x"))
    assert isinstance(result.error, KafkaTimeoutError)


def test_missing_permission_ends_the_look_up() -> None:
    harness = Harness(TWO_NODES)
    result = lookup(harness, {T0: -1})
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: (29, -1)})
    assert isinstance(result.error, TopicAuthorizationError)


def test_a_topic_that_metadata_refuses_ends_the_look_up() -> None:
    harness = Harness(TWO_NODES)
    harness.metadata.topic_errors = {"secret": 29}
    result = lookup(harness, {TopicPartition("secret", 0): -1})
    harness.turn()
    assert isinstance(result.error, TopicAuthorizationError)
    assert result.error.topic == "secret"


def test_errors_that_are_not_retriable_end_the_look_up() -> None:
    harness = Harness(TWO_NODES)
    result = lookup(harness, {T0: -1})
    harness.fail(harness.take(ListOffsetsRequest), KafkaError("malformed"))
    assert str(result.error) == "malformed"
    harness.connections.down.add(1)
    harness.connections.errors[1] = AuthenticationError("wrong password")
    result = lookup(harness, {T0: -1})
    harness.turn()
    assert isinstance(result.error, AuthenticationError)


def test_look_ups_run_side_by_side() -> None:
    """P-08: each has its own answers, and shared topics stay known until the last ends."""
    harness = Harness(TWO_NODES)
    first, second = lookup(harness, {T0: -2}), lookup(harness, {T0: -1})
    harness.turn()
    requests = harness.waiting(ListOffsetsRequest)
    assert [harness.asked_times(request)[T0] for request in requests] == [-2, -1]
    harness.reply_offsets(requests[0], {T0: 1})
    assert harness.metadata.topics == frozenset({"t"})
    harness.reply_offsets(requests[1], {T0: 2})
    assert harness.metadata.topics == frozenset()
    assert first.value[T0] == OffsetAndTimestamp(1, 1001, 5)
    assert second.value[T0] == OffsetAndTimestamp(2, 1002, 5)


def test_a_look_up_of_no_partitions_completes_at_once() -> None:
    assert lookup(Harness(TWO_NODES), {}).value == {}


def test_the_end_depends_on_the_isolation_level() -> None:
    """T-10: the last stable offset under read_committed."""
    harness = Harness(TWO_NODES, isolation_level="read_committed")
    lookup(harness, {T0: -1})
    message = harness.take(ListOffsetsRequest).message
    assert isinstance(message, ListOffsetsRequest)
    assert message.isolation_level == 1
