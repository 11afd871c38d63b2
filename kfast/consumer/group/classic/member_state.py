"""MemberState: where a classic group membership stands, and what holds in which state.

Values only; `ClassicMembership` has the table of what leads from one to another.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class MemberState(Enum):
    """One state of a membership; the values are shown in logs and health."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing_rebalance"
    COMPLETING_REBALANCE = "completing_rebalance"
    STABLE = "stable"
    FAILED = "failed"


REBALANCING: Final = frozenset({MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE})
"""JoinGroup or SyncGroup is under way: offsets cannot be committed."""
IN_GROUP: Final = REBALANCING | {MemberState.STABLE}
"""The coordinator counts on this member, so the application has to poll."""
BEATING: Final = frozenset({MemberState.COMPLETING_REBALANCE, MemberState.STABLE})
"""Heartbeats are sent."""
