"""Sticky assignment, common to both sticky assignors.

Pure; network thread. The algorithm is ``sticky_constrained`` when all members are subscribed to the
same topics, else ``sticky_general``. Both are rack-aware (``sticky_racks``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kfast.consumer.group.assignors.group_topics import by_id, subscribed_partitions
from kfast.consumer.group.assignors.sticky_claims import Claims, settle_claims
from kfast.consumer.group.assignors.sticky_constrained import EqualAssignment
from kfast.consumer.group.assignors.sticky_general import GeneralAssignment
from kfast.consumer.group.assignors.sticky_racks import GroupRacks
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kfast.client.cluster import Cluster
    from kfast.consumer.group.assignors.assignor import GroupMember
    from kfast.consumer.group.assignors.sticky_user_data import Claim

Assigned = dict[str, list[TopicPartition]]


class StickyResult(NamedTuple):
    """An assignment; ``is_uniform`` if all members are subscribed to the same topics."""

    assigned: Assigned
    claims: Claims
    is_uniform: bool


def assign_sticky(
    cluster: Cluster, members: Sequence[GroupMember], claim_of: Callable[[GroupMember], Claim]
) -> StickyResult:
    """Return the partitions of every member."""
    ordered = by_id(members)
    topics = subscribed_partitions(cluster, ordered)
    partitions = [tp for of_topic in topics.values() for tp in of_topic]
    claims = settle_claims(ordered, set(partitions), claim_of)
    racks = GroupRacks.of(cluster, ordered, partitions)
    is_uniform = len({frozenset(member.topics) for member in ordered}) == 1
    if is_uniform:
        assigned = EqualAssignment([m.member_id for m in ordered], partitions, claims, racks).run()
    else:
        assigned = GeneralAssignment(ordered, topics, claims, racks).run()
    return StickyResult(assigned, claims, is_uniform)
