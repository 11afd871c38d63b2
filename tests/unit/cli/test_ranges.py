"""The offsets that positions mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, Self

import pytest

from kfast import TopicPartition
from kfast.application.read_bounds import Ranges
from kfast.cli.positions import Selection, parse_bounds, parse_offset
from kfast.cli.ranges import matching_topics, resolve
from kfast.errors import ConfigurationError, KafkaError, OffsetOutOfRangeError

NOW = 1_770_000_000_000
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
STARTS, ENDS = {A: 10, B: 0}, {A: 20, B: 5}
TIMES: dict[int, dict[TopicPartition, int | None]] = {
    NOW - 86_400_000: {A: 15, B: None},
    0: {A: 10, B: 0},
}
"""First offset at or after a time."""


class Cluster:
    """A consumer that knows topic t: offsets 10 to 20, and 0 to 5."""

    def __init__(self) -> None:
        self.asked: list[list[list[int]]] = []
        """The timestamps of each call."""
        self.high: dict[TopicPartition, int] = {}
        """High watermarks, where a transaction is open."""

    @property
    def _internals(self) -> Self:
        return self

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0, 1} if topic == "t" else None

    def topics(self) -> set[str]:
        return {"t", "orders-1", "orders-2"}

    def unknown_topic_error(self, topic: str) -> KafkaError:
        return KafkaError(f"no {topic}")

    def log_offsets(self, *timestamps: Mapping[TopicPartition, int]) -> list[dict[Any, Any]]:
        self.asked.append([[*{*each.values()}] for each in timestamps])
        return [{tp: self._offset(tp, ms) for tp, ms in each.items()} for each in timestamps]

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.high.get(tp, ENDS[tp]) for tp in partitions}

    def _offset(self, tp: TopicPartition, ms: int) -> SimpleNamespace | None:
        offset = {-2: STARTS, -1: ENDS}.get(ms, TIMES.get(ms, {}))[tp]
        return None if offset is None else SimpleNamespace(offset=offset)


def ranges(
    selection: Selection | str = "start", numbers: Collection[int] | None = None, **options: Any
) -> Ranges:
    if isinstance(selection, str):
        selection = parse_offset(selection, NOW)
    cluster: Any = Cluster()
    return resolve(
        cluster, lambda: {"t": None}, selection, numbers, **{"skips_lost": False, **options}
    )[0]


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("start", (10, 20), (0, 5)),
        ("end", (20, 20), (5, 5)),
        ("+2", (12, 20), (2, 5)),
        ("+7", (17, 20), (5, 5)),
        ("-2", (18, 20), (3, 5)),
        ("-7", (13, 20), (0, 5)),
        ("-7:-2", (13, 18), (0, 3)),
        (":12", (10, 12), (0, 5)),
        ("12:99", (12, 20), (5, 5)),
        ("@-1d", (15, 20), (5, 5)),
        ("@:-1d", (10, 15), (0, 5)),
        ("@1970-01-01:-1d", (10, 15), (0, 5)),
    ],
)
def test_positions_count_from_each_log(
    text: str, first: tuple[int, int], second: tuple[int, int]
) -> None:
    assert ranges(text) == {A: first, B: second}


def test_partitions_are_chosen() -> None:
    assert ranges("0=12:13") == {A: (12, 13)}
    assert ranges("start", numbers=(1,)) == {B: (0, 5)}
    assert ranges("1=2", numbers=(1,)) == {B: (2, 5)}
    assert ranges(parse_bounds("0=12", "0=13", NOW)) == {A: (12, 13)}


def test_partitions_that_disagree_or_do_not_exist() -> None:
    with pytest.raises(ConfigurationError, match="--partitions disagrees"):
        ranges("1=2", numbers=(0,))
    for text, numbers in (("77=1", None), ("start", (0, 77))):
        with pytest.raises(KafkaError) as caught:
            ranges(text, numbers=numbers)
        assert str(caught.value) == (
            "t has partitions 0-1: there is no partition 77\ntry: kfast topics describe t"
        )


def test_an_offset_that_is_gone() -> None:
    with pytest.raises(OffsetOutOfRangeError) as caught:
        ranges("0=4")
    assert str(caught.value) == (
        "offset 4 of t-0 is gone: the log now starts at 10 (retention)\n"
        "lost: 6 records\ntry: -o start, or --lost skip"
    )
    cluster: Any = Cluster()
    found, lost = resolve(
        cluster, lambda: {"t": None}, parse_offset("4", NOW), None, skips_lost=True
    )
    assert (found, lost) == ({A: (10, 20), B: (4, 5)}, {A: 6})


@pytest.mark.parametrize(
    ("offset", "hint"),
    [
        ("21", "-o -10 for the newest ones"),
        ("20260131", "--start 2026-01-31 for the day"),
        ("1769860800", "--start @1769860800 for the time"),
    ],
)
def test_an_offset_that_no_partition_has(offset: str, hint: str) -> None:
    with pytest.raises(OffsetOutOfRangeError) as caught:
        ranges(offset)
    assert str(caught.value) == (f"there is no offset {offset} yet: t-0 ends at 20\ntry: {hint}")


def test_a_partition_that_is_named_has_its_start() -> None:
    """E-02: where all have the same range, it is enough if one of them has it."""
    assert ranges("12") == {A: (12, 20), B: (5, 5)}
    with pytest.raises(OffsetOutOfRangeError) as caught:
        ranges("0=12,1=7")
    assert str(caught.value) == (
        "there is no offset 7 yet: t-1 ends at 5\ntry: -o -10 for the newest ones"
    )


def test_a_start_behind_an_open_transaction() -> None:
    """P-10, T-10: it is in the log, and a read that follows begins there."""
    cluster: Any = Cluster()
    cluster.high[B] = 9
    for text in ("7", "1=7"):
        found, lost = resolve(
            cluster, lambda: {"t": None}, parse_offset(text, NOW), None, skips_lost=True
        )
        assert (found[B], lost) == ((7, 7), {A: 3} if text == "7" else {})
    with pytest.raises(OffsetOutOfRangeError, match="no offset 10 yet: t-1 ends at 9"):
        resolve(cluster, lambda: {"t": None}, parse_offset("1=10", NOW), None, skips_lost=False)


def test_times_need_no_first_offsets() -> None:
    """CL-42: brokers answer with offsets that are there, and all offsets are asked for at once."""
    assert ranges("@-1d") == {A: (15, 20), B: (5, 5)}
    assert ranges("end") == {A: (20, 20), B: (5, 5)}
    cluster: Any = Cluster()
    for text in ("@1970-01-01:-1d", "end", "start", "-3"):
        resolve(cluster, lambda: {"t": None}, parse_offset(text, NOW), None, skips_lost=False)
    assert cluster.asked == [
        [[-1], [0], [NOW - 86_400_000]],
        [[-1]],
        [[-1], [-2]],
        [[-1], [-2]],
    ]


def test_topics_by_name_and_glob() -> None:
    cluster: Any = Cluster()
    assert matching_topics(cluster, ["t", "t"]) == {"t": {0, 1}}
    found = matching_topics(cluster, ["orders-*", "t", "*1"])
    assert [*found] == ["orders-1", "orders-2", "t"]
    assert found["orders-1"] is None  # the names alone were looked up
    with pytest.raises(KafkaError, match="no oders"):
        matching_topics(cluster, ["oders"])
    with pytest.raises(KafkaError) as caught:
        matching_topics(cluster, ["x*"])
    assert str(caught.value).startswith('none of the 3 topics of this cluster matches "x*"\ntry: ')
