"""HeartbeatTimer: when a KIP-848 member has to be heard of.

Owns the interval that the coordinator sets, the time of the next heartbeat and the pause after
failures. It sends nothing and decides nothing. Network thread only.

| event | next heartbeat |
|---|---|
| `sent` | one interval later |
| `failed` | after ``retry_backoff_ms`` … ``retry_backoff_max_ms``, urgent or not |
| `succeeded` | unchanged; pauses start anew with the shortest |
| `hurry` | now, but not sooner than the shortest pause after the last one |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast._clock import ExponentialBackoff

if TYPE_CHECKING:
    from kfast._clock import Clock
    from kfast.config import ConsumerConfig

DEFAULT_INTERVAL_MS: Final = 5_000
"""What brokers set unless told otherwise; used until the first answer."""
MIN_INTERVAL_MS: Final = 50
MAX_INTERVAL_MS: Final = 60_000
"""Limits of what is believed of a coordinator: more often than it asks for does no harm."""


class HeartbeatTimer:
    """The timer of one member.

    Parameters
    ----------
    config : ConsumerConfig
        Backoffs.
    clock : Clock
        Source of jitter; times are arguments.

    Attributes
    ----------
    interval_ms : int
        The time between two heartbeats.
    """

    __slots__ = ("_backoff", "_clock", "_due_ms", "_failures", "_not_before_ms", "interval_ms")

    def __init__(self, config: ConsumerConfig, clock: Clock) -> None:
        self._clock = clock
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self.interval_ms = DEFAULT_INTERVAL_MS
        self._due_ms = 0
        self._not_before_ms = 0
        self._failures = 0

    def wait_ms(self, now_ms: int, *, is_urgent: bool) -> int:
        """Return the milliseconds until a heartbeat may go out; 0 means now."""
        due_ms = self._not_before_ms if is_urgent else max(self._due_ms, self._not_before_ms)
        return max(0, due_ms - now_ms)

    def sent(self, now_ms: int) -> None:
        """Note that a heartbeat goes out."""
        self._due_ms = now_ms + self.interval_ms

    def succeeded(self, interval_ms: int, sent_ms: int) -> None:
        """Take the interval of a good answer, if it is one, for the heartbeat after ``sent_ms``."""
        self._failures = 0
        if interval_ms > 0:
            self.interval_ms = min(max(interval_ms, MIN_INTERVAL_MS), MAX_INTERVAL_MS)
            self._due_ms = sent_ms + self.interval_ms

    def failed(self, now_ms: int) -> None:
        """Note that there was no usable answer: the next heartbeat comes after a pause."""
        self._not_before_ms = now_ms + self._backoff.backoff_ms(self._failures, self._clock)
        self._due_ms = self._not_before_ms
        self._failures += 1

    def hurry(self, now_ms: int) -> None:
        """Have the next heartbeat go out soon."""
        last_sent_ms = self._due_ms - self.interval_ms
        self._due_ms = min(self._due_ms, max(now_ms, last_sent_ms + self._backoff.initial_ms))

    def __repr__(self) -> str:
        return f"<HeartbeatTimer every={self.interval_ms} due={self._due_ms}>"
