"""SampledStat and RequestMetrics: counting over windows."""

from __future__ import annotations

import math

from kfast._runtime.sampled_stat import SampledStat
from kfast.client.request_metrics import RequestMetrics


def test_nothing_measured_is_not_a_number() -> None:
    """O-03: no measurement is told apart from a measurement of nothing."""
    stat = SampledStat(2, 1_000)
    assert math.isnan(stat.average(0))
    assert math.isnan(stat.maximum(0))
    assert (stat.rate(0), stat.frequency(0), stat.count, stat.last_ms) == (0.0, 0.0, 0, None)


def test_values_of_the_last_windows_count() -> None:
    """O-03: old windows go, the totals stay."""
    stat = SampledStat(2, 1_000)
    for value, now_ms in ((10, 0), (20, 500), (60, 1_000)):
        stat.record(value, now_ms)
    assert (stat.average(1_000), stat.maximum(1_000)) == (30, 60)
    assert stat.average(2_100) == 60
    assert math.isnan(stat.average(9_000))
    assert (stat.count, stat.total, stat.last_ms) == (3, 90, 1_000)
    stat.record(5, 9_000)
    assert (stat.average(9_000), stat.maximum(9_000)) == (5, 5)


def test_a_rate_is_per_second_and_a_first_burst_is_none() -> None:
    """O-03: as in Kafka, at least one full window is divided by."""
    stat = SampledStat(2, 10_000)
    stat.record(50, 0)
    assert stat.rate(0) == 5.0
    assert stat.frequency(0) == 0.1
    stat.record(150, 10_000)
    assert stat.rate(15_000) == 200 / 15


def test_responses_are_counted_per_api() -> None:
    """O-03, O-04: one call per response, whatever is in it."""
    metrics = RequestMetrics(2, 1_000)
    held = metrics.by_api()
    metrics.answered(1, 12, 1_000, 30, 0)
    metrics.answered(1, 8, 3_000, 0, 5)
    metrics.answered(12, 1, 10, 0, 5)
    assert held == {}
    assert set(metrics.by_api()) == {1, 12}
    assert metrics.of(1).latency_ms.average(5) == 10
    assert metrics.of(1).nbytes.total == 4_000
    assert metrics.of(1).throttle_ms.average(5) == 15
    assert metrics.of(1).throttle_ms.maximum(5) == 30
    assert metrics.of(68, 12).latency_ms.count == 1
    assert metrics.of(99).latency_ms.count == 0
