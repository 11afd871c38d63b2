"""What each error code of a Fetch response leads to, from a leader and from a follower."""

from __future__ import annotations

import logging

import pytest

from kfast.consumer.error_actions import ErrorAction
from kfast.consumer.fetch.errors import FETCH_ACTIONS
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.topic_partition_state import FetchState
from kfast.errors import (
    CorruptRecordError,
    KafkaError,
    OffsetOutOfRangeError,
    ProtocolError,
    RecordTooLargeError,
    TopicAuthorizationError,
    UnknownServerError,
    UnsupportedCompressionTypeError,
)
from kfast.protocol.messages.fetch import FetchRequest
from kfast.protocol.messages.list_offsets import ListOffsetsRequest
from kfast.types import TopicPartition
from tests.unit.consumer.fakes import T0, T1
from tests.unit.consumer.harness import Harness, Part, batch

REFRESHING = [3, 5, 6, 9, 56, 74, 100, 103]
RETRYING = [75, 78, -1]


def reading(position: int = 0, **configs: object) -> Harness:
    harness = Harness({T0: (1, 5), T1: (1, 5)}, **configs)
    harness.assign({T0: position})
    return harness


def answer_error(harness: Harness, code: int) -> None:
    harness.turn()
    harness.metadata._is_update_needed = False
    harness.reply(harness.fetch(), {T0: Part(error=code)})


@pytest.mark.parametrize("code", REFRESHING + RETRYING)
def test_transient_errors_are_retried_after_a_pause(code: int) -> None:
    """F-20: 3, 5, 6, 9, 56, 74, 78, 100, 103 refresh and retry; 75 and -1 retry."""
    harness = reading(7)
    answer_error(harness, code)
    assert harness.metadata.is_update_needed is (code in REFRESHING)
    harness.turn()
    assert harness.waiting(FetchRequest) == []
    assert 0 < harness.next_poll_ms <= 1000
    assert harness.collect() == {}
    assert harness.position(T0) == 7
    harness.advance(harness.next_poll_ms)
    assert harness.offsets_of(harness.fetch()) == {T0: 7}


def test_an_unknown_server_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """F-20: -1 is retried and shows in the log."""
    harness = reading(7)
    with caplog.at_level(logging.WARNING, "kfast"):
        answer_error(harness, -1)
    assert "t-0" in caplog.text


def test_backoffs_grow_and_end_with_a_usable_response() -> None:
    """F-20: exponential backoff per partition, other partitions go on."""
    harness = reading()
    harness.assign({T0: 0, T1: 0})
    pauses = []
    harness.reply(harness.fetch(), session_id=9)
    for number in range(4):
        harness.reply(harness.fetch(), {T0: Part(error=3)}, session_id=9)
        request = harness.fetch()
        assert harness.forgotten(request) == [T0]
        pauses.append(harness.next_poll_ms)
        harness.reply(request, {T1: Part(batch(number * 2, 2))}, session_id=9)
        harness.advance(harness.next_poll_ms)
    assert pauses == sorted(pauses)
    assert pauses[-1] > pauses[0]
    assert len(harness.collect()[T1]) == 2


@pytest.mark.parametrize("code", [4, 12, 42, 76, 104, 2, 29, 87])
def test_errors_that_are_not_retriable_are_raised(code: int) -> None:
    """F-20: with topic, partition and offset, at every poll, position unmoved."""
    harness = reading(7)
    answer_error(harness, code)
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            harness.collect()
        assert caught.value.topic == "t"
        assert caught.value.code == code
    assert harness.position(T0) == 7


def test_an_error_ends_with_the_first_usable_response() -> None:
    """S-08: usable again once granted, without a seek."""
    harness = reading(7)
    answer_error(harness, 29)
    with pytest.raises(TopicAuthorizationError, match='not allowed to read topic "t"'):
        harness.collect()
    harness.advance(200)
    harness.reply(harness.fetch(), {T0: Part(batch(7, 3))})
    assert harness.collect() == {T0: [7, 8, 9]}
    assert harness.collect() == {}


def test_an_error_ends_with_a_seek() -> None:
    harness = reading(7)
    answer_error(harness, 2)
    with pytest.raises(CorruptRecordError):
        harness.collect()
    harness.subscriptions.seek(T0, FetchPosition(9))
    assert harness.collect() == {}


def test_an_unsupported_codec_is_reported_with_the_partition() -> None:
    harness = reading(7)
    answer_error(harness, 76)
    with pytest.raises(UnsupportedCompressionTypeError, match="t-0 at offset 7"):
        harness.collect()


def test_an_unknown_code_keeps_its_number() -> None:
    """E-09: a code from the future is raised with its number."""
    harness = reading(7)
    answer_error(harness, 31_000)
    with pytest.raises(UnknownServerError, match="31000"):
        harness.collect()


def test_the_table_agrees_with_the_retriable_flags_elsewhere() -> None:
    """F-20: codes outside the table follow Kafka's flags."""
    assert FETCH_ACTIONS.of(13) is ErrorAction.REFRESH_METADATA
    assert FETCH_ACTIONS.of(7) is ErrorAction.RETRY
    assert FETCH_ACTIONS.of(35) is ErrorAction.REPORT
    assert {
        code for code, action in FETCH_ACTIONS.rows.items() if action.name == "REFRESH_METADATA"
    } | {
        6,
        74,
    } == set(REFRESHING)


def test_a_malformed_response_is_raised_and_retried() -> None:
    harness = reading(7)
    harness.fail(harness.fetch(), ProtocolError("bad bytes", node=1))
    with pytest.raises(ProtocolError):
        harness.collect()
    assert harness.collect() == {}
    harness.advance(1000)
    assert harness.offsets_of(harness.fetch()) == {T0: 7}


def refused(size: int) -> ProtocolError:
    return ProtocolError(f"a frame of {size} bytes was announced", size_needed=size)


def test_a_response_above_the_receive_cap_names_the_size() -> None:
    """B-04: RecordTooLarge instead of an endless loop of lost connections."""
    harness = reading(7)
    harness.fail(harness.fetch(), refused(200))
    assert harness.collect() == {}
    for _ in range(2):
        harness.advance(1000)
        harness.fail(harness.fetch(), refused(200))
        with pytest.raises(RecordTooLargeError, match="receive_message_max_bytes to 200") as caught:
            harness.collect()
        assert (caught.value.size_needed, caught.value.node) == (200, 1)
    assert harness.position(T0) == 7
    assert harness.turn() == []


def test_an_impossible_size_now_and_then_is_a_lost_connection() -> None:
    """D-21: damage in transit is retried, not reported as a large batch."""
    harness = reading(7)
    for size in (0x7FFFFFFF, 12345678, 0x7FFFFFFF):
        harness.fail(harness.fetch(), refused(size))
        assert harness.collect() == {}
        harness.advance(1000)
    harness.reply(harness.fetch(), {T0: Part(batch(7, 3))})
    harness.fail(harness.fetch(), refused(0x7FFFFFFF))
    assert harness.collect() == {T0: [7, 8, 9]}
    assert harness.collect() == {}


@pytest.mark.parametrize("code", [31, 35, 104])
def test_fatal_top_level_errors_are_raised(code: int) -> None:
    harness = reading(7)
    harness.reply(harness.fetch(), error=code)
    with pytest.raises(KafkaError) as caught:
        harness.collect()
    assert caught.value.code == code
    assert caught.value.node == 1


# --- out of range ---------------------------------------------------------------------------------


def test_out_of_range_at_the_leader_resets_by_policy(caplog: pytest.LogCaptureFixture) -> None:
    """P-10: old and new offset in a warning."""
    harness = reading(12)
    answer_error(harness, 1)
    request = harness.take(ListOffsetsRequest)
    assert harness.asked_times(request) == {T0: -2}
    with caplog.at_level(logging.WARNING, "kfast"):
        harness.reply_offsets(request, {T0: 84102})
    assert (
        "Offset 12 of t-0 is gone: reset to offset 84102 (earliest), 84090 records" in caplog.text
    )
    assert harness.offsets_of(harness.fetch()) == {T0: 84102}
    assert harness.position(T0) == 84102


def test_out_of_range_without_policy_is_raised_with_what_is_lost() -> None:
    """P-10: partition, offset and the loss; every poll raises until a seek."""
    harness = reading(12, auto_offset_reset="none")
    answer_error(harness, 1)
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: 84102})
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            harness.collect()
    error = caught.value
    assert str(error).splitlines() == [
        "offset 12 of t-0 is gone: the log now starts at 84102 (retention)",
        "lost: 84090 records",
        'try: seek_to_beginning(), or auto_offset_reset="earliest"',
    ]
    assert (error.topic, error.partition, error.offset) == ("t", 0, 12)
    assert error.log_start_offset == 84102
    assert harness.position(T0) == 12
    assert harness.turn() == []
    harness.subscriptions.seek(T0, FetchPosition(84102))
    assert harness.collect() == {}
    assert harness.offsets_of(harness.fetch()) == {T0: 84102}


def test_out_of_range_past_the_end_says_so() -> None:
    harness = reading(500, auto_offset_reset="none")
    answer_error(harness, 1)
    harness.reply_offsets(harness.take(ListOffsetsRequest), {T0: 3})
    with pytest.raises(OffsetOutOfRangeError, match="past the end of the log"):
        harness.collect()


def test_out_of_range_is_raised_even_if_the_log_start_cannot_be_found() -> None:
    harness = reading(12, auto_offset_reset="none")
    answer_error(harness, 1)
    harness.fail(harness.take(ListOffsetsRequest))
    with pytest.raises(OffsetOutOfRangeError, match="offset 12 of t-0 is not in the log"):
        harness.collect()


def test_what_is_buffered_is_handed_out_before_an_out_of_range_reset() -> None:
    """P-10, F-11: retention that overtakes the fetch position loses nothing already fetched."""
    harness = reading()
    harness.reply(harness.fetch(), {T0: Part(batch(0, 5))})
    answer_error(harness, 1)
    assert harness.turn() == []
    assert harness.collect() == {T0: [0, 1, 2, 3, 4]}
    request = harness.fetch()
    assert harness.offsets_of(request) == {T0: 5}
    harness.reply(request, {T0: Part(error=1)})
    assert harness.asked_times(harness.take(ListOffsetsRequest)) == {T0: -2}


def test_an_out_of_range_response_from_before_a_seek_is_ignored() -> None:
    """F-19: a stale offset that is out of range resets nothing."""
    harness = reading(12)
    request = harness.fetch()
    harness.subscriptions.seek(T0, FetchPosition(100))
    harness.reply(request, {T0: Part(error=1)})
    assert harness.offsets_of(harness.fetch()) == {T0: 100}


# --- leader hints (KIP-951) -----------------------------------------------------------------------


@pytest.mark.parametrize("code", [6, 74])
def test_a_leader_hint_is_followed_at_once(code: int) -> None:
    """M-03: the new leader is asked without a pause, also one that was unknown."""
    harness = reading(7)
    request = harness.fetch()
    harness.reply(request, {T0: Part(error=code, leader=(4, 6))}, endpoints=[(4, "b4", 9092)])
    request = harness.fetch(4)
    assert harness.offsets_of(request) == {T0: 7}
    assert harness.listed(request)[T0].current_leader_epoch == 6
    assert harness.metadata.is_update_needed


def test_a_leader_hint_validates_a_position_with_epoch() -> None:
    """P-13: the hint is a leader change like any other."""
    harness = reading()
    harness.reply(harness.fetch(), {T0: Part(batch(0, 5, epoch=5))})
    harness.collect()
    harness.reply(harness.fetch(), {T0: Part(error=6, leader=(2, 6))})
    harness.turn()
    assert harness.waiting(FetchRequest) == []
    assert harness.subscriptions.partitions_in(FetchState.AWAIT_VALIDATION) == [T0]


@pytest.mark.parametrize("hint", [(2, 5), (2, 4), (9, 6), (2, -1)])
def test_stale_and_useless_hints_are_ignored(hint: tuple[int, int]) -> None:
    """M-03: an epoch that is not newer, or a broker without address, changes nothing."""
    harness = reading(7)
    harness.reply(harness.fetch(), {T0: Part(error=6, leader=hint)})
    assert harness.turn() == []
    harness.advance(harness.next_poll_ms)
    assert harness.fetch().node_id == 1


# --- followers (KIP-392) --------------------------------------------------------------------------


def following(**configs: object) -> Harness:
    """Return a consumer that the leader, broker 1, has sent to broker 3."""
    harness = reading(7, client_rack="r", **configs)
    harness.reply(harness.fetch(1), {T0: Part(preferred=3)})
    return harness


def test_the_preferred_replica_is_fetched_from_at_once() -> None:
    """F-17: same position, no pause; the data is read there."""
    harness = following()
    request = harness.fetch(3)
    assert harness.offsets_of(request) == {T0: 7}
    harness.reply(request, {T0: Part(batch(7, 2))})
    assert harness.collect() == {T0: [7, 8]}
    assert harness.offsets_of(harness.fetch(3)) == {T0: 9}


def test_the_lease_ends() -> None:
    """F-18: after metadata_max_age_ms the leader is asked again, with the current position."""
    harness = following(metadata_max_age_ms=1000)
    harness.reply(harness.fetch(3), {T0: Part(batch(7, 2))})
    harness.advance(999)
    request = harness.fetch(3)
    harness.advance(1)
    harness.reply(request)
    assert harness.offsets_of(harness.fetch(1)) == {T0: 9}


@pytest.mark.parametrize("code", [1, 3, 6, 9, 56, 74, 75, 78, -1, 29])
def test_any_error_of_a_follower_leads_back_to_the_leader(code: int) -> None:
    """F-18, F-19: at once, and nothing is reset or raised because of it."""
    harness = following()
    harness.reply(harness.fetch(3), {T0: Part(error=code)})
    assert harness.offsets_of(harness.fetch(1)) == {T0: 7}
    assert harness.collect() == {}
    assert harness.position(T0) == 7


def test_a_disconnect_of_a_follower_leads_back_to_the_leader() -> None:
    """F-18: the replica is not asked again until the leader says so."""
    harness = following()
    harness.fail(harness.fetch(3))
    assert harness.offsets_of(harness.fetch(1)) == {T0: 7}


@pytest.mark.parametrize("change", ["offline", "gone", "leader"])
def test_metadata_that_speaks_against_a_follower_ends_the_lease(change: str) -> None:
    """F-18: offline replica, unknown broker, other leader."""
    harness = following()
    leaders = {T0: (2, 6) if change == "leader" else (1, 5), T1: (1, 5)}
    if change == "offline":
        harness.set_leaders(leaders, offline={T0: (3,)})
    elif change == "gone":
        harness.set_leaders(leaders, nodes=(1, 2))
    else:
        harness.set_leaders(leaders)
    assert harness.fetch().node_id == leaders[T0][0]


def test_a_late_out_of_range_of_a_former_follower_resets_nothing() -> None:
    """F-19: a broker that is not the leader cannot say that an offset is gone."""
    harness = following(metadata_max_age_ms=1000)
    request = harness.fetch(3)
    harness.advance(1000)
    harness.reply(request, {T0: Part(error=1)})
    assert harness.offsets_of(harness.fetch(1)) == {T0: 7}


def test_an_unknown_preferred_replica_does_not_spin() -> None:
    """F-17: a follower that is not in the metadata cannot be asked; the leader is, later."""
    harness = reading(7)
    harness.metadata._is_update_needed = False
    harness.reply(harness.fetch(1), {T0: Part(preferred=8)})
    assert harness.turn() == []
    assert harness.metadata.is_update_needed
    harness.advance(harness.next_poll_ms)
    assert harness.fetch().node_id == 1


def test_no_partition_is_fetched_from_two_brokers_while_it_is_redirected() -> None:
    """F-01: the leader's answer is there before the follower is asked."""
    harness = Harness({T0: (1, 5), T1: (1, 5)})
    harness.assign({T0: 0, T1: 0})
    harness.reply(harness.fetch(1), {T0: Part(preferred=3)}, session_id=9)
    leader, follower = harness.fetch(1), harness.fetch(3)
    assert harness.forgotten(leader) == [T0]
    assert harness.offsets_of(follower) == {T0: 0}
    assert TopicPartition("t", 1) not in harness.listed(follower)
