"""RequestMetrics: count, latency, size and throttle time of the responses of each API.

Owns the statistics of each API. Updated by the network client, once per response, on the network
thread; read by any thread. Heartbeats, commits, joins and fetches are measured here all alike, so
that no request manager has to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kfast._runtime.sampled_stat import SampledStat

if TYPE_CHECKING:
    from collections.abc import Mapping


class ApiStats(NamedTuple):
    """Statistics of the responses of one API."""

    latency_ms: SampledStat
    nbytes: SampledStat
    throttle_ms: SampledStat


class RequestMetrics:
    """Statistics of responses by API key, over windows as in `SampledStat`."""

    __slots__ = ("_stats", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._stats: dict[int, ApiStats] = {}

    def answered(
        self, api_key: int, latency_ms: int, nbytes: int, throttle_ms: int, now_ms: int
    ) -> None:
        """Count a response."""
        stats = self._stats.get(api_key)
        if stats is None:
            stats = self.empty()
            self._stats = {**self._stats, api_key: stats}  # readers hold the old one
        stats.latency_ms.record(latency_ms, now_ms)
        stats.nbytes.record(nbytes, now_ms)
        stats.throttle_ms.record(throttle_ms, now_ms)

    def by_api(self) -> Mapping[int, ApiStats]:
        """Return the statistics of every API that was answered."""
        return self._stats

    def of(self, *api_keys: int) -> ApiStats:
        """Return the statistics of the first of these APIs that was answered."""
        stats = (self._stats[key] for key in api_keys if key in self._stats)
        return next(stats, None) or self.empty()

    def empty(self) -> ApiStats:
        """Return statistics of nothing."""
        return ApiStats(*(SampledStat(self._windows, self._window_ms) for _ in ApiStats._fields))

    def __repr__(self) -> str:
        return f"<RequestMetrics {sorted(self._stats)}>"
