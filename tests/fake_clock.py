"""A clock that moves only when a test moves it."""

from __future__ import annotations


class FakeClock:
    """Implements ``kfast._base.clock.Clock``; time stands still between ``advance`` calls.

    Parameters
    ----------
    now : int
        First value of the monotonic clock, milliseconds.
    random_value : float
        What ``random()`` returns, 0.5 by default: the middle of every jitter interval.
    """

    def __init__(self, now: int = 1_000_000, random_value: float = 0.5) -> None:
        self.now = now
        self.wall_offset = 1_700_000_000_000
        self.random_value = random_value

    def now_ms(self) -> int:
        return self.now

    def deadline_ms(self, timeout_ms: int) -> int:
        return self.now + max(0, timeout_ms)

    def wall_ms(self) -> int:
        return self.now + self.wall_offset

    def random(self) -> float:
        return self.random_value

    def advance(self, ms: int) -> int:
        """Move both clocks forward and return the new monotonic time."""
        self.now += ms
        return self.now
