"""RebalanceMetrics: how many rebalances a group member took part in, and how long they took.

Owns the counts and the beginning of the one under way. What begins and ends one is the membership's
business, the names under which it is shown are ``ConsumerMetrics``'. Written by the network thread,
read by any.

| | classic protocol | KIP-848 |
|---|---|---|
| begins | the first JoinGroup is sent | there is a target to go for |
| ends | SyncGroup brings an assignment | what is owned goes to the coordinator |
| fails | a try to join leads to no generation; joining goes on | the member is fenced or gives up |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._runtime.sampled_stat import SampledStat

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig


class RebalanceMetrics:
    """The rebalances of one member.

    Parameters
    ----------
    config : ConsumerConfig
        ``metrics_num_samples``, ``metrics_sample_window_ms``.

    Attributes
    ----------
    latency_ms : SampledStat
        Of those that ended.
    failures : SampledStat
        One recording for each that failed.
    """

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
        """Note a beginning; while one is under way it is still the same."""
        if self._began_ms is None:
            self._began_ms = now_ms

    def ends(self, now_ms: int) -> None:
        """Note that the member has what the group gave it."""
        if self._began_ms is not None:
            self.latency_ms.record(now_ms - self._began_ms, now_ms)
            self._began_ms = None

    def fails(self, now_ms: int) -> None:
        """Count a failure; what is under way goes on until `ends` or `breaks_off`."""
        self.failures.record(1, now_ms)

    def breaks_off(self) -> None:
        """Forget what is under way: there was nothing to do, or the member leaves."""
        self._began_ms = None

    def __repr__(self) -> str:
        return (
            f"<RebalanceMetrics ended={self.latency_ms.count} failed={self.failures.count}"
            f" under_way={self.is_under_way}>"
        )
