"""RebalanceMetrics: counts and latencies of the rebalances of a group member.

Written by the network thread, read by any; `ConsumerMetrics` has the names of the metrics.

| | classic protocol | KIP-848 |
|---|---|---|
| begins | the first JoinGroup is sent | a target assignment is received |
| ends | SyncGroup response with an assignment | the owned partitions are acknowledged |
| fails | a JoinGroup leads to no generation; it is retried | the member is fenced or fails |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._runtime.sampled_stat import SampledStat

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig


class RebalanceMetrics:
    """The rebalances of one member: latencies of those that ended, one recording per failure."""

    __slots__ = ("_began_ms", "failures", "latency_ms")

    def __init__(self, config: ConsumerConfig) -> None:
        windows = (config.metrics_num_samples, config.metrics_sample_window_ms)
        self.latency_ms = SampledStat(*windows)
        self.failures = SampledStat(*windows)
        self._began_ms: int | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether one has begun and not ended."""
        return self._began_ms is not None

    def begins(self, now_ms: int) -> None:
        """Note the beginning of a rebalance; no effect while one is under way."""
        if self._began_ms is None:
            self._began_ms = now_ms

    def ends(self, now_ms: int) -> None:
        """Note that the member has its assignment."""
        if self._began_ms is not None:
            self.latency_ms.record(now_ms - self._began_ms, now_ms)
            self._began_ms = None

    def fails(self, now_ms: int) -> None:
        """Count a failure; the rebalance goes on until `ends` or `cancels`."""
        self.failures.record(1, now_ms)

    def cancels(self) -> None:
        """Drop the rebalance under way: there was nothing to do, or the member leaves."""
        self._began_ms = None

    def __repr__(self) -> str:
        return (
            f"<RebalanceMetrics ended={self.latency_ms.count} failed={self.failures.count}"
            f" under_way={self.is_under_way}>"
        )
