"""Heartbeat: when a member of a classic group has to be heard of, and when it counts as dead.

Owns two timers and nothing else: the next heartbeat (``heartbeat_interval_ms``) and the end of the
session (``session_timeout_ms``). It sends nothing and decides nothing; the limit between two polls
of the application is `PollTimer`'s. Network thread only.

| event | next heartbeat | session |
|---|---|---|
| joined, coordinator found | at once after ``start``, else unchanged | starts anew |
| sent | one interval later | |
| success, or REBALANCE_IN_PROGRESS | | starts anew |
| failure | after ``retry_backoff_ms`` … ``retry_backoff_max_ms`` | |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._clock import ExponentialBackoff

if TYPE_CHECKING:
    from kfast._clock import Clock
    from kfast.config import ConsumerConfig


class Heartbeat:
    """The timers of one member.

    Parameters
    ----------
    config : ConsumerConfig
        ``heartbeat_interval_ms``, ``session_timeout_ms``, backoffs.
    clock : Clock
        Source of jitter; times are arguments.

    Attributes
    ----------
    sent_count : int
        Heartbeats sent so far.
    last_sent_ms, last_success_ms : int or None
        When the last one was sent, and when the last good answer came.
    """

    def __init__(self, config: ConsumerConfig, clock: Clock) -> None:
        self._clock = clock
        self._interval_ms = config.heartbeat_interval_ms
        self._session_timeout_ms = config.session_timeout_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._due_ms = 0
        self._session_end_ms = 0
        self._failures = 0
        self.sent_count = 0
        self.last_sent_ms: int | None = None
        self.last_success_ms: int | None = None

    def start(self, now_ms: int) -> None:
        """Note that a generation was joined: the first heartbeat comes one interval later."""
        self._failures = 0
        self._due_ms = now_ms + self._interval_ms
        self.restart_session(now_ms)

    def restart_session(self, now_ms: int) -> None:
        """Give the coordinator the whole session timeout again: it has just been found."""
        self._session_end_ms = now_ms + self._session_timeout_ms

    def sent(self, now_ms: int) -> None:
        """Note that a heartbeat goes out."""
        self.sent_count += 1
        self.last_sent_ms = now_ms
        self._due_ms = now_ms + self._interval_ms

    def succeeded(self, now_ms: int) -> None:
        """Note that the coordinator knows this member to be alive."""
        self._failures = 0
        self.last_success_ms = now_ms
        self.restart_session(now_ms)

    def failed(self, now_ms: int) -> None:
        """Note that a heartbeat got no usable answer: the next one comes after a pause."""
        self._due_ms = now_ms + self._backoff.backoff_ms(self._failures, self._clock)
        self._failures += 1

    def ms_to_next(self, now_ms: int) -> int:
        """Return the milliseconds until a heartbeat is due; 0 means now."""
        return max(0, self._due_ms - now_ms)

    def ms_to_session_end(self, now_ms: int) -> int:
        """Return the milliseconds until the session is over; 0 means that it is."""
        return max(0, self._session_end_ms - now_ms)

    def __repr__(self) -> str:
        return f"<Heartbeat sent={self.sent_count} due={self._due_ms} end={self._session_end_ms}>"
