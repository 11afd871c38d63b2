"""Parsers of option values, one per type; each raises ``ValueError`` saying what it accepts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_UNITS_MS: Final = {
    "": 1.0,
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_DURATION: Final = re.compile(r"\s*(-?\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_INT64_MAX: Final = 2**63 - 1

Parser = Callable[[str], object]


def boolean(text: str) -> bool:
    """Return a bool written as Spark does."""
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise ValueError("true or false")
    return value


def whole_number(low: int) -> Callable[[str], int]:
    """Return a parser of integers from ``low`` up."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= _INT64_MAX:
            raise ValueError(f"an integer >= {low}")
        return value

    return parse


def duration_ms(text: str) -> int:
    """Return a time such as ``15m`` or ``200ms`` in milliseconds; no unit means milliseconds."""
    match = _DURATION.fullmatch(text)
    unit = _UNITS_MS.get(match[2].lower()) if match else None
    if match is None or unit is None or int(match[1]) < 0:
        raise ValueError("a time such as 15m, 30s or 200ms")
    return int(int(match[1]) * unit)


def choice(*values: str) -> Callable[[str], str]:
    """Return a parser of one of ``values``, in any case."""
    known = {value.lower(): value for value in values}

    def parse(text: str) -> str:
        value = known.get(text.strip().lower())
        if value is None:
            raise ValueError(" or ".join(values))
        return value

    return parse


def text(value: str) -> str:
    """Return the text, which must not be blank."""
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def anything(value: str) -> str:
    """Return the text unchanged; another module parses it."""
    return value
