"""The grammar of ranges on the command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfast.application.read_bounds import END, START, Kind, Position, Range
from kfast.cli.positions import Selection, parse_bounds, parse_offset, time_meant_by
from kfast.errors import ConfigurationError
from tests.soaking import examples

NOW = 1_770_000_000_000
DAY = 86_400_000
JAN_31 = 1_769_817_600_000
NOON = JAN_31 + DAY // 2


def offset(value: int) -> Position:
    return Position(Kind.OFFSET, value)


def moment(value: int) -> Position:
    return Position(Kind.TIME, value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", Range(START, END)),
        ("end", Range(END, END)),
        ("12", Range(offset(12), END)),
        ("1_000", Range(offset(1000), END)),
        ("12:", Range(offset(12), END)),
        (":12", Range(START, offset(12))),
        ("12:15", Range(offset(12), offset(15))),
        ("12:12", Range(offset(12), offset(12))),
        ("+5", Range(Position(Kind.AFTER_START, 5), END)),
        ("-5", Range(Position(Kind.BEFORE_END, 5), END)),
        ("-5:-2", Range(Position(Kind.BEFORE_END, 5), Position(Kind.BEFORE_END, 2))),
        (":end", Range(START, END)),
        ("start:12", Range(START, offset(12))),
        ("20260131", Range(offset(20260131), END)),
        ("1769860800", Range(offset(1769860800), END)),
        ("@1769860800", Range(moment(NOON), END)),
        ("@1769860800000", Range(moment(NOON), END)),
        ("@2026-01-31", Range(moment(JAN_31), END)),
        ("2026-01-31", Range(moment(JAN_31), END)),
        ("@2026-01-31T12:00", Range(moment(NOON), END)),
        ("2026-01-31 12:00", Range(moment(NOON), END)),
        ("2026-01-31T12:00:00.250Z", Range(moment(NOON + 250), END)),
        ("2026-01-31T13:00+01:00", Range(moment(NOON), END)),
        ("@-1d", Range(moment(NOW - DAY), END)),
        ("@-1h30m:", Range(moment(NOW - 5_400_000), END)),
        ("@now", Range(moment(NOW), END)),
        ("@:2026-01-31", Range(START, moment(JAN_31))),
        ("@2026-01-31:2026-01-31T12:00", Range(moment(JAN_31), moment(NOON))),
        ("2026-01-31T12:00:2026-01-31T12:00:30", Range(moment(NOON), moment(NOON + 30_000))),
        ("@2026-01-31:12h", Range(moment(JAN_31), moment(NOON))),
        ("2026-01-31:12h", Range(moment(JAN_31), moment(NOON))),
        ("@-2d:-1d", Range(moment(NOW - 2 * DAY), moment(NOW - DAY))),
        ("@-1d:now", Range(moment(NOW - DAY), moment(NOW))),
        ("@-1d:end", Range(moment(NOW - DAY), END)),
    ],
)
def test_ranges(text: str, expected: Range) -> None:
    assert parse_offset(text, NOW) == Selection(expected)


def test_ranges_of_partitions_leave_the_others_out() -> None:
    expected = {0: Range(offset(12), END), 3: Range(offset(5), offset(9)), 7: Range(START, END)}
    assert parse_offset("0=12,3=5:9,7=start", NOW) == Selection(partitions=expected)


def test_start_and_end() -> None:
    assert parse_bounds(None, None, NOW) == Selection()
    assert parse_bounds("12", None, NOW) == Selection(Range(offset(12), END))
    assert parse_bounds("@-1d", "@now", NOW) == Selection(Range(moment(NOW - DAY), moment(NOW)))
    assert parse_bounds("2026-01-31", "@12h", NOW) == Selection(Range(moment(JAN_31), moment(NOON)))
    assert parse_bounds("earliest", "latest", NOW) == Selection()


def test_partitions_named_in_either_bound_are_the_only_ones() -> None:
    both = parse_bounds("0=12", "0=13", NOW)
    assert both == Selection(partitions={0: Range(offset(12), offset(13))})
    some = parse_bounds("0=12,1=5", "1=6", NOW)
    assert some == Selection(partitions={0: Range(offset(12), END), 1: Range(offset(5), offset(6))})
    mixed = parse_bounds("-5", "2=9", NOW)
    assert mixed == Selection(partitions={2: Range(Position(Kind.BEFORE_END, 5), offset(9))})


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            ":",
            "@",
            "@:",
            "@-0_s",
            "1_",
            "yesterday",
            "1.5",
            "0x10",
            "1e3",
            "٣",
            "12:15:18",
            "--5",
            "+-5",
        ),
        *("@5", "@20260131", "@12:00", "@1h", "@+5", "@start", "-1d", "1d", "1h:2h", "@-1"),
        *("2026-02-30", "2026-1-31", "2026-01-31T", "2026-01-31T12", "2026-01-31T25:00"),
        *(
            "0=",
            "=5",
            "a=5",
            "0=5,",
            "0=5,1",
            "0=5=6",
            "-1=5",
            "2147483648=5",
            "9223372036854775808",
        ),
    ],
)
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_offset(text, NOW)
    assert str(caught.value).endswith("\ntry: -o @-1d, -o @2026-01-31, -o 1500")
    assert f'"{text}" is neither an offset nor a time' in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["15:12", "12:00", "@2026-01-31T12:00:2026-01-31", "-2:-5", "@now:-1d", "5:start", "+9:+3"],
)
def test_an_end_before_its_start_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="the end is before the start"):
        parse_offset(text, NOW)


def test_a_partition_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="-o 0=5,0=6: partition 0 is named twice"):
        parse_offset("0=5,0=6", NOW)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "12:00",
            "--start 12:00: a time of day without a day\ntry: --start 2025-01-31T12:00",
        ),
        (
            "0:12",
            '--start "0:12" is neither an offset nor a time\n'
            "try: --start 0=12 for offset 12 of partition 0",
        ),
        (
            "noon",
            '--start "noon" is neither an offset nor a time\n'
            "try: --start @-1d, --start @2026-01-31, --start 1500",
        ),
    ],
)
def test_mistakes_in_bounds_have_hints(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_bounds(text, None, NOW)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("offset", "meant"),
    [
        (20250131, "--start 2025-01-31 for the day"),
        (20251399, None),
        (1738281600, "--start @1738281600 for the time"),
        (1738281600000, "--start @1738281600000 for the time"),
        (150, None),
    ],
)
def test_an_offset_that_reads_as_a_time(offset: int, meant: str | None) -> None:
    assert time_meant_by(offset) == meant


@given(st.text(alphabet="0123456789:@=+-,TZ dhms.now_end", max_size=30))
@examples(500)
def test_any_text_is_a_selection_or_refused(text: str) -> None:
    for parse in (parse_offset, lambda text, now: parse_bounds(text, text, now)):
        try:
            selection = parse(text, NOW)
        except ConfigurationError:
            continue
        for each in [selection.range, *(selection.partitions or {}).values()]:
            assert each.start.value >= 0 or each.start.kind is Kind.TIME
