"""Fetcher: data that cannot be read stops its partition, after what comes before it."""

from __future__ import annotations

import pytest

from kfast.consumer.fetch_position import FetchPosition
from kfast.errors import CorruptRecordError, RecordTooLargeError
from kfast.protocol.messages.fetch import FetchRequest
from tests.unit.consumer.fakes import T0, T1
from tests.unit.consumer.harness import Part, batch, reading


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
