"""The grammar of ``--offset``, ``--start`` and ``--end``: what a range of records is called.

Pure: nothing here knows a cluster. A bare integer is an offset, never a time; a day, or a day and a
time, cannot be an offset and is a time with and without its ``@``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kfast.cli.durations import duration_ms, moment_ms
from kfast.errors import ConfigurationError
from kfast.internals import END, EVERYTHING, START, Kind, Position, Range

_EXAMPLES: Final = ("@-1d", "@2026-01-31", "1500")
_NUMBER: Final = re.compile(r"\d+(?:_\d+)*", re.ASCII)
_TIME_OF_DAY: Final = re.compile(r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d)?", re.ASCII)
_PARTITION_COLON: Final = re.compile(r"(\d+):(\d+)", re.ASCII)
_MAX_OFFSET: Final = (1 << 63) - 1
_MAX_PARTITION: Final = (1 << 31) - 1


_WORDS: Final = {
    **dict.fromkeys(("start", "earliest"), Kind.START),
    **dict.fromkeys(("end", "latest"), Kind.END),
}
_SIGNS: Final = {"": Kind.OFFSET, "+": Kind.AFTER_START, "-": Kind.BEFORE_END}


@dataclass(slots=True, frozen=True)
class Selection:
    """What to read: one range of all partitions, or ranges of some partitions."""

    range: Range = EVERYTHING
    partitions: Mapping[int, Range] | None = None
    """With these, no other partition is read."""


def parse_offset(text: str, now_ms: int) -> Selection:
    """Parse ``--offset``; ``now_ms`` is the present time in ms since 1970.

    Raises ConfigurationError for a text that is not in the grammar, or that ends before it starts.
    """
    name = f"-o {text}"
    if "=" in text:
        return Selection(
            partitions={
                number: _ordered(_range(range_text, now_ms, name), name)
                for number, range_text in _by_partition(text, name)
            }
        )
    return Selection(_ordered(_range(text, now_ms, name), name))


def parse_bounds(start: str | None, end: str | None, now_ms: int) -> Selection:
    """Parse ``--start`` and ``--end``; partitions that either names are the only ones."""
    first = _half(start, "--start", now_ms, {})
    last = _half(end, "--end", now_ms, first)
    named = sorted({number for bounds in (first, last) for number in bounds if number is not None})
    options = (("--start", start), ("--end", end))
    name = " ".join(f"{option} {text}" for option, text in options if text is not None)

    def range_of(number: int | None) -> Range:
        halves = (
            bounds.get(number, bounds.get(None, default))
            for bounds, default in ((first, START), (last, END))
        )
        return _ordered(Range(*halves), name)

    if named:
        return Selection(partitions={number: range_of(number) for number in named})
    return Selection(range_of(None))


def parse_position(text: str, option: str, now_ms: int) -> Selection:
    """Return one position, of all partitions or of each that is named, as starts of ranges."""
    positions = _half(text, option, now_ms, {})
    if None in positions:
        return Selection(Range(positions[None]))
    return Selection(
        partitions={
            number: Range(position) for number, position in positions.items() if number is not None
        }
    )


def time_meant_by(offset: int) -> str | None:
    """Return the option for an offset whose digits read as a day or as a time."""
    text = str(offset)
    day = f"{text[:4]}-{text[4:6]}-{text[6:]}"
    if len(text) == 8 and moment_ms(day) is not None:
        return f"--start {day} for the day"
    if len(text) in {10, 13}:
        return f"--start @{text} for the time"
    return None


# --- ranges ---------------------------------------------------------------------------------------


def _range(text: str, now_ms: int, name: str) -> Range:
    """Return the range that a text means as a whole, or at the one colon where it can be split."""
    alone = _position(text, now_ms)
    if alone is not None:
        return Range(alone, END)
    ranges = []
    for colon in (i for i, letter in enumerate(text) if letter == ":"):
        left, right = text[:colon], text[colon + 1 :]
        start = START if left in {"", "@"} else _position(left, now_ms)
        if start is None or not (left.removeprefix("@") or right):
            continue
        is_time = text.startswith("@") or start.kind is Kind.TIME
        end = END if not right else _position(right, now_ms, is_time=is_time, after=start)
        if end is not None:
            ranges.append(Range(start, end))
    if len(ranges) != 1:
        raise _not_understood(name)
    return ranges[0]


def _half(
    text: str | None, option: str, now_ms: int, start: Mapping[int | None, Position]
) -> Mapping[int | None, Position]:
    """Return the positions of partitions, or that of all under None; none without a text."""
    if text is None:
        return {}
    name = f"{option} {text}"
    parts: list[tuple[int | None, str]] = [(None, text)]
    if "=" in text:
        parts = [*_by_partition(text, name)]
    positions = {}
    for number, offset_text in parts:
        after = start.get(number, start.get(None))
        position = _position(offset_text, now_ms, after=after)
        if position is None:
            raise _not_a_position(name, option, offset_text)
        positions[number] = position
    return positions


def _by_partition(text: str, name: str) -> Iterator[tuple[int, str]]:
    seen = set()
    for entry in text.split(","):
        number, sign, rest = entry.partition("=")
        if not (sign and _NUMBER.fullmatch(number)) or int(number) > _MAX_PARTITION:
            raise _not_understood(name)
        if int(number) in seen:
            raise ConfigurationError(
                f"{name}: partition {int(number)} is named twice",
                hint="one range of each partition: 0=12:15,1=7",
            )
        seen.add(int(number))
        yield int(number), rest


def _ordered(bounds: Range, name: str) -> Range:
    start, end = bounds.start, bounds.end
    is_backwards = start.kind is end.kind and (
        end.value > start.value if start.kind is Kind.BEFORE_END else end.value < start.value
    )
    if is_backwards or (end.kind is Kind.START and start.kind is not Kind.START):
        raise ConfigurationError(
            f"{name}: the end is before the start", hint="-o START:END, such as -o 100:200"
        )
    return bounds


# --- positions ------------------------------------------------------------------------------------


def _position(
    text: str, now_ms: int, *, is_time: bool = False, after: Position | None = None
) -> Position | None:
    """Return a position; None if the text is none. ``after`` is what a length of time adds to."""
    if text.startswith("@"):
        is_time, text = True, text[1:]
    kind = _WORDS.get(text)
    if kind is not None:
        return None if is_time and kind is Kind.START else Position(kind)
    moment = _time(text, now_ms, after) if is_time else moment_ms(text)
    if moment is not None:
        return Position(Kind.TIME, moment)
    if is_time:
        return None
    sign, digits = (text[0], text[1:]) if text[:1] in {"+", "-"} else ("", text)
    if not _NUMBER.fullmatch(digits) or int(digits) > _MAX_OFFSET:
        return None
    return Position(_SIGNS[sign], int(digits))


def _time(text: str, now_ms: int, after: Position | None) -> int | None:
    if text == "now":
        return now_ms
    if text.isascii() and text.isdigit():
        return {10: int(text) * 1000, 13: int(text)}.get(len(text))
    if text.startswith("-"):
        before = duration_ms(text[1:])
        return None if before is None else now_ms - before
    length = duration_ms(text)
    if length is not None:
        return after.value + length if after is not None and after.kind is Kind.TIME else None
    return moment_ms(text)


# --- errors ---------------------------------------------------------------------------------------


def _not_understood(name: str) -> ConfigurationError:
    option, _, text = name.partition(" ")
    return ConfigurationError(
        f'{option} "{text}" is neither an offset nor a time',
        hint=", ".join(f"{option} {example}" for example in _EXAMPLES),
    )


def _not_a_position(name: str, option: str, text: str) -> ConfigurationError:
    if _TIME_OF_DAY.fullmatch(text):
        return ConfigurationError(
            f"{name}: a time of day without a day", hint=f"{option} 2025-01-31T{text}"
        )
    if (pair := _PARTITION_COLON.fullmatch(text)) is not None:
        return ConfigurationError(
            f'{option} "{text}" is neither an offset nor a time',
            hint=f"{option} {pair[1]}={pair[2]} for offset {pair[2]} of partition {pair[1]}",
        )
    return _not_understood(name)
