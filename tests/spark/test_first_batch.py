"""Where a new query starts, and where its first batch is repeated, with answers from memory."""

from __future__ import annotations

import pytest

from kfast.errors import OffsetOutOfRangeError
from kfast.spark.source.options import parse_options
from kfast.spark.source.stream_offsets import ENDS_MAX_AGE_MS, FirstBatch, Offsets, StreamOffsets
from kfast.table.offset_ranges import OffsetRange
from tests.fake_clock import FakeClock
from tests.spark.support import FakeLookup, at, options


class Topic:
    """Topic t, whose logs grow, and the runs of a query of it."""

    def __init__(self, *ends: int, **given: str) -> None:
        self.lookup = FakeLookup(at(*[0] * len(ends)), at(*ends))
        self.given = given
        self.clock = FakeClock()

    def run(self) -> StreamOffsets:
        """Start the query once more."""
        return StreamOffsets(options(is_stream=True, **self.given), self.lookup, self.clock)

    def grow(self, *ends: int) -> None:
        """Let the logs end there."""
        self.lookup.ends = at(*ends)
        self.lookup.starts = at(*[0] * len(ends))
        self.clock.advance(ENDS_MAX_AGE_MS)


def begin(run: StreamOffsets) -> tuple[Offsets, Offsets]:
    """Return where the first batch starts and ends, asked for as Spark does."""
    start = run.initial()
    return start, run.next_end(start, None)


def test_a_first_batch_at_the_end_of_the_logs_is_empty() -> None:
    topic = Topic(9, 3)
    run = topic.run()
    start = run.initial()
    topic.grow(12, 4)
    assert run.next_end(start, None) == start == at(9, 3)
    assert run.ranges(run.initial(), start) == []
    assert run.next_end(start, None) == at(12, 4), "only the first batch"


def test_a_first_batch_that_is_repeated_starts_where_it_did() -> None:
    topic = Topic(9, 3)
    _, end = begin(topic.run())
    topic.grow(20, 3, 8)  # a partition was added, too
    again = topic.run()
    for _ in range(2):  # Spark may plan a batch several times
        assert again.ranges(again.initial(), end) == []
    assert again.next_end(end, None) == at(20, 3, 8)
    assert again.ranges(end, at(20, 3, 8)) == [
        OffsetRange("t", 0, 9, 20),
        OffsetRange("t", 2, 0, 8),
    ]


def test_a_repeated_batch_is_not_followed_by_another_empty_one() -> None:
    topic = Topic(9)
    _, end = begin(topic.run())
    again = topic.run()
    assert again.ranges(again.initial(), end) == []
    topic.grow(15)
    assert again.next_end(end, None) == at(15)


def test_only_what_starts_at_the_end_of_its_log_waits_for_the_second_batch() -> None:
    topic = Topic(9, 9, startingOffsets='{"t":{"0":-1,"1":4}}')
    run = topic.run()
    start = run.initial()
    assert start == at(9, 4)
    topic.grow(12, 12)
    end = run.next_end(start, None)
    assert end == at(9, 12)
    topic.grow(30, 30)
    again = topic.run()
    assert again.initial() == at(30, 4)
    assert again.ranges(again.initial(), end) == [OffsetRange("t", 1, 4, 12)]


def test_other_starts_have_a_first_batch_with_records() -> None:
    for text in ("earliest", '{"t":{"0":0}}'):
        run = Topic(9, startingOffsets=text).run()
        start, end = begin(run)
        assert run.ranges(start, end) == [OffsetRange("t", 0, 0, 9)]


def test_a_minimum_counts_from_the_empty_batch() -> None:
    topic = Topic(9, minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    run = topic.run()
    _, end = begin(run)
    topic.grow(12)
    assert run.next_end(end, None) == at(9)
    topic.clock.advance(60_000)
    assert run.next_end(end, None) == at(12)


def test_older_sparks_ask_for_the_end_before_the_start() -> None:
    topic = Topic(9)
    run = topic.run()
    end = run.next_end(None, None)
    topic.grow(15)
    assert run.ranges(run.initial(), end) == []
    assert run.next_end(None, None) == at(15)
    assert run.ranges(end, at(15)) == [OffsetRange("t", 0, 9, 15)]


def test_a_log_that_was_cut_off_after_the_first_batch_is_a_loss_all_the_same() -> None:
    topic = Topic(9)
    run = topic.run()
    _, end = begin(run)
    run.ranges(run.initial(), end)
    topic.grow(5)
    with pytest.raises(OffsetOutOfRangeError, match="t-0 ends at 5, but was read up to 9"):
        run.next_end(end, None)
    with pytest.raises(OffsetOutOfRangeError, match="t-0 ends at 5, but was read up to 9"):
        run.ranges(end, at(5))


def test_a_pattern_without_a_topic_waits_for_one() -> None:
    topic = Topic()
    assert FirstBatch(options(is_stream=True), topic.lookup).fixed_ends({}) == {}
    lookup = FakeLookup({}, {})
    given = {"kafka.bootstrap.servers": "x:1", "subscribePattern": "t.*"}
    run = StreamOffsets(parse_options(given, is_stream=True), lookup, topic.clock)
    assert begin(run) == ({}, {})
    lookup.starts, lookup.ends = at(0), at(4)
    topic.clock.advance(ENDS_MAX_AGE_MS)
    assert run.next_end({}, None) == at(4)
