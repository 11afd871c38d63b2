"""GroupSettings: the brokers' settings of consumer groups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupSettings:
    """The brokers' settings of groups, by Kafka's names.

    The initial rebalance delay is 3 s in Kafka; here it is short, because it is a wait in every
    test on real sockets.
    """

    group_initial_rebalance_delay_ms: int = 50
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 1 << 31
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    offset_metadata_max_bytes: int = 4_096
