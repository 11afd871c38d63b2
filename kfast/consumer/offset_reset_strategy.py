"""OffsetResetStrategy: what ``auto_offset_reset`` means (KIP-1106).

Owns the policies and the ListOffsets timestamp each stands for. A value; any thread;
the wall clock comes in as an argument.

| setting | ListOffsets timestamp |
|---|---|
| ``earliest`` | -2 |
| ``latest`` | -1: high watermark, or last stable offset under read_committed |
| ``by_duration:<ISO-8601>`` | now - duration: first offset at or after it, else the end |
| ``none`` | no look-up: an error asks the user |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kfast.errors import ConfigurationError, IllegalStateError
from kfast.settings.kinds import parse_duration_ms

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1

_BY_DURATION: Final = "by_duration:"


class ResetKind(Enum):
    """The four policies."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"
    NONE = "none"


_PLAIN_KINDS: Final = (ResetKind.EARLIEST, ResetKind.LATEST, ResetKind.NONE)


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
        try:
            if text.startswith(_BY_DURATION):
                duration_ms = parse_duration_ms(text.removeprefix(_BY_DURATION))
                return cls(ResetKind.BY_DURATION, duration_ms)
            return {kind.value: cls(kind) for kind in _PLAIN_KINDS}[text]
        except (KeyError, ValueError) as error:
            raise ConfigurationError(
                f"auto_offset_reset is {text!r}",
                cause=str(error) if isinstance(error, ValueError) else None,
                hint="earliest, latest, none, or by_duration:<ISO-8601> such as by_duration:PT1H",
            ) from None

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
