"""ConsumerHealth: the state of a consumer, for probes and dashboards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfast.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.threads.consumer_runtime import ConsumerRuntime
    from kfast.types import ConsumerGroupMetadata, TopicPartition


@dataclass(frozen=True, slots=True)
class ConsumerHealth:
    """A consumer at one moment.

    Parameters
    ----------
    member_state : str or None
        State of the group member ("stable", "preparing_rebalance", ...); None without a group.
    membership : ConsumerGroupMetadata or None
        Its member id and generation; None while it is not a member.
    connections : int
        Open connections to brokers.
    ms_since_poll, ms_since_fetch : int or None
        Since the application was last in ``poll``, and since the last Fetch response.
    lag : Mapping of TopicPartition to int or None
        Offsets left to read of each assigned partition, None where unknown.
    """

    member_state: str | None
    membership: ConsumerGroupMetadata | None
    connections: int
    ms_since_poll: int | None
    ms_since_fetch: int | None
    lag: Mapping[TopicPartition, int | None]


def health_of(runtime: ConsumerRuntime, membership: ConsumerGroupMetadata | None) -> ConsumerHealth:
    """Return the state of a consumer; any thread."""
    now_ms = runtime.clock.now_ms()
    group = runtime.group
    fetched_ms = runtime.requests.of(ApiKey.FETCH).latency_ms.last_ms
    subscriptions = runtime.subscriptions
    with subscriptions.lock:
        lag = {tp: subscriptions.current_lag(tp) for tp in subscriptions.assigned_partitions()}
    return ConsumerHealth(
        None if group is None else group.membership.state_name,
        membership,
        runtime.connection_count,
        now_ms - runtime.steps.last_poll_ms if runtime.is_started else None,
        None if fetched_ms is None else now_ms - fetched_ms,
        lag,
    )
