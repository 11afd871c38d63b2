"""OffsetResetStrategy: what ``auto_offset_reset`` means (KIP-1106).

Owns the parsing of the setting and the ListOffsets timestamp it stands for. A value; any thread;
the wall clock comes in as an argument.

| setting | ListOffsets timestamp |
|---|---|
| ``earliest`` | -2 |
| ``latest`` | -1: high watermark, or last stable offset under read_committed |
| ``by_duration:<ISO-8601>`` | now - duration: first offset at or after it, else the end |
| ``none`` | no look-up: an error asks the user |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kfast.errors import ConfigurationError, IllegalStateError

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1

_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?!$)(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+)(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_UNIT_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
_MAX_MS: Final = (1 << 63) - 1


class ResetKind(Enum):
    """The four policies."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class OffsetResetStrategy:
    """Where a partition without a usable position starts.

    Parameters
    ----------
    kind : ResetKind
        The policy.
    duration_ms : int
        How far back ``by_duration`` goes; 0 for the others.
    """

    kind: ResetKind
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> OffsetResetStrategy:
        """Read a value of ``auto_offset_reset``; lower case, as Java requires.

        Raises
        ------
        ConfigurationError
            Unknown policy, or a malformed or negative duration.
        """
        if text.startswith(_BY_DURATION):
            return cls(ResetKind.BY_DURATION, _parse_duration(text[len(_BY_DURATION) :]))
        try:
            kind = ResetKind(text)
        except ValueError:
            kind = ResetKind.BY_DURATION
        if kind is ResetKind.BY_DURATION:
            raise ConfigurationError(
                f"auto_offset_reset is {text!r}",
                hint="earliest, latest, none, or by_duration:<ISO-8601> such as by_duration:PT1H",
            )
        return cls(kind)

    @property
    def has_offset(self) -> bool:
        """Whether it leads to an offset; False for ``none``."""
        return self.kind is not ResetKind.NONE

    def timestamp(self, wall_ms: int) -> int:
        """Return the timestamp to ask ListOffsets for.

        Parameters
        ----------
        wall_ms : int
            The time now, ms since 1970; only ``by_duration`` looks at it.
        """
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


def _parse_duration(text: str) -> int:
    """Return the milliseconds of a duration as ``java.time.Duration`` reads it, sign excluded."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            f"auto_offset_reset: {text!r} is not a duration",
            cause="negative durations are refused" if "-" in text else None,
            hint="ISO-8601, such as P7D, PT1H30M or PT0.5S",
        )
    total = sum(int(found[unit] or 0) * ms for unit, ms in _UNIT_MS.items())
    total += int((found["fraction"] or "0").ljust(3, "0")[:3])
    if total > _MAX_MS:
        raise ConfigurationError(f"auto_offset_reset: {text!r} is too long a duration")
    return total
