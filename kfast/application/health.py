"""ConsumerHealth: the state of a consumer, for probes and dashboards, and in one line.

All of it is read from snapshots: by any thread, without waiting for a lock, also while a call is
blocked and after `close`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kfast.consumer.subscription import SubscriptionType
from kfast.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.application.commits import ConsumerCommits
    from kfast.config import ConsumerConfig
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
    problem : str or None
        What keeps the consumer from reading and is tried again: no broker was reached, or the group
        has no coordinator, is not joined or does not give its committed offsets. None if nothing
        does, as far as that is known.

    Examples
    --------
    >>> with kfast.KafkaConsumer(bootstrap_servers="localhost:9092") as consumer:
    ...     consumer.health().connections
    0
    """

    member_state: str | None
    membership: ConsumerGroupMetadata | None
    connections: int
    ms_since_poll: int | None
    ms_since_fetch: int | None
    lag: Mapping[TopicPartition, int | None]
    problem: str | None = None


_MOST_TOPICS: Final = 3
_STATES: Final = {"stable": "stable", "failed": "failed", "fatal": "failed"}
"""How the line names the states of a member; in all others it is joining."""


def health_of(runtime: ConsumerRuntime, commits: ConsumerCommits) -> ConsumerHealth:
    """Return the state of a consumer; any thread."""
    now_ms = runtime.clock.now_ms()
    group = runtime.group
    fetched_ms = runtime.requests.of(ApiKey.FETCH).latency_ms.last_ms
    return ConsumerHealth(
        None if group is None else group.membership.state_name,
        commits.group_metadata() if group is not None and group.membership.identity else None,
        runtime.connection_count,
        now_ms - runtime.steps.last_poll_ms if runtime.is_started else None,
        None if fetched_ms is None else now_ms - fetched_ms,
        runtime.subscriptions.lags(),
        _problem_of(runtime),
    )


def _problem_of(runtime: ConsumerRuntime) -> str | None:
    if runtime.is_closed or not runtime.is_started:
        return None
    error = runtime.failure or runtime.why_unreachable()
    if error is not None:
        return f"{error.message}: {error.cause}" if error.cause else error.message
    failing = runtime.retries.failing
    return failing[0].text if failing else None


def line_of(config: ConsumerConfig | None, runtime: ConsumerRuntime | None) -> str:
    """Return the ``repr`` of a consumer; any thread. None for what its constructor did not make."""
    if config is None or runtime is None:
        return "<KafkaConsumer: not constructed>"
    subscriptions = runtime.subscriptions
    parts = [",".join(f"{host}:{port}" for host, port in config.bootstrap_servers)]
    state = _state_of(runtime)
    assigned = subscriptions.assigned_partitions()
    topics = sorted(subscriptions.subscription() or {tp.topic for tp in assigned})
    if subscriptions.is_automatic:
        cluster = runtime.metadata.cluster
        total = sum(len(cluster.partitions_for_topic(topic) or ()) for topic in topics)
        counts = f"{len(assigned)} of {total} partitions"
    else:
        counts = f"{len(assigned)} partition{'s' * (len(assigned) != 1)}"
    if subscriptions.has_subscription() and not runtime.is_closed:
        state += f", {counts}"
    parts.append(state if config.group_id is None else f"group {config.group_id} ({state})")
    if topics:
        more = f" and {len(topics) - _MOST_TOPICS} more" if len(topics) > _MOST_TOPICS else ""
        parts.append(f"topics {', '.join(topics[:_MOST_TOPICS])}{more}")
    lags = [lag for lag in subscriptions.lags().values() if lag is not None]
    if lags and not runtime.is_closed:
        parts.append(f"lag {sum(lags):,}".replace(",", " "))
    return f"<KafkaConsumer {config.client_id}: {'; '.join(parts)}>"


def _state_of(runtime: ConsumerRuntime) -> str:
    failure = runtime.failure or (runtime.why_unreachable() if runtime.is_started else None)
    if runtime.is_closed:
        return "closed"
    if failure is not None:
        return f"failed: {failure.message}"
    kind = runtime.subscriptions.subscription_type
    if kind is SubscriptionType.NONE or not runtime.is_started:
        return "new"
    if runtime.group is None or kind is SubscriptionType.USER_ASSIGNED:
        return "assigned"
    state = _STATES.get(runtime.group.membership.state_name, "joining")
    failing = runtime.retries.failing
    return f"{state}: {failing[0].text}" if failing and state == "joining" else state
