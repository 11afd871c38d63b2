"""SampledStat: a number measured again and again, summed up over the last few time windows.

Owns count, sum and maximum per window. It keeps no time and has no lock: one thread records, and
any thread may read, at worst a value that is one recording old.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class _Window:
    start_ms: int
    count: int = 0
    total: float = 0.0
    maximum: float = -math.inf


class SampledStat:
    """Values of the last windows, and their sum since the beginning.

    Parameters
    ----------
    windows : int
        How many windows count; ``metrics_num_samples``.
    window_ms : int
        How long one is; ``metrics_sample_window_ms``.

    Attributes
    ----------
    count, total
        Recordings since the beginning, and the sum of their values.
    last_ms : int or None
        Time of the last recording.
    """

    __slots__ = ("_span_ms", "_window", "_window_ms", "_windows", "count", "last_ms", "total")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._window_ms = max(1, window_ms)
        self._span_ms = windows * self._window_ms
        self._windows: deque[_Window] = deque(maxlen=windows)
        self._window: _Window | None = None
        self.count = 0
        self.total: float = 0
        self.last_ms: int | None = None

    def record(self, value: float, now_ms: int) -> None:
        """Add a value."""
        window = self._window
        if window is None or now_ms - window.start_ms >= self._window_ms:
            window = self._window = _Window(now_ms)
            self._windows.append(window)
        window.count += 1
        window.total += value
        window.maximum = max(window.maximum, value)
        self.count += 1
        self.total += value
        self.last_ms = now_ms

    def _recent(self, now_ms: int) -> list[_Window]:
        oldest_ms = now_ms - self._span_ms
        return [window for window in list(self._windows) if window.start_ms > oldest_ms]

    def average(self, now_ms: int) -> float:
        """Return the mean value, NaN for none."""
        recent = self._recent(now_ms)
        count = sum(window.count for window in recent)
        return sum(window.total for window in recent) / count if count else math.nan

    def maximum(self, now_ms: int) -> float:
        """Return the largest value, NaN for none."""
        return max((window.maximum for window in self._recent(now_ms)), default=math.nan)

    def rate(self, now_ms: int) -> float:
        """Return the sum of the values per second."""
        return self._per_second(sum(w.total for w in self._recent(now_ms)), now_ms)

    def frequency(self, now_ms: int) -> float:
        """Return the number of recordings per second."""
        return self._per_second(sum(w.count for w in self._recent(now_ms)), now_ms)

    def _per_second(self, amount: float, now_ms: int) -> float:
        recent = self._recent(now_ms)
        if not recent:
            return 0.0
        # As Kafka does, at least all windows but one: a first burst is not taken for the rate.
        span_ms = max(now_ms - recent[0].start_ms, self._span_ms - self._window_ms, 1)
        return amount * 1000 / span_ms

    def __repr__(self) -> str:
        return f"<SampledStat count={self.count} total={self.total}>"
