"""PollTimer: how long the application may stay away from poll() before its member must leave.

Owns the arithmetic and the words of ``max_poll_interval_ms``, nothing else: it keeps no time and
knows no group. When the application last was in poll() is an argument (``StepPort.last_poll_ms``),
so that nothing but poll() can reset the timer. Any thread.
"""

from __future__ import annotations


class PollTimer:
    """The limit between two polls of a group member.

    Parameters
    ----------
    max_poll_interval_ms : int
        The limit.
    """

    __slots__ = ("max_poll_interval_ms",)

    def __init__(self, max_poll_interval_ms: int) -> None:
        self.max_poll_interval_ms = max_poll_interval_ms

    def remaining_ms(self, last_poll_ms: int, now_ms: int) -> int:
        """Return the milliseconds until the limit is reached; 0 from then on."""
        return max(0, last_poll_ms + self.max_poll_interval_ms - now_ms)

    def is_expired(self, last_poll_ms: int, now_ms: int) -> bool:
        """Return whether the limit is reached."""
        return now_ms - last_poll_ms >= self.max_poll_interval_ms

    def late_by_ms(self, last_poll_ms: int, now_ms: int) -> int:
        """Return by how much the limit is exceeded, 0 if it is not."""
        return max(0, now_ms - last_poll_ms - self.max_poll_interval_ms)

    def expired_message(self) -> str:
        """Return what to log when the member leaves because nobody polls."""
        return (
            f"no poll() for {_seconds(self.max_poll_interval_ms)} (max.poll.interval.ms): "
            "leaving the group until the next poll()"
        )

    def late_message(self, late_by_ms: int) -> str:
        """Return what to log when the application polls again after the member left."""
        return (
            f"max.poll.interval.ms {_seconds(self.max_poll_interval_ms)} exceeded by "
            f"{_seconds(late_by_ms)}: the member left the group; take less per poll "
            "(max_poll_records) or raise it"
        )

    def __repr__(self) -> str:
        return f"PollTimer({self.max_poll_interval_ms})"


def _seconds(ms: int) -> str:
    return f"{round(ms / 1000)} s" if ms >= 10_000 else f"{ms / 1000:g} s"
