"""PollTimer: watches that the application keeps coming to poll(), and says so when it does not.

Owns the arithmetic and the words of ``max_poll_interval_ms`` (KIP-62), and the memory of a member
that left because nobody polled. What to do about it is the membership's decision. When the
application last was in poll() comes from the `StepPort` alone, so that nothing but poll() resets
the timer; it is read once a turn. Network thread only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig
    from kfast.consumer.group.membership import StepPort

logger = logging.getLogger(__name__)

LOOK_FOR_POLL_MS: Final = 100
"""How often to look whether an application that was away has come back to poll()."""


class PollTimer:
    """The limit between two polls of a group member.

    Parameters
    ----------
    config : ConsumerConfig
        ``max_poll_interval_ms``; ``group_id`` for the words.
    port : StepPort
        Knows when the application was last in poll().
    """

    __slots__ = ("_away_since_ms", "_group_id", "_last_poll_ms", "_limit_ms", "_port")

    def __init__(self, config: ConsumerConfig, port: StepPort) -> None:
        self._group_id = config.group_id
        self._limit_ms = config.max_poll_interval_ms
        self._port = port
        self._last_poll_ms = 0
        self._away_since_ms: int | None = None

    def look(self) -> None:
        """Take in when the last poll() was; warn, once, if it comes after the member has left."""
        self._last_poll_ms = self._port.last_poll_ms
        away_since_ms = self._away_since_ms
        if away_since_ms is None or self._last_poll_ms <= away_since_ms:
            return
        self._away_since_ms = None
        late_ms = max(0, self._last_poll_ms - away_since_ms - self._limit_ms)
        logger.warning(
            "max.poll.interval.ms %s exceeded by %s: the member left the group; "
            "take less per poll (max_poll_records) or raise it",
            _seconds(self._limit_ms),
            _seconds(late_ms),
        )

    def remaining_ms(self, now_ms: int) -> int:
        """Return the milliseconds from the last `look` until the limit is reached; 0 after it."""
        return max(0, self._last_poll_ms + self._limit_ms - now_ms)

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the limit was reached, as of the last `look`."""
        return self.remaining_ms(now_ms) == 0

    def gave_up(self) -> None:
        """Note, and warn, that the member leaves because nobody polls."""
        self._away_since_ms = self._last_poll_ms
        logger.warning(
            "Group %s: no poll() for %s (max.poll.interval.ms): leaving the group until the next "
            "poll()",
            self._group_id,
            _seconds(self._limit_ms),
        )

    def forget(self) -> None:
        """Forget that the member left: it would have left anyway."""
        self._away_since_ms = None

    def __repr__(self) -> str:
        return f"<PollTimer {self._limit_ms} ms away={self._away_since_ms is not None}>"


def _seconds(ms: int) -> str:
    return f"{round(ms / 1000)} s" if ms >= 10_000 else f"{ms / 1000:g} s"
