"""JoinAttempts: when to try JoinGroup again, and when a wait for its answer is worth a word.

Owns the pauses between tries, which grow while they lead to no generation. Sends nothing.
Network thread only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kfast._clock import ExponentialBackoff
from kfast.client.request_manager import NEVER_MS

if TYPE_CHECKING:
    from kfast._clock import Clock
    from kfast.config import ConsumerConfig

logger = logging.getLogger(__name__)

PARKED_JOIN_MS: Final = 3_500
"""A JoinGroup unanswered for so long is worth a word. The first join of an empty group takes 3 s
by itself (group.initial.rebalance.delay.ms)."""


class JoinAttempts:
    """The tries of one member.

    Parameters
    ----------
    config : ConsumerConfig
        ``retry_backoff_ms``, ``retry_backoff_max_ms``; ``group_id`` and ``session_timeout_ms`` for
        the words.
    clock : Clock
        Source of jitter; times are arguments.
    """

    def __init__(self, config: ConsumerConfig, clock: Clock) -> None:
        self._group_id = config.group_id
        self._session_timeout_ms = config.session_timeout_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._clock = clock
        self._failures = 0
        self._has_had_free_retry = False
        self._not_before_ms = 0
        self._sent_ms: int | None = None

    def ms_to_next(self, now_ms: int) -> int:
        """Return the milliseconds until the next try; 0 means now."""
        return max(0, self._not_before_ms - now_ms)

    def sent(self, now_ms: int) -> None:
        """Note that JoinGroup goes out."""
        self._sent_ms = now_ms

    def ms_to_notice(self, now_ms: int) -> int:
        """Return the milliseconds until a wait is to be told of; tell, once, when they are over."""
        if self._sent_ms is None:
            return NEVER_MS
        left_ms = self._sent_ms + PARKED_JOIN_MS - now_ms
        if left_ms > 0:
            return left_ms
        self._sent_ms = None
        logger.info(
            'waiting for group "%s": a member has not left, up to %g s (session.timeout.ms)',
            self._group_id,
            self._session_timeout_ms / 1000,
        )
        return NEVER_MS

    def failed(self, now_ms: int, *, is_first_free: bool = False) -> None:
        """Note a try that led to no generation: the next one comes after a pause that grows.

        Parameters
        ----------
        now_ms : int
            The time.
        is_first_free : bool
            The first retry comes at once: the group just wants everybody to join again. Only a
            coordinator that says so again and again is given time.
        """
        self._not_before_ms = now_ms
        if is_first_free and not self._has_had_free_retry:
            self._has_had_free_retry = True
            return
        self._not_before_ms += self._backoff.backoff_ms(self._failures, self._clock)
        self._failures += 1

    def reset(self) -> None:
        """Note a success, or a new beginning."""
        self._failures = 0
        self._has_had_free_retry = False
        self._not_before_ms = 0

    def __repr__(self) -> str:
        return f"<JoinAttempts failed={self._failures} not_before={self._not_before_ms}>"
