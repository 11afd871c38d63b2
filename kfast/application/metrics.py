"""ConsumerMetrics: the measurements of one consumer, under Kafka's names.

Owns the counters of the application thread (polls, records) and the tables that turn all counters
into `metrics()`. Nothing is counted per record: a poll costs a few additions, and one read of the
last timestamp of each batch. Lag and lead of partitions are computed when the metrics are read.
Written by the application thread, read by any.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kfast._runtime.sampled_stat import SampledStat
from kfast.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kfast.client.request_metrics import ApiStats
    from kfast.config import ConsumerConfig
    from kfast.consumer.group.rebalance_metrics import RebalanceMetrics
    from kfast.records.consumer_records import ConsumerRecords
    from kfast.threads.consumer_runtime import ConsumerRuntime
    from kfast.types import TopicPartition

Metrics = dict[str, dict[str, float]]

_COORDINATOR_APIS: Final = {
    "heartbeat": (ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT),
    "join": (ApiKey.JOIN_GROUP,),
    "sync": (ApiKey.SYNC_GROUP,),
    "commit": (ApiKey.OFFSET_COMMIT,),
}
_SECONDS_PER_HOUR: Final = 3_600


class ConsumerMetrics:
    """Measures one consumer."""

    def __init__(self, config: ConsumerConfig, runtime: ConsumerRuntime) -> None:
        self.is_enabled = config.metrics_enabled
        self._is_detailed = config.metrics_recording_level != "INFO"
        self._prefix = config.metric_group_prefix
        self._runtime = runtime
        self._subscriptions = runtime.subscriptions
        self._clock = runtime.clock
        windows = (config.metrics_num_samples, config.metrics_sample_window_ms)
        self._records = SampledStat(*windows)
        self._between_polls = SampledStat(*windows)
        self._in_poll = SampledStat(*windows)
        self._newest: dict[TopicPartition, tuple[int, int]] = {}
        self._poll_began_ms: int | None = None

    # --- counting ---------------------------------------------------------------------------------

    def poll_begins(self, now_ms: int) -> None:
        """Note that the application called poll."""
        if not self.is_enabled:
            return
        if self._poll_began_ms is not None:
            self._between_polls.record(now_ms - self._poll_began_ms, now_ms)
        self._poll_began_ms = now_ms

    def poll_ends(self, records: ConsumerRecords) -> None:
        """Note the records that poll returns."""
        if not self.is_enabled or self._poll_began_ms is None:
            return
        now_ms = self._clock.now_ms()
        self._in_poll.record(now_ms - self._poll_began_ms, now_ms)
        count = records.count()
        if not count:
            return
        for tp, batch in records.last_batches():
            if len(batch):
                self._newest[tp] = (now_ms, batch.last_timestamp)
        self._records.record(count, now_ms)

    def unassigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that are no longer assigned."""
        for tp in partitions:
            self._newest.pop(tp, None)

    # --- reading ----------------------------------------------------------------------------------

    def metrics(self) -> Metrics:
        """Return ``{group: {name: value}}``; NaN where nothing was measured yet."""
        if not self.is_enabled:
            return {}
        now_ms = self._clock.now_ms()
        partitions = self._partitions(now_ms)
        groups = {
            "metrics": self._general(now_ms),
            "fetch-manager-metrics": self._fetching(now_ms, partitions),
        }
        group = self._runtime.group
        if group is not None:
            groups["coordinator-metrics"] = {
                **self._coordinator(now_ms),
                **_rebalances(group.membership.rebalances, now_ms),
            }
        groups.update(
            (f"fetch-manager-metrics.{tp}", values) for tp, values in sorted(partitions.items())
        )
        if self._is_detailed:
            groups.update(self._requests(now_ms))
        return {f"{self._prefix}-{group}": values for group, values in groups.items()}

    def _general(self, now_ms: int) -> dict[str, float]:
        stats = self._runtime.requests.by_api().values()
        between = self._between_polls.average(now_ms)
        inside = self._in_poll.average(now_ms)
        return {
            "last-poll-seconds-ago": _seconds_since(self._poll_began_ms, now_ms),
            "time-between-poll-avg": between,
            "time-between-poll-max": self._between_polls.maximum(now_ms),
            "poll-idle-ratio-avg": min(1.0, inside / between) if between else math.nan,
            "connection-count": self._runtime.connection_count,
            "response-total": sum(api.latency_ms.count for api in stats),
            "response-rate": sum(api.latency_ms.frequency(now_ms) for api in stats),
            "incoming-byte-total": sum(api.nbytes.total for api in stats),
            "incoming-byte-rate": sum(api.nbytes.rate(now_ms) for api in stats),
        }

    def _fetching(
        self, now_ms: int, partitions: Mapping[TopicPartition, Mapping[str, float]]
    ) -> dict[str, float]:
        fetch = self._runtime.requests.of(ApiKey.FETCH)
        records, nbytes, latency = self._records, fetch.nbytes, fetch.latency_ms
        lags = [values["records-lag"] for values in partitions.values()]
        leads = [values["records-lead"] for values in partitions.values()]
        return {
            "records-consumed-total": records.total,
            "records-consumed-rate": records.rate(now_ms),
            "records-per-poll-avg": records.average(now_ms),
            "bytes-consumed-total": nbytes.total,
            "bytes-consumed-rate": nbytes.rate(now_ms),
            "fetch-total": latency.count,
            "fetch-rate": latency.frequency(now_ms),
            "fetch-latency-avg": latency.average(now_ms),
            "fetch-latency-max": latency.maximum(now_ms),
            "fetch-size-avg": nbytes.average(now_ms),
            "fetch-size-max": nbytes.maximum(now_ms),
            "fetch-throttle-time-avg": fetch.throttle_ms.average(now_ms),
            "fetch-throttle-time-max": fetch.throttle_ms.maximum(now_ms),
            "last-fetch-seconds-ago": _seconds_since(latency.last_ms, now_ms),
            "records-lag-max": max((lag for lag in lags if not math.isnan(lag)), default=math.nan),
            "records-lead-min": min(
                (lead for lead in leads if not math.isnan(lead)), default=math.nan
            ),
            "buffered-bytes": self._runtime.fetch_buffer.memory.bytes_used,
        }

    def _coordinator(self, now_ms: int) -> dict[str, float]:
        values: dict[str, float] = {}
        for name, keys in _COORDINATOR_APIS.items():
            latency = self._runtime.requests.of(*keys).latency_ms
            values[f"{name}-total"] = latency.count
            values[f"{name}-rate"] = latency.frequency(now_ms)
            values[f"{name}-{_LATENCY_NAMES[name]}-avg"] = latency.average(now_ms)
            values[f"{name}-{_LATENCY_NAMES[name]}-max"] = latency.maximum(now_ms)
            if name == "heartbeat":
                values["last-heartbeat-seconds-ago"] = _seconds_since(latency.last_ms, now_ms)
        values["assigned-partitions"] = len(self._subscriptions.assigned_partitions())
        return values

    def _partitions(self, now_ms: int) -> dict[TopicPartition, dict[str, float]]:
        """Return the metrics of each assigned partition; forget the others."""
        partitions = {}
        newest = dict(self._newest)
        begin_ms = self._clock.wall_ms() - now_ms  # of the monotonic clock
        lags = self._subscriptions.lags()
        for state in self._subscriptions.snapshot():
            tp, position, log_start = state.topic_partition, state.position, state.log_start_offset
            lag, lead = lags.get(tp), math.nan
            if position is not None and log_start is not None:
                lead = max(0, position.offset - log_start)
            given_ms, timestamp = newest.get(tp, (0, -1))
            latency_ms = begin_ms + given_ms - timestamp
            partitions[tp] = {
                "records-lag": math.nan if lag is None else lag,
                "records-lead": lead,
                "ingest-latency-ms": math.nan if timestamp < 0 else latency_ms,
            }
        for tp in newest.keys() - partitions.keys():
            self._newest.pop(tp, None)
        return partitions

    def _requests(self, now_ms: int) -> Metrics:
        return {
            f"request-metrics.{ApiKey(key).name.lower()}": _request(stats, now_ms)
            for key, stats in self._runtime.requests.by_api().items()
        }

    def __repr__(self) -> str:
        return (
            f"<ConsumerMetrics {'on' if self.is_enabled else 'off'} records={self._records.total}>"
        )


_LATENCY_NAMES: Final = {
    "heartbeat": "response-time",
    "join": "time",
    "sync": "time",
    "commit": "latency",
}


def _request(stats: ApiStats, now_ms: int) -> dict[str, float]:
    return {
        "response-total": stats.latency_ms.count,
        "response-rate": stats.latency_ms.frequency(now_ms),
        "request-latency-avg": stats.latency_ms.average(now_ms),
        "request-latency-max": stats.latency_ms.maximum(now_ms),
        "response-size-avg": stats.nbytes.average(now_ms),
        "throttle-time-avg": stats.throttle_ms.average(now_ms),
        "throttle-time-max": stats.throttle_ms.maximum(now_ms),
    }


def _rebalances(rebalances: RebalanceMetrics, now_ms: int) -> dict[str, float]:
    latency, failures = rebalances.latency_ms, rebalances.failures
    return {
        "rebalance-total": latency.count,
        "rebalance-rate-per-hour": latency.frequency(now_ms) * _SECONDS_PER_HOUR,
        "rebalance-latency-avg": latency.average(now_ms),
        "rebalance-latency-max": latency.maximum(now_ms),
        "rebalance-latency-total": latency.total,
        "failed-rebalance-total": failures.count,
        "failed-rebalance-rate-per-hour": failures.frequency(now_ms) * _SECONDS_PER_HOUR,
        "last-rebalance-seconds-ago": _seconds_since(latency.last_ms, now_ms),
    }


def _seconds_since(then_ms: int | None, now_ms: int) -> float:
    return -1 if then_ms is None else (now_ms - then_ms) / 1000
