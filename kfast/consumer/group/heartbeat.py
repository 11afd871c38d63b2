"""Heartbeat: heartbeat and session timers of a group member, under both protocols.

Owns the time of the next heartbeat, the back-off after failures and, for the classic protocol, the
end of the session (``session_timeout_ms``). It sends nothing; the limit between two polls of the
application is `PollTimer`'s. Network thread only.

| event | next heartbeat | session |
|---|---|---|
| `start`: a generation was joined | one interval later | starts anew |
| `restart_session`: coordinator found | unchanged | starts anew |
| `sent` | one interval later | |
| `succeeded`, also REBALANCE_IN_PROGRESS | unchanged; the back-off is reset | starts anew |
| `set_interval` | one interval of the coordinator after the last one (KIP-848) | |
| `failed` | after ``retry_backoff_ms`` … ``retry_backoff_max_ms``, urgent or not | |
| `send_soon` | now, but not sooner than the shortest back-off after the last one | |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast._base.clock import ExponentialBackoff

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast.config import ConsumerConfig

DEFAULT_CONSUMER_INTERVAL_MS: Final = 5_000
"""``group.consumer.heartbeat.interval.ms`` of a broker by default (KIP-848)."""
MIN_INTERVAL_MS: Final = 50
MAX_INTERVAL_MS: Final = 60_000
"""Limits of what is accepted from a coordinator: more frequent heartbeats do no harm."""


class Heartbeat:
    """The timers of one member. ``interval_ms`` is the coordinator's under KIP-848."""

    __slots__ = (
        "_backoff",
        "_clock",
        "_due_ms",
        "_failures",
        "_not_before_ms",
        "_sent_ms",
        "_session_end_ms",
        "_session_timeout_ms",
        "interval_ms",
    )

    def __init__(self, config: ConsumerConfig, clock: Clock) -> None:
        is_classic = config.group_protocol == "classic"
        self.interval_ms = (
            config.heartbeat_interval_ms if is_classic else DEFAULT_CONSUMER_INTERVAL_MS
        )
        self._clock = clock
        self._session_timeout_ms = config.session_timeout_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._sent_ms = 0
        self._due_ms = 0
        self._not_before_ms = 0
        self._session_end_ms = 0
        self._failures = 0

    def start(self, now_ms: int) -> None:
        """Note that a generation was joined."""
        self._failures = 0
        self._not_before_ms = 0
        self._due_ms = now_ms + self.interval_ms
        self.restart_session(now_ms)

    def restart_session(self, now_ms: int) -> None:
        """Give the coordinator the whole session timeout again: it has just been found."""
        self._session_end_ms = now_ms + self._session_timeout_ms

    def sent(self, now_ms: int) -> None:
        """Note that a heartbeat is sent."""
        self._sent_ms = now_ms
        self._due_ms = now_ms + self.interval_ms

    def succeeded(self, now_ms: int) -> None:
        """Note a response that confirms the membership."""
        self._failures = 0
        self.restart_session(now_ms)

    def set_interval(self, interval_ms: int) -> None:
        """Take the interval of a response, if it is one, for the time since the last heartbeat."""
        if interval_ms > 0:
            self.interval_ms = min(max(interval_ms, MIN_INTERVAL_MS), MAX_INTERVAL_MS)
            self._due_ms = self._sent_ms + self.interval_ms

    def failed(self, now_ms: int) -> None:
        """Note that there was no usable response: the next heartbeat comes after a back-off."""
        self._not_before_ms = now_ms + self._backoff.backoff_ms(self._failures, self._clock)
        self._due_ms = self._not_before_ms
        self._failures += 1

    def send_soon(self, now_ms: int) -> None:
        """Make the next heartbeat due early."""
        last_sent_ms = self._due_ms - self.interval_ms
        self._due_ms = min(self._due_ms, max(now_ms, last_sent_ms + self._backoff.initial_ms))

    def ms_to_next(self, now_ms: int, *, is_urgent: bool = False) -> int:
        """Return the milliseconds until a heartbeat is due; 0 means now."""
        due_ms = self._not_before_ms if is_urgent else max(self._due_ms, self._not_before_ms)
        return max(0, due_ms - now_ms)

    def ms_to_session_end(self, now_ms: int) -> int:
        """Return the milliseconds until the session is over; 0 means that it is."""
        return max(0, self._session_end_ms - now_ms)

    def __repr__(self) -> str:
        return f"<Heartbeat every={self.interval_ms} due={self._due_ms} end={self._session_end_ms}>"
