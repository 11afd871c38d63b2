"""kfast._base.clock: real clocks and the backoff."""

from __future__ import annotations

import pytest

from kfast._base.clock import Clock, ExponentialBackoff, SystemClock
from tests.fake_clock import FakeClock


def test_both_clocks_satisfy_the_protocol() -> None:
    clocks: list[Clock] = [SystemClock(), FakeClock()]
    for clock in clocks:
        assert isinstance(clock.now_ms(), int)
        assert isinstance(clock.wall_ms(), int)
        assert 0 <= clock.random() < 1
    assert repr(clocks[0]) == "SystemClock()"


def test_system_clock_does_not_follow_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-19: timers use the monotonic clock, which a jump of the wall clock leaves alone."""
    clock = SystemClock()
    before = clock.now_ms()
    monkeypatch.setattr("time.time_ns", lambda: 5_000_000)
    assert clock.wall_ms() == 5
    assert 0 <= clock.now_ms() - before < 60_000


@pytest.mark.parametrize(
    ("now_ns", "timeout_ms", "deadline_ms"),
    [
        (100_000_000, 500, 600),
        (100_000_001, 500, 601),
        (100_999_999, 500, 601),
        (100_999_999, 1, 102),
        (100_999_999, 0, 100),
    ],
)
def test_a_wait_is_never_shorter_than_its_timeout(
    monkeypatch: pytest.MonkeyPatch, now_ns: int, timeout_ms: int, deadline_ms: int
) -> None:
    """L-10: the begun millisecond does not count; no timeout is no wait."""
    clock = SystemClock()
    monkeypatch.setattr("time.monotonic_ns", lambda: now_ns)
    assert clock.deadline_ms(timeout_ms) == deadline_ms
    if timeout_ms:
        monkeypatch.setattr("time.monotonic_ns", lambda: now_ns + timeout_ms * 1_000_000 - 1)
        assert clock.now_ms() < deadline_ms


@pytest.mark.parametrize(
    ("attempt", "expected"), [(0, 50), (1, 100), (2, 200), (4, 800), (5, 1000), (10_000, 1000)]
)
def test_backoff_doubles_up_to_its_maximum(attempt: int, expected: int) -> None:
    assert ExponentialBackoff(50, 1000).backoff_ms(attempt, FakeClock()) == expected


def test_backoff_is_spread_by_a_fifth_either_way() -> None:
    """The wait stays between 80 and 120 % of its value, and never exceeds the maximum."""
    backoff = ExponentialBackoff(100, 1000)
    assert backoff.backoff_ms(0, FakeClock(random_value=0.0)) == 80
    assert backoff.backoff_ms(0, FakeClock(random_value=0.999999)) == 120
    assert backoff.backoff_ms(9, FakeClock(random_value=0.0)) == 800
    assert backoff.backoff_ms(9, FakeClock(random_value=0.999999)) == 1000


def test_backoff_with_a_maximum_below_the_base_stays_at_the_base() -> None:
    backoff = ExponentialBackoff(500, 100)
    assert [backoff.backoff_ms(n, FakeClock()) for n in range(3)] == [500, 500, 500]


def test_backoff_of_nothing_is_nothing() -> None:
    assert ExponentialBackoff(0, 0).backoff_ms(7, FakeClock()) == 0
    assert ExponentialBackoff(0, 1000).backoff_ms(7, FakeClock()) == 0


def test_fixed_backoff() -> None:
    backoff = ExponentialBackoff(100, 10_000, jitter=0.0, multiplier=1)
    assert [backoff.backoff_ms(n, SystemClock()) for n in (0, 3)] == [100, 100]
