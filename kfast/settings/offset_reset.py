"""``auto_offset_reset``: the setting, and the strategy that its value names (KIP-1106).

A value; any thread; the wall clock comes in as an argument.

| setting | ListOffsets timestamp |
|---|---|
| ``earliest`` | -2 |
| ``latest`` | -1: high watermark, or last stable offset under read_committed |
| ``by_duration:<ISO-8601>`` | now - duration: first offset at or after it, else the log end |
| ``none`` | no ListOffsets request: an error asks the user |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from kfast.errors import IllegalStateError
from kfast.settings.kinds import INT64_MAX, Setting, choose, parse_text

if TYPE_CHECKING:
    from collections.abc import Mapping

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1

_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?:([+-]?\d+)D)?(?:T(?=[+\-\d])(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+(?:\.\d{0,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)


def _parse_duration_ms(duration: str) -> int:
    """Return the milliseconds of an ISO-8601 duration such as ``P1DT2H`` or ``PT0.5S`` (KIP-1106).

    Raises ValueError for anything but days, hours, minutes and seconds, and for negative durations.
    """
    match = _DURATION.fullmatch(duration)
    parts = match.groups() if match else (None,) * 4
    if not any(parts):
        raise ValueError(f'"{duration}" is not a duration such as P7D, PT12H or PT1.5S')
    days, hours, minutes = (int(number or 0) for number in parts[:3])
    whole, _, fraction = (parts[3] or "0").partition(".")
    sub_ms = int(fraction[:3].ljust(3, "0")) * (-1 if whole.startswith("-") else 1)
    total = ((days * 24 + hours) * 60 + minutes) * 60_000 + int(whole) * 1000 + sub_ms
    if total < 0:
        raise ValueError(f'"{duration}" is negative')
    if total > INT64_MAX:
        raise ValueError(f'"{duration}" is too long')
    return total


class ResetKind(Enum):
    """The four strategies."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class OffsetResetStrategy:
    """Where a partition without a usable position starts; ``duration_ms`` is for BY_DURATION."""

    kind: ResetKind
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> OffsetResetStrategy:
        """Return the strategy of a value; lower case, as Java requires.

        Raises ValueError for an unknown strategy, and for a malformed or negative duration.
        """
        if text.startswith(_BY_DURATION):
            duration_ms = _parse_duration_ms(text.removeprefix(_BY_DURATION))
            return cls(ResetKind.BY_DURATION, duration_ms)
        return cls(ResetKind(choose(text, _WITHOUT_DURATION)))

    @property
    def has_offset(self) -> bool:
        """Whether it leads to an offset; False for ``none``."""
        return self.kind is not ResetKind.NONE

    def timestamp(self, wall_ms: int) -> int:
        """Return the timestamp of the ListOffsets request; ``wall_ms`` is in ms since 1970."""
        match self.kind:
            case ResetKind.EARLIEST:
                return EARLIEST_TIMESTAMP
            case ResetKind.LATEST:
                return LATEST_TIMESTAMP
            case ResetKind.BY_DURATION:
                return max(0, wall_ms - self.duration_ms)
            case ResetKind.NONE:
                raise IllegalStateError('auto_offset_reset="none" has no offset to look up')

    def __str__(self) -> str:
        if self.kind is ResetKind.BY_DURATION:
            return f"by_duration of {self.duration_ms} ms"
        return str(self.kind.value)


RESET_EARLIEST: Final = OffsetResetStrategy(ResetKind.EARLIEST)
RESET_LATEST: Final = OffsetResetStrategy(ResetKind.LATEST)
RESET_NONE: Final = OffsetResetStrategy(ResetKind.NONE)

_WITHOUT_DURATION: Final = tuple(map(str, (RESET_LATEST, RESET_EARLIEST, RESET_NONE)))


def offset_reset(default: str, deprecated: Mapping[str, str], doc: str) -> Setting[str]:
    """Make the setting; its value is the text, in today's words."""

    def parse(value: object) -> str:
        word = parse_text(value)
        word = deprecated.get(word, word)
        OffsetResetStrategy.parse(word)
        return word

    valid = f"{', '.join(_WITHOUT_DURATION)}, {_BY_DURATION}PnDTnHnMn.nS"
    return Setting(default, parse, "str", valid, doc)
