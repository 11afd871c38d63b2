"""Ranges: cutting them for tasks, limiting a micro-batch, and Kafka's JSON for offsets."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfast.errors import ConfigurationError
from kfast.table.offset_ranges import (
    BUNDLE_OFFSETS,
    OffsetRange,
    bundle_ranges,
    count_offsets,
    limit_offsets,
    plan_ranges,
)
from kfast.table.offsets_json import from_json_dict, parse_offsets, to_json_dict
from kfast.types import TopicPartition
from tests.spark.support import at, options, tp

sizes = st.lists(st.integers(0, 5_000), max_size=12)


def ranges(*lengths: int) -> list[OffsetRange]:
    return [OffsetRange("t", number, 10, 10 + size) for number, size in enumerate(lengths)]


def offsets_of(planned: list[OffsetRange]) -> list[tuple[int, int]]:
    """Return every (partition, offset) that is read, in order."""
    return [
        (part.partition, offset)
        for part in planned
        for offset in range(part.from_offset, part.until_offset)
    ]


def test_without_options_every_partition_with_data_is_a_task() -> None:
    assert plan_ranges(ranges(5, 0, 3)) == [ranges(5)[0], ranges(5, 0, 3)[2]]


def test_min_partitions_cuts_in_proportion() -> None:
    planned = plan_ranges(ranges(100, 10, 50), min_partitions=8)
    assert [sum(part.partition == n for part in planned) for n in range(3)] == [5, 1, 2]
    assert plan_ranges(ranges(5, 3), min_partitions=2) == ranges(5, 3)


def test_max_records_cuts_large_ranges() -> None:
    assert [part.size for part in plan_ranges(ranges(10, 3), max_records=4)] == [3, 3, 4, 3]


@given(sizes, st.integers(1, 40), st.none() | st.integers(1, 700))
def test_a_plan_reads_everything_once(
    lengths: list[int], min_partitions: int, max_records: int | None
) -> None:
    planned = plan_ranges(ranges(*lengths), min_partitions=min_partitions, max_records=max_records)
    assert offsets_of(planned) == offsets_of(ranges(*lengths))
    assert all(part.size > 0 for part in planned)
    assert len(planned) >= min(min_partitions, sum(lengths))
    if max_records is not None:
        assert all(part.size <= max_records for part in planned)


def test_a_limit_is_shared_in_proportion_and_every_partition_progresses() -> None:
    limited = limit_offsets(at(0, 100, 7), at(900, 1000, 8), 100)
    assert limited == at(49, 149, 8)
    assert limit_offsets(at(0, 0), at(3, 2), 5) == at(3, 2)


def test_a_limit_leaves_an_end_before_the_start_alone() -> None:
    assert limit_offsets(at(50, 0), at(40, 100), 10) == at(40, 10)


@given(
    st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**61)), max_size=8),
    st.integers(1, 10**9),
)
def test_a_limited_batch_has_about_as_many_offsets(
    spans: list[tuple[int, int]], limit: int
) -> None:
    start = at(*(begin for begin, _ in spans))
    end = at(*(begin + size for begin, size in spans))
    limited = limit_offsets(start, end, limit)
    assert all(start[each] <= limited[each] <= end[each] for each in end)
    assert count_offsets(start, limited) <= limit + len(spans)
    if any(size for _, size in spans):
        assert count_offsets(start, limited) > 0


@given(sizes, st.integers(0, 4_000))
def test_bundles_have_every_offset_once_and_no_more_than_allowed(
    lengths: list[int], most: int
) -> None:
    planned = plan_ranges(ranges(*lengths))
    bundles = bundle_ranges(planned, most)
    assert [part for bundle in bundles for part in bundle] == planned
    for bundle in bundles:
        assert len(bundle) == 1 or sum(part.size for part in bundle) <= most
    for one, two in itertools.pairwise(bundles):
        assert sum(part.size for part in (*one, two[0])) > most


def test_small_ranges_share_a_task_unless_many_tasks_are_wanted() -> None:
    assert options().bundle_offsets == BUNDLE_OFFSETS
    assert options(maxRecordsPerPartition="100").bundle_offsets == 100
    assert options(minPartitions="2").bundle_offsets == 0
    assert [len(bundle) for bundle in bundle_ranges(ranges(5, 4, 3, 2), 9)] == [2, 2]
    assert [len(bundle) for bundle in bundle_ranges(ranges(5, 4, 3, 2), 0)] == [1, 1, 1, 1]


def test_json_has_one_order_and_kafkas_form() -> None:
    offsets = {tp(10, "b"): 5, tp(2, "b"): -1, tp(0, "a"): 3}
    text = json.dumps(to_json_dict(offsets), separators=(",", ":"))
    assert text == '{"a":{"0":3},"b":{"2":-1,"10":5}}'
    assert parse_offsets(text, "x") == offsets
    assert from_json_dict(json.loads(text)) == offsets
    assert json.dumps(to_json_dict(dict(reversed(offsets.items())))) == json.dumps(
        to_json_dict(offsets)
    )


@pytest.mark.parametrize("number", ["-1", "1.0", " 1", "²", "99999999999", ""])
def test_json_with_an_impossible_partition(number: str) -> None:
    with pytest.raises(ConfigurationError, match="option x = "):
        parse_offsets(json.dumps({"t": {number: 1}}), "x")


def test_ranges_print_and_sort() -> None:
    assert str(ranges(5)[0]) == "t-0 [10, 15)"
    assert ranges(5)[0].topic_partition == TopicPartition("t", 0)
    assert max(ranges(1, 2, 3)) == ranges(1, 2, 3)[2]
