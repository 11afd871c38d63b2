"""MemberState: the states of a group member under both protocols, and what holds in which.

Values only: `ClassicMembership` and `ConsumerMembership` have the tables of transitions.

| state | protocol | poll() required | heartbeats | commits |
|---|---|---|---|---|
| UNJOINED | classic | | | |
| PREPARING_REBALANCE | classic | yes | | refused |
| COMPLETING_REBALANCE | classic | yes | yes | refused |
| STABLE | both | yes | yes | yes |
| FAILED | classic | | | |
| UNSUBSCRIBED, FENCED, STALE | KIP-848 | | none until the member rejoins | |
| JOINING, ACKNOWLEDGING | KIP-848 | yes | at once | yes |
| RECONCILING | KIP-848 | yes | yes | yes |
| PREPARE_LEAVING | KIP-848 | | yes | yes |
| LEAVING | KIP-848 | | one, with the leave epoch | |
| FATAL | KIP-848 | | | |
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class MemberState(Enum):
    """One state of a member; the values are shown in logs and in ``health()``."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing_rebalance"
    COMPLETING_REBALANCE = "completing_rebalance"
    STABLE = "stable"
    FAILED = "failed"
    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    PREPARE_LEAVING = "prepare_leaving"
    LEAVING = "leaving"
    FENCED = "fenced"
    STALE = "stale"
    FATAL = "fatal"


REBALANCING: Final = frozenset({MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE})
"""JoinGroup or SyncGroup is in flight: offsets cannot be committed."""

AT_ONCE: Final = frozenset({MemberState.JOINING, MemberState.ACKNOWLEDGING})
"""The heartbeat does not wait for the interval."""

POLL_REQUIRED: Final = REBALANCING | AT_ONCE | {MemberState.RECONCILING, MemberState.STABLE}
"""The member leaves unless poll() is called within ``max_poll_interval_ms``."""

CLASSIC_HEARTBEATS: Final = frozenset({MemberState.COMPLETING_REBALANCE, MemberState.STABLE})
"""A classic member sends heartbeats."""

REJOINING: Final = frozenset({MemberState.UNSUBSCRIBED, MemberState.FENCED, MemberState.STALE})
"""A KIP-848 member joins as soon as the application polls and no partition is owned."""
