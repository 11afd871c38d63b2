"""Durations and times as options take them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"(\d+(?:_\d+)*)(ms|[smhd])", re.ASCII)
_DURATION: Final = re.compile(r"(?:\d+(?:_\d+)*(?:ms|[smhd]))+", re.ASCII)
_MOMENT: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}"
    r"(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?)?",
    re.ASCII,
)


def duration_ms(text: str) -> int | None:
    """Return ``250ms``, ``10s`` or ``1h30m`` in milliseconds; None if it is no duration."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(int(count) * _UNIT_MS[unit] for count, unit in _PART.findall(text))


def moment_ms(text: str) -> int | None:
    """Return a day, or a day and time, in ms since 1970 (UTC unless it says otherwise)."""
    if not _MOMENT.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:  # the 30th of February
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
