"""OffsetResetStrategy: the values of auto_offset_reset (KIP-1106)."""

from __future__ import annotations

import pytest

from kfast.config import ConsumerConfig
from kfast.errors import ConfigurationError, IllegalStateError
from kfast.settings.offset_reset import (
    RESET_EARLIEST,
    RESET_LATEST,
    RESET_NONE,
    OffsetResetStrategy,
    ResetKind,
)

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("earliest", -2),
        ("latest", -1),
        ("by_duration:PT0S", NOW),
        ("by_duration:PT1H", NOW - 3_600_000),
        ("by_duration:P1DT2H3M4.5S", NOW - 93_784_500),
        ("by_duration:P40000D", 0),
    ],
)
def test_each_policy_has_its_timestamp(text: str, timestamp: int) -> None:
    """P-02: earliest, latest and by_duration ask ListOffsets for the right time."""
    strategy = OffsetResetStrategy.parse(text)
    assert strategy.has_offset
    assert strategy.timestamp(NOW) == timestamp


def test_none_has_no_timestamp() -> None:
    """P-02: none looks nothing up."""
    strategy = OffsetResetStrategy.parse("none")
    assert strategy == RESET_NONE
    assert not strategy.has_offset
    with pytest.raises(IllegalStateError):
        strategy.timestamp(NOW)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Earliest",
        "by_duration",
        "by_duration:",
        "by_duration:1h",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:-PT1H",
        "by_duration:PT-1H",
        "by_duration:P1Y",
    ],
)
def test_malformed_values_are_refused(text: str) -> None:
    """P-02: negative and malformed durations are refused."""
    with pytest.raises(ConfigurationError, match="auto_offset_reset"):
        ConsumerConfig(bootstrap_servers="a", auto_offset_reset=text)
    with pytest.raises(ValueError, match=r"unknown value|is not a duration|is negative"):
        OffsetResetStrategy.parse(text)


def test_strategies_print_for_the_log() -> None:
    assert str(RESET_EARLIEST) == "earliest"
    assert str(RESET_LATEST) == "latest"
    assert str(OffsetResetStrategy(ResetKind.BY_DURATION, 1500)) == "by_duration of 1500 ms"
