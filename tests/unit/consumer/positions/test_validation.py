"""PositionValidation: KIP-320."""

from __future__ import annotations

import logging

import pytest

from kfast.consumer.fetch_position import FetchPosition
from kfast.errors import AuthenticationError, KafkaError, LogTruncationError
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.fetch import FetchRequest
from kfast.protocol.messages.list_offsets import ListOffsetsRequest
from kfast.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kfast.types import OffsetAndMetadata
from tests.unit.consumer.fakes import T0, T1
from tests.unit.consumer.harness import Harness, Part, batch


def doubtful(**configs: object) -> Harness:
    """Return a consumer at offset 10 (epoch 5) whose leader has changed to broker 2, epoch 6."""
    harness = Harness({T0: (1, 5), T1: (1, 5)}, **configs)
    harness.assign({T0: 0})
    harness.reply(harness.fetch(), {T0: Part(batch(0, 10, epoch=5))})
    harness.collect()
    harness.reply(harness.fetch())
    harness.set_leaders({T0: (2, 6), T1: (1, 5)})
    return harness


def question(harness: Harness) -> tuple[int | None, int, int]:
    """Return (broker, current leader epoch, epoch asked about) of the request, and take it."""
    request = harness.take(OffsetForLeaderEpochRequest)
    message = request.message
    assert isinstance(message, OffsetForLeaderEpochRequest)
    assert message.replica_id == -1
    (topic,) = message.topics
    (part,) = topic.partitions
    harness.outbox.append(request)
    return request.node_id, part.current_leader_epoch, part.leader_epoch


def reply(harness: Harness, end: tuple[int, int] | int) -> None:
    harness.reply_epochs(harness.take(OffsetForLeaderEpochRequest), {T0: end})


def test_the_new_leader_is_sent_the_epoch() -> None:
    """P-13: nothing is fetched meanwhile; a valid position goes on."""
    harness = doubtful()
    assert question(harness) == (2, 6, 5)
    assert harness.waiting(FetchRequest) == []
    reply(harness, (5, 10))
    assert harness.position(T0) == 10
    assert harness.offsets_of(harness.fetch(2)) == {T0: 10}


def test_what_was_read_ahead_is_dropped_and_fetched_again() -> None:
    """P-13, F-02: buffered data of the old leader may not exist on the new one."""
    harness = Harness({T0: (1, 5)})
    harness.assign({T0: 0})
    harness.reply(harness.fetch(), {T0: Part(batch(0, 10, epoch=5))})
    harness.collect()
    harness.reply(harness.fetch(), {T0: Part(batch(10, 10, epoch=5))})
    harness.set_leaders({T0: (2, 6)})
    harness.turn()
    assert harness.buffer.memory.bytes_used == 0
    assert harness.collect() == {}
    reply(harness, (5, 10))
    assert harness.offsets_of(harness.fetch(2)) == {T0: 10}


def test_a_truncated_log_goes_on_where_it_diverged(caplog: pytest.LogCaptureFixture) -> None:
    """P-14: at the divergence, not at the start of the log."""
    harness = doubtful()
    with caplog.at_level(logging.WARNING, "kfast"):
        reply(harness, (4, 7))
    assert caplog.messages == [
        "The log of t-0 was truncated: offset 10 reset to 7, where it diverged, "
        "3 offsets read again"
    ]
    assert harness.position(T0) == 7
    assert harness.offsets_of(harness.fetch(2)) == {T0: 7}
    position = harness.subscriptions.position(T0)
    assert position is not None
    assert position.offset_epoch == 4


@pytest.mark.parametrize(
    ("answer", "divergent"), [((4, 7), OffsetAndMetadata(7, "", 4)), ((-1, -1), None)]
)
def test_a_truncated_log_without_policy_is_an_error(
    answer: tuple[int, int], divergent: OffsetAndMetadata | None
) -> None:
    """P-14: LogTruncation with the divergent offset, at every poll, until a seek."""
    harness = doubtful(auto_offset_reset="none")
    reply(harness, answer)
    for _ in range(2):
        with pytest.raises(LogTruncationError) as caught:
            harness.collect()
        assert caught.value.divergent_offset == divergent
        assert caught.value.offset == 10
    harness.advance(10_000)
    assert harness.waiting(OffsetForLeaderEpochRequest) == []
    harness.subscriptions.seek(T0, FetchPosition(7))
    assert harness.collect() == {}
    assert harness.offsets_of(harness.fetch(2)) == {T0: 7}


@pytest.mark.parametrize("answer", [(-1, -1), (5, -1), (-1, 7)])
def test_an_undefined_end_resets_by_policy(answer: tuple[int, int]) -> None:
    """P-14: the leader does not know the epoch at all."""
    harness = doubtful()
    reply(harness, answer)
    request = harness.take(ListOffsetsRequest)
    assert harness.asked_times(request) == {T0: -2}


@pytest.mark.parametrize(
    ("policy", "found", "consequence"),
    [
        ("earliest", 4, "reset to offset 4 (earliest), 6 offsets read again"),
        ("latest", 8, "reset to offset 8 (latest), 2 offsets read again"),
        ("latest", 25, "reset to offset 25 (latest), 15 records skipped"),
        ("earliest", 10, "reset to offset 10 (earliest), 0 records skipped"),
    ],
)
def test_a_truncation_that_the_broker_cannot_place_resets_and_says_what_follows(
    policy: str, found: int, consequence: str, caplog: pytest.LogCaptureFixture
) -> None:
    """P-14, O-02: one warning with the partition, both offsets and how far the position moves."""
    harness = doubtful(auto_offset_reset=policy)
    with caplog.at_level(logging.WARNING, "kfast"):
        reply(harness, (-1, -1))
        assert harness.position(T0) is None
        harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: found})
    assert caplog.messages == [f"Offset 10 of t-0 is gone: {consequence}"]
    assert harness.position(T0) == found
    assert harness.offsets_of(harness.fetch(2)) == {T0: found}


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78, 100])
def test_retriable_errors_never_reset(code: int) -> None:
    """P-15: asked again after a pause, the position stays."""
    harness = doubtful()
    reply(harness, code)
    harness.turn()
    assert harness.waiting(OffsetForLeaderEpochRequest) == []
    assert harness.waiting(ListOffsetsRequest) == []
    assert 0 < harness.next_poll_ms <= 1000
    assert harness.collect() == {}
    harness.advance(harness.next_poll_ms)
    reply(harness, (5, 10))
    assert harness.position(T0) == 10


@pytest.mark.parametrize("code", [29, 31, 42, -1])
def test_fatal_errors_are_raised_once_and_never_reset(code: int) -> None:
    """P-15: the position stays in doubt, is asked again in pauses, and recovers."""
    harness = doubtful()
    reply(harness, code)
    with pytest.raises(KafkaError) as caught:
        harness.collect()
    assert caught.value.topic == "t"
    harness.advance(1000)
    reply(harness, code)
    assert harness.collect() == {}
    assert harness.position(T0) is None
    harness.advance(1000)
    reply(harness, (5, 10))
    assert harness.position(T0) == 10


def test_a_second_leader_change_starts_afresh() -> None:
    """P-15: the new leader is asked; the first answer does not count."""
    harness = doubtful()
    first = harness.take(OffsetForLeaderEpochRequest)
    harness.set_leaders({T0: (3, 7), T1: (1, 5)})
    assert question(harness) == (3, 7, 5)
    harness.reply_epochs(first, {T0: (4, 2)})
    assert harness.position(T0) is None
    reply(harness, (5, 10))
    assert harness.position(T0) == 10
    assert harness.fetch().node_id == 3


def test_leaders_that_keep_changing_cost_one_request_each() -> None:
    """P-15: no endless requests for one change."""
    harness = doubtful()
    sent = 0
    for epoch in range(7, 12):
        harness.set_leaders({T0: (2 + epoch % 2, epoch), T1: (1, 5)})
        for _ in range(5):
            sent += len(harness.turn())
    assert sent == 5


def test_a_seek_ends_the_validation() -> None:
    harness = doubtful()
    request = harness.take(OffsetForLeaderEpochRequest)
    harness.subscriptions.seek(T0, FetchPosition(3))
    harness.reply_epochs(request, {T0: (4, 7)})
    assert harness.position(T0) == 3


def test_a_seek_with_epoch_is_validated_first() -> None:
    """P-14: also without any change of leader."""
    harness = Harness({T0: (1, 5)})
    harness.assign({T0: 0})
    harness.subscriptions.seek(T0, FetchPosition(50, offset_epoch=4))
    assert question(harness) == (1, 5, 4)
    assert harness.waiting(FetchRequest) == []
    reply(harness, (4, 60))
    assert harness.offsets_of(harness.fetch()) == {T0: 50}


@pytest.mark.parametrize("newest", [2, -1])
def test_an_old_broker_gets_no_request(newest: int) -> None:
    """P-13: below version 3 the position is taken to be valid."""
    harness = doubtful()
    harness.connections.newest[ApiKey.OFFSET_FOR_LEADER_EPOCH] = newest
    harness.turn()
    assert harness.waiting(OffsetForLeaderEpochRequest) == []
    assert harness.position(T0) == 10
    assert harness.offsets_of(harness.fetch(2)) == {T0: 10}


def test_metadata_without_epochs_needs_no_validation() -> None:
    harness = Harness({T0: (1, -1)})
    harness.assign({T0: 0})
    harness.subscriptions.seek(T0, FetchPosition(50, offset_epoch=4))
    assert harness.offsets_of(harness.fetch()) == {T0: 50}


def test_an_omitted_partition_and_a_lost_response_are_requested_again() -> None:
    harness = doubtful()
    harness.reply_epochs(harness.take(OffsetForLeaderEpochRequest), {T1: (5, 10)})
    harness.advance(1000)
    harness.fail(harness.take(OffsetForLeaderEpochRequest))
    harness.advance(1000)
    reply(harness, (5, 10))
    assert harness.position(T0) == 10


def test_a_broker_that_is_down_is_waited_for() -> None:
    harness = doubtful()
    harness.connections.down.add(2)
    assert harness.turn() == []
    assert harness.next_poll_ms <= harness.connections.delay_ms
    harness.connections.errors[2] = AuthenticationError("no")
    harness.turn()
    with pytest.raises(AuthenticationError):
        harness.collect()


def test_a_fatal_failure_of_the_request_is_raised() -> None:
    harness = doubtful()
    harness.fail(harness.take(OffsetForLeaderEpochRequest), KafkaError("malformed", node=2))
    with pytest.raises(KafkaError, match="malformed"):
        harness.collect()
