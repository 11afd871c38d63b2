"""Clock, random numbers and exponential back-off.

Owns the only calls to the operating system's clocks and to the random generator. Every other
module takes ``now_ms`` as an argument or a ``Clock`` in its constructor, so that a test can advance
a consumer's time without waiting. Timers use ``now_ms``, which is independent of the wall clock;
``wall_ms`` is only for timestamps that leave the process. Any thread.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Source of times and random numbers, injected wherever they are used."""

    def now_ms(self) -> int:
        """Return monotonic milliseconds; only differences are meaningful."""
        ...

    def deadline_ms(self, timeout_ms: int) -> int:
        """Return the first ``now_ms`` at which at least ``timeout_ms`` have passed since now."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        ...

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...


class SystemClock:
    """The real clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Return monotonic milliseconds."""
        return time.monotonic_ns() // 1_000_000

    def deadline_ms(self, timeout_ms: int) -> int:
        """Return the end of a wait, rounded up; of no wait, the current time."""
        now_ns = time.monotonic_ns()
        return -(-now_ns // 1_000_000) + timeout_ms if timeout_ms > 0 else now_ns // 1_000_000

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return (int.from_bytes(os.urandom(7)) >> 3) / (1 << 53)

    def __repr__(self) -> str:
        return "SystemClock()"


@dataclass(slots=True, frozen=True)
class ExponentialBackoff:
    """Exponential back-off with jitter (KIP-580, KIP-601).

    It is multiplied by a random factor of ``1 - jitter`` to ``1 + jitter``, so that clients that
    failed together do not retry together. A ``max_ms`` below ``initial_ms`` counts as that.
    """

    initial_ms: int
    max_ms: int
    jitter: float = 0.2
    multiplier: int = 2

    def backoff_ms(self, attempt: int, clock: Clock) -> int:
        """Return the back-off after ``attempt`` earlier failures in a row, 0 for the shortest."""
        ceiling = max(self.initial_ms, self.max_ms)
        wait = self.initial_ms
        for _ in range(attempt):
            if wait >= ceiling or wait <= 0:
                break
            wait *= self.multiplier
        spread = 1.0 + self.jitter * (2.0 * clock.random() - 1.0)
        return min(ceiling, round(min(wait, ceiling) * spread))
