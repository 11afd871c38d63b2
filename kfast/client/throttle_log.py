"""ThrottleLog: one line in the log when a broker begins to throttle this client for a quota.

Owns, per broker, when it last did. Network thread only. A broker that has used a client's quota up
throttles with every response: these are one state, which has ended after `QUIET_MS` without any.
"""

from __future__ import annotations

from typing import Final

from kfast._base.logs import get_logger

logger = get_logger(__name__)

QUIET_MS: Final = 60_000


class ThrottleLog:
    """Logs for the client of this id."""

    __slots__ = ("_client_id", "_last_ms")

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._last_ms: dict[int, int] = {}

    def note(self, node_id: int, api: str, throttle_ms: int, now_ms: int) -> None:
        """Note a response that says how long the broker throttles."""
        last_ms = self._last_ms.get(node_id)
        self._last_ms[node_id] = now_ms
        if last_ms is None or now_ms - last_ms >= QUIET_MS:
            logger.warning(
                "Broker %d throttles %s for %d ms: a quota of the user or of client.id %s is used "
                "up; the metrics have fetch-throttle-time-avg and fetch-throttle-time-max",
                node_id,
                api,
                throttle_ms,
                self._client_id,
            )

    def __repr__(self) -> str:
        return f"<ThrottleLog {sorted(self._last_ms)}>"
