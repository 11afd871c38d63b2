"""Filters as offset ranges, and lag from what Spark reports: arithmetic only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kfast.spark.source.offset_filters import OffsetFilters
from kfast.spark.source.query_lag import query_lag
from kfast.table.offset_ranges import OffsetRange
from kfast.types import OffsetAndTimestamp, TopicPartition
from tests.spark.support import tp

RANGES = {
    tp(number, topic): OffsetRange(topic, number, 100, 200)
    for topic in ("a", "b")
    for number in (0, 1)
}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def left(*filters: tuple[str, str, Any]) -> dict[str, tuple[int, int]]:
    """Return what filters leave of four partitions with offsets 100 to 199."""

    def at_times(
        times: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        # One record per second, the first one at noon.
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for each, ms in times.items():
            offset = 100 + max(0, -(-(ms - NOON_MS) // 1000))
            found[each] = OffsetAndTimestamp(offset, ms) if offset < 200 else None
        return found

    chosen = OffsetFilters()
    for kind, column, value in filters:
        chosen = chosen.narrowed(kind, (column,), value)
    return {
        str(part.topic_partition): (part.from_offset, part.until_offset)
        for part in chosen.apply(RANGES, at_times)
        if part.size > 0
    }


EVERYTHING = left()


def test_no_filter_leaves_everything() -> None:
    assert dict.fromkeys(["a-0", "a-1", "b-0", "b-1"], (100, 200)) == EVERYTHING


def test_topics_and_partitions() -> None:
    assert set(left(("EqualTo", "topic", "a"))) == {"a-0", "a-1"}
    assert set(left(("In", "topic", ("a", "c")), ("In", "partition", [1, 2]))) == {"a-1"}
    assert set(left(("EqualNullSafe", "PARTITION", 0))) == {"a-0", "b-0"}
    assert left(("EqualTo", "topic", "a"), ("EqualTo", "topic", "b")) == {}


BOUNDS = [
    (("EqualTo", 150), (150, 151)),
    (("GreaterThan", 150), (151, 200)),
    (("GreaterThanOrEqual", 150), (150, 200)),
    (("LessThan", 150), (100, 150)),
    (("LessThanOrEqual", 150), (100, 151)),
    (("In", (150, 120, 160)), (120, 161)),
    (("GreaterThan", -5), (100, 200)),
]


@pytest.mark.parametrize(("item", "span"), BOUNDS)
def test_offsets(item: tuple[str, Any], span: tuple[int, int]) -> None:
    assert left((item[0], "offset", item[1])) == dict.fromkeys(EVERYTHING, span)


def test_offset_bounds_add_up_and_may_leave_nothing() -> None:
    both = (("GreaterThan", "offset", 110), ("LessThan", "offset", 120))
    assert left(*both, ("GreaterThan", "offset", 115))["a-0"] == (116, 120)
    assert left(("GreaterThan", "offset", 500)) == {}
    assert left(("LessThan", "offset", 5)) == {}


def test_times_bound_from_below_only() -> None:
    later = NOON + timedelta(seconds=30)
    assert left(("GreaterThanOrEqual", "timestamp", later))["a-0"] == (130, 200)
    elsewhere = later.astimezone(timezone(timedelta(hours=5)))
    assert left(("GreaterThan", "timestamp", elsewhere))["a-0"] == (130, 200)
    assert left(("EqualTo", "timestamp", later.replace(tzinfo=None)))["b-1"] == (130, 200)
    assert left(("LessThan", "timestamp", later)) == EVERYTHING, "times need not rise"
    assert left(("GreaterThan", "timestamp", NOON + timedelta(days=1))) == {}
    # Half a millisecond after a record: the record before must not be lost by rounding up.
    close = later + timedelta(microseconds=500)
    assert left(("GreaterThanOrEqual", "timestamp", close))["a-0"] == (130, 200)


UNHELPFUL = [
    ("Not", "offset", None),
    ("IsNotNull", "offset", None),
    ("EqualTo", "offset", "150"),
    ("EqualTo", "offset", True),
    ("EqualTo", "value", b"x"),
    ("StringStartsWith", "topic", "a"),
    ("In", "topic", (None, "a")),
    ("In", "offset", ()),
    ("GreaterThan", "timestamp", 5),
    ("EqualTo", "nothing", 1),
]


@pytest.mark.parametrize("item", UNHELPFUL)
def test_other_filters_are_passed_over(item: tuple[str, str, Any]) -> None:
    assert left(item) == EVERYTHING


def test_a_nested_column_is_not_the_one_of_that_name() -> None:
    narrowed = OffsetFilters().narrowed("EqualTo", ("value", "offset"), 150)
    assert narrowed == OffsetFilters()


# --- lag ------------------------------------------------------------------------------------------


def test_lag_by_partition_and_in_all() -> None:
    found = query_lag(
        "id",
        "name",
        7,
        [
            (None, '{"a":{"0":5,"1":3}}', '{"a":{"0":9,"1":3,"2":4}}'),
            ('{"b":{"0":1}}', '{"b":{"0":4}}', '{"b":{"0":4}}'),
        ],
    )
    assert found is not None
    assert found.partitions == {tp(0, "a"): 4, tp(1, "a"): 0, tp(2, "a"): 4, tp(0, "b"): 0}
    assert (found.total, found.offsets) == (8, 3)
    assert str(found) == ("query name batch 7: 3 offsets, lag 8 over 4 partitions, most 4 on a-0")


def test_partitions_that_are_gone_are_named() -> None:
    """Q-04: what was not read of them is lost, however much that is."""
    found = query_lag("id", "name", 7, [('{"a":{"0":5,"1":3}}', '{"a":{"0":9}}', None)])
    assert found is not None
    assert found.gone == (tp(1, "a"),)
    assert not found.is_complete
    assert str(found).endswith(", gone: a-1")


@pytest.mark.parametrize("text", [None, "0", "[]", "null", '{"a":1}', '{"a":{"x":"y"}}', "{"])
def test_sources_that_are_not_kafkas_are_passed_over(text: str | None) -> None:
    assert query_lag("id", None, 0, [(text, text, text)]) is None
