"""MemberState: where a KIP-848 member is. Values only; `ConsumerMembership` has the table."""

from __future__ import annotations

from enum import Enum
from typing import Final


class MemberState(Enum):
    """One state of a member."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    PREPARE_LEAVING = "prepare_leaving"
    LEAVING = "leaving"
    FENCED = "fenced"
    STALE = "stale"
    FATAL = "fatal"


URGENT: Final = frozenset({MemberState.JOINING, MemberState.ACKNOWLEDGING})
"""States whose heartbeat does not wait for the interval."""

ACTIVE: Final = URGENT | {MemberState.RECONCILING, MemberState.STABLE}
"""States in which the application has to poll."""

RETURNING: Final = frozenset({MemberState.UNSUBSCRIBED, MemberState.FENCED, MemberState.STALE})
"""States from which a member joins as soon as the application is there and owns nothing."""
