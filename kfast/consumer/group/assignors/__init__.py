"""Assignors of the classic group protocol: kfast's own and the contract for others.

``strategies`` turns the setting into assignors, ``assignment_check`` validates their results.
"""

from __future__ import annotations

from kfast.consumer.group.assignors.assignment_check import check_assignment
from kfast.consumer.group.assignors.assignor import (
    Assignor,
    ConsumerPartitionAssignor,
    GroupMember,
    RebalanceProtocol,
)
from kfast.consumer.group.assignors.cooperative_sticky import CooperativeStickyAssignor
from kfast.consumer.group.assignors.range import RangeAssignor
from kfast.consumer.group.assignors.round_robin import RoundRobinAssignor
from kfast.consumer.group.assignors.sticky import StickyAssignor
from kfast.consumer.group.assignors.strategies import (
    ASSIGNORS,
    is_built_in,
    resolve_assignors,
    select_rebalance_protocol,
)

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "ConsumerPartitionAssignor",
    "CooperativeStickyAssignor",
    "GroupMember",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "check_assignment",
    "is_built_in",
    "resolve_assignors",
    "select_rebalance_protocol",
]
