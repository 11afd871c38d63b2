"""Where time and chance come from.

Owns the only calls to the operating system's clocks and to the random generator. Every other
module takes ``now_ms`` as an argument or a ``Clock`` by its constructor, so a test can run minutes
of a consumer's life in no time. Timers always use ``now_ms``, which a change of the wall clock does
not touch; ``wall_ms`` is only for timestamps that leave the process. Usable from any thread.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Time and randomness, as injected into everything that waits."""

    def now_ms(self) -> int:
        """Return monotonic milliseconds; only differences mean anything."""
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

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return random.random()

    def __repr__(self) -> str:
        return "SystemClock()"


@dataclass(slots=True, frozen=True)
class ExponentialBackoff:
    """Waiting time between tries: doubles up to a maximum, spread by jitter (KIP-580, KIP-601).

    Parameters
    ----------
    initial_ms : int
        Wait after the first failure.
    max_ms : int
        Upper bound of any wait; one below ``initial_ms`` counts as ``initial_ms``.
    jitter : float
        A wait is spread evenly over ``1 - jitter`` ... ``1 + jitter`` times its value, so that
        clients that failed together do not come back together.
    multiplier : int
        Growth from one failure to the next.
    """

    initial_ms: int
    max_ms: int
    jitter: float = 0.2
    multiplier: int = 2

    def backoff_ms(self, attempt: int, clock: Clock) -> int:
        """Return how long to wait.

        Parameters
        ----------
        attempt : int
            Failures in a row before the one just seen: 0 gives the first, shortest wait.
        clock : Clock
            Source of the jitter.
        """
        ceiling = max(self.initial_ms, self.max_ms)
        wait = self.initial_ms
        for _ in range(attempt):
            if wait >= ceiling or wait <= 0:
                break
            wait *= self.multiplier
        spread = 1.0 + self.jitter * (2.0 * clock.random() - 1.0)
        return min(ceiling, round(min(wait, ceiling) * spread))
