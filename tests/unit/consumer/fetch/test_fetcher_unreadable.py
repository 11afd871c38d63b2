"""Fetcher: data that cannot be read stops its partition, after what comes before it."""

from __future__ import annotations

import pytest

from kfast.consumer.fetch_position import FetchPosition
from kfast.errors import (
    CorruptRecordError,
    DisconnectError,
    KafkaError,
    ProtocolError,
    RecordTooLargeError,
)
from kfast.protocol.messages.fetch import FetchRequest
from tests.unit.consumer.fakes import T0, T1
from tests.unit.consumer.harness import Harness, Part, batch, reading


def corrupt(first: int, count: int) -> bytes:
    data = bytearray(batch(first, count))
    data[-1] ^= 1
    return bytes(data)


def test_records_before_a_corrupt_batch_come_first() -> None:
    """F-08: then the error, at every poll, until the user seeks past it."""
    harness = reading({T0: 0, T1: 0})
    harness.reply(
        harness.fetch(),
        {T0: Part(batch(0, 5) + corrupt(5, 5) + batch(10, 5)), T1: Part(batch(0, 3))},
    )
    assert harness.collect() == {T0: [0, 1, 2, 3, 4], T1: [0, 1, 2]}
    for _ in range(3):
        with pytest.raises(CorruptRecordError) as caught:
            harness.collect()
        assert (caught.value.topic, caught.value.partition) == ("t", 0)
        assert (caught.value.offset, caught.value.next_offset) == (5, 10)
        assert harness.position(T0) == 5
    harness.subscriptions.seek(T0, FetchPosition(10))
    harness.outbox.clear()
    harness.turn()
    assert harness.collect() == {}


def test_nothing_is_fetched_behind_a_corrupt_batch() -> None:
    """F-08: the partition waits for a seek, the others go on."""
    harness = reading({T0: 0, T1: 0})
    harness.reply(harness.fetch(), {T0: Part(corrupt(0, 5))}, session_id=9)
    with pytest.raises(CorruptRecordError):
        harness.collect()
    request = harness.fetch()
    assert harness.forgotten(request) == [T0]
    harness.reply(request, {T1: Part(batch(0, 3))}, session_id=9)
    assert harness.collect() == {T1: [0, 1, 2]}
    with pytest.raises(CorruptRecordError):
        harness.collect()
    harness.subscriptions.seek(T0, FetchPosition(5))
    assert harness.offsets_of(harness.fetch()) == {T0: 5, T1: 3}


def test_other_partitions_are_not_held_up_by_an_error() -> None:
    """F-08: records and errors take turns."""
    harness = reading({T0: 0, T1: 0})
    harness.reply(harness.fetch(), {T0: Part(corrupt(0, 5)), T1: Part(batch(0, 2))})
    outcomes: list[object] = []
    for number in range(3):
        for _ in range(2):
            try:
                outcomes.append(harness.collect())
            except CorruptRecordError:
                outcomes.append("error")
        harness.reply(harness.fetch(), {T1: Part(batch(2 + 2 * number, 2))})
    assert outcomes == [{T1: [0, 1]}, "error", {T1: [2, 3]}, "error", {T1: [4, 5]}, "error"]


def test_a_batch_that_does_not_fit_is_an_error() -> None:
    """B-04: not one whole batch: RecordTooLarge names the size, the position stays."""
    harness = reading({T0: 4})
    whole = batch(4, 100)
    harness.reply(harness.fetch(), {T0: Part(whole[:300])})
    for _ in range(2):
        with pytest.raises(RecordTooLargeError) as caught:
            harness.collect()
        assert caught.value.size_needed == len(whole)
        assert caught.value.offset == 4
        assert str(len(whole)) in str(caught.value)
    assert harness.position(T0) == 4
    harness.turn()
    assert harness.waiting(FetchRequest) == []


def test_a_corrupt_header_stops_the_partition() -> None:
    """D-07, F-08: a batch whose header lies is an error, not a truncated tail."""
    harness = reading()
    bad = bytearray(batch(5, 5))
    bad[8:12] = b"\xff\xff\xff\xff"
    harness.reply(harness.fetch(), {T0: Part(batch(0, 5) + bytes(bad))})
    assert harness.state(T0).is_stalled
    harness.turn()
    assert harness.waiting(FetchRequest) == []
    assert harness.collect() == {T0: [0, 1, 2, 3, 4]}


def cut_off(harness: Harness, whole: bytes) -> RecordTooLargeError:
    harness.reply(harness.fetch(), {T0: Part(whole[:300])})
    with pytest.raises(RecordTooLargeError) as caught:
        harness.collect()
    return caught.value


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        (
            {"max_partition_fetch_bytes": 400, "fetch_max_bytes": 500},
            "raise max_partition_fetch_bytes and fetch_max_bytes to {size}",
        ),
        ({"max_partition_fetch_bytes": 400}, "raise max_partition_fetch_bytes to {size}"),
        ({"fetch_max_bytes": 400}, "raise fetch_max_bytes to {size}"),
        ({}, "raise fetch.max.bytes of the broker: this consumer allows more"),
    ],
)
def test_only_limits_that_are_too_low_are_to_be_raised(settings: dict[str, int], hint: str) -> None:
    """B-04: a batch cut off although the limits have room for it is the broker's doing."""
    whole = batch(0, 100)
    error = cut_off(reading({T0: 0}, **settings), whole)
    assert error.hint == hint.format(size=len(whole))


def test_a_length_no_batch_has_is_not_to_be_allowed() -> None:
    """B-04, D-07: a length that can only be damage is reported as such."""
    bad = bytearray(batch(0, 100))
    bad[8:12] = (0x7FFFFFF0).to_bytes(4, "big")
    error = cut_off(reading({T0: 0}), bytes(bad))
    assert "2147483644 bytes" in (error.cause or "")
    assert error.hint == "the length is most likely damaged: seek() past the batch"


def refused(size: int) -> ProtocolError:
    return ProtocolError("a frame was announced", size_needed=size)


def test_a_hostile_response_size_is_not_to_be_allowed() -> None:
    """B-04, D-21: no hint says to allow 2 GiB."""
    harness = reading({T0: 0})
    for _ in range(2):
        harness.fail(harness.fetch(), refused(0x7FFFFFFF))
        harness.advance(5_000)
    with pytest.raises(RecordTooLargeError) as caught:
        harness.collect()
    assert caught.value.size_needed == 0x7FFFFFFF
    assert caught.value.hint == (
        "check broker 1 and the network between: no batch is that large, the size is damaged"
    )


def lost(cause: KafkaError) -> DisconnectError:
    error = DisconnectError("lost the connection to broker 1", cause=cause.message)
    error.__cause__ = cause
    return error


def test_a_response_that_is_no_frame_is_reported_when_it_is_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """D-21, O-01: once is a warning and nothing more; again and again is an error of poll."""
    harness = reading({T0: 0})
    fault = ProtocolError("a frame of -1 bytes was announced", found="first four bytes ff")
    harness.fail(harness.fetch(), lost(fault))
    harness.advance(5_000)
    assert harness.collect() == {}
    for _ in range(3):
        harness.fail(harness.fetch(), lost(fault))
        harness.advance(5_000)
        with pytest.raises(ProtocolError) as caught:
            harness.collect()
    assert str(caught.value).splitlines() == [
        "broker 1 sends responses that cannot be read",
        "cause: a frame of -1 bytes was announced",
        "found: first four bytes ff",
        "try: check the broker, and the network between it and this machine",
    ]
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warnings == [
        "Broker 1 sent a response that cannot be read (a frame of -1 bytes was announced); retrying"
    ]
    harness.reply(harness.fetch(), {T0: Part(batch(0, 3))})
    assert harness.collect() == {T0: [0, 1, 2]}
    harness.fail(harness.fetch(), lost(fault))
    harness.advance(5_000)
    assert harness.collect() == {}, "a good answer in between: it is the first one again"
