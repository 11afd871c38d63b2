"""PollTimer: poll interval of the application (``max_poll_interval_ms``, KIP-62).

Owns the timer, its warnings, and whether the member has left because of it. The time of the last
poll() comes from the `StepPort` alone, so that only poll() resets the timer; it is read once per
poll of the membership. Network thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig
    from kfast.consumer.group.membership import StepPort

logger = get_logger(__name__)

CHECK_POLL_MS: Final = 100
"""Poll interval of a membership that waits for the application to call poll() again."""


class PollTimer:
    """The poll interval of one group member."""

    __slots__ = ("_group_id", "_last_poll_ms", "_left_at_poll_ms", "_limit_ms", "_port")

    def __init__(self, config: ConsumerConfig, port: StepPort) -> None:
        self._group_id = config.group_id
        self._limit_ms = config.max_poll_interval_ms
        self._port = port
        self._last_poll_ms = 0
        self._left_at_poll_ms: int | None = None

    def update(self) -> None:
        """Read the time of the last poll(); warn, once, if the member had left before it."""
        self._last_poll_ms = self._port.last_poll_ms
        left_ms = self._left_at_poll_ms
        if left_ms is None or self._last_poll_ms <= left_ms:
            return
        self._left_at_poll_ms = None
        late_ms = max(0, self._last_poll_ms - left_ms - self._limit_ms)
        logger.warning(
            "max.poll.interval.ms %s exceeded by %s: the member left the group; "
            "poll fewer records (max_poll_records) or raise it",
            _seconds(self._limit_ms),
            _seconds(late_ms),
        )

    def remaining_ms(self, now_ms: int) -> int:
        """Return the milliseconds from the last `update` until the limit is reached; 0 after it."""
        return max(0, self._last_poll_ms + self._limit_ms - now_ms)

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the limit was reached, as of the last `update`."""
        return self.remaining_ms(now_ms) == 0

    def left(self) -> None:
        """Note, and warn, that the member leaves because poll() was not called."""
        self._left_at_poll_ms = self._last_poll_ms
        logger.warning(
            "Group %s: no poll() for %s (max.poll.interval.ms): leaving the group until the next "
            "poll()",
            self._group_id,
            _seconds(self._limit_ms),
        )

    def reset(self) -> None:
        """Drop the warning: the member leaves for another reason."""
        self._left_at_poll_ms = None

    def __repr__(self) -> str:
        return f"<PollTimer {self._limit_ms} ms left={self._left_at_poll_ms is not None}>"


def _seconds(ms: int) -> str:
    return f"{round(ms / 1000)} s" if ms >= 10_000 else f"{ms / 1000:g} s"
