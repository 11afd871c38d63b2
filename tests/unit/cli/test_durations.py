"""Lengths of time and moments on the command line."""

from __future__ import annotations

import pytest

from kfast.cli.durations import duration_ms, moment_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        *(("250ms", 250), ("10s", 10_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)),
        *(("1h30m", 5_400_000), ("1_000s", 1_000_000), ("0s", 0)),
        *(("", None), ("s", None), ("10", None), ("1_s", None), ("_1s", None), ("1 s", None)),
        *(("-1s", None), ("1.5s", None), ("1sm", None), ("٣s", None)),
    ],
)
def test_durations(text: str, ms: int | None) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        *(("1970-01-01", 0), ("1970-01-01T00:01", 60_000), ("1970-01-01 00:00:01.250", 1_250)),
        *(("1970-01-01T01:00+01:00", 0), ("1970-01-01T00:00Z", 0)),
        *(("1970-01-32", None), ("1970-1-1", None), ("1970-01-01T24:30", None), ("now", None)),
    ],
)
def test_moments(text: str, ms: int | None) -> None:
    assert moment_ms(text) == ms
