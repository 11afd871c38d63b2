"""What the public calls refuse, and what they say."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from kfast.application.arguments import (
    FOREVER_MS,
    as_iterable,
    check_partition,
    check_timeout,
    check_topic,
    compile_pattern,
    time_ms,
)
from kfast.errors import ConfigurationError, InvalidTopicError
from kfast.types import TopicPartition


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "orders/1", "é", "a\n"])
def test_illegal_topic_names_are_refused_locally(name: str) -> None:
    """E-05: an illegal topic name raises before anything is sent."""
    with pytest.raises(InvalidTopicError, match="cannot be the name of a topic") as caught:
        check_topic(name)
    assert caught.value.hint is not None


@pytest.mark.parametrize("name", ["orders", "a" * 249, "A.b_c-9", "..."])
def test_legal_topic_names_pass(name: str) -> None:
    check_topic(name)


@pytest.mark.parametrize("name", [None, b"orders", 7])
def test_topic_names_of_another_type_are_refused(name: Any) -> None:
    """E-05: a wrong type is told as such."""
    with pytest.raises(ConfigurationError, match="not a topic name"):
        check_topic(name)


@pytest.mark.parametrize(
    "partition",
    ["orders", ("orders",), ("orders", "0"), ("orders", -1), ("orders", True), (b"o", 0), None, 3],
)
def test_wrong_partitions_are_refused(partition: Any) -> None:
    """E-05: what is not a TopicPartition is refused with an example of one."""
    with pytest.raises(ConfigurationError, match="is not a partition") as caught:
        check_partition(partition)
    assert caught.value.hint is not None
    assert "TopicPartition" in caught.value.hint


def test_partitions_become_plain_tuples() -> None:
    found = check_partition(("orders", np.int64(3)))
    assert found == TopicPartition("orders", 3)
    assert type(found.partition) is int


def test_one_partition_where_a_list_belongs() -> None:
    """E-05: a single partition is not taken for a list of two."""
    with pytest.raises(ConfigurationError, match="where a list of partitions belongs"):
        as_iterable(TopicPartition("orders", 0))


@pytest.mark.parametrize("timeout", [-1, -0.5, math.nan, "5", None, True])
def test_wrong_timeouts_are_refused(timeout: Any) -> None:
    """E-02: a timeout that is no number of milliseconds raises, naming it."""
    with pytest.raises(ConfigurationError, match="timeout_ms"):
        check_timeout(timeout)


def test_timeouts_in_plain_form() -> None:
    assert check_timeout(0) == 0
    assert check_timeout(1) == 1
    assert check_timeout(math.inf) == FOREVER_MS


@pytest.mark.parametrize("timeout", [1.0, 0.1, 1.5, 0.0, np.float64(5.0)])
def test_a_timeout_in_seconds_is_refused_with_the_remedy(timeout: float) -> None:
    """E-02: poll(1.0) of confluent-kafka would wait a millisecond."""
    with pytest.raises(ConfigurationError) as caught:
        check_timeout(timeout)
    assert str(caught.value).splitlines() == [
        f"timeout_ms = {timeout!r}: a float, as clients take that wait in seconds",
        "try: pass an int in ms: poll(1000) waits a second",
    ]


def test_patterns() -> None:
    """E-05: a pattern that does not compile raises with the compiler's words."""
    assert compile_pattern("or.*").match("orders")
    compiled = re.compile("x")
    assert compile_pattern(compiled) is compiled
    with pytest.raises(ConfigurationError, match="pattern"):
        compile_pattern("(")


@pytest.mark.parametrize(
    ("time", "ms"),
    [
        (0, 0),
        (9_000, 9_000),
        (86_400_000, 86_400_000),
        (1_767_225_600_000, 1_767_225_600_000),
        (np.int64(1_767_225_600_000), 1_767_225_600_000),
        (19_701_341, 19_701_341),
        (datetime(2026, 1, 1, tzinfo=UTC), 1_767_225_600_000),
        (datetime(2026, 1, 1), 1_767_225_600_000),
        (datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 1_767_225_600_000),
        (datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC), 1_767_225_600_001),
    ],
)
def test_times_in_ms(time: Any, ms: int) -> None:
    """P-07: ms or a datetime; a part of a millisecond is rounded up, to records not before it."""
    assert time_ms(time, "start") == ms


@pytest.mark.parametrize(
    ("time", "unit", "ms"),
    [
        (1_767_225_600, "seconds", 1_767_225_600_000),
        (1_000_000_000, "seconds", 1_000_000_000_000),
        (2026_01_01, "a day", 1_767_225_600_000),
        (np.int64(2026_01_01), "a day", 1_767_225_600_000),
    ],
)
def test_a_time_in_another_unit_is_refused_with_what_was_meant(
    time: Any, unit: str, ms: int
) -> None:
    """P-07, E-02: read as ms it would be a day of January 1970, and everything would be read."""
    with pytest.raises(ConfigurationError) as caught:
        time_ms(time, "start")
    assert str(caught.value).splitlines()[0] == (
        f"start = {time}: reads as {unit} where milliseconds since 1970 belong"
    )
    assert str(caught.value).splitlines()[1].startswith(f"try: {ms} is 20")


@pytest.mark.parametrize("time", [-1, True, 1.5, "2026-01-01", None, datetime(1969, 1, 1)])
def test_what_is_no_time_is_refused(time: Any) -> None:
    """E-02: named, with what to pass instead."""
    with pytest.raises(ConfigurationError, match=r"not a time|before 1970") as caught:
        time_ms(time, "start")
    assert caught.value.hint == "pass milliseconds since 1970, or a datetime"
