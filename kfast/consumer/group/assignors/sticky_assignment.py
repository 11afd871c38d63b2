"""The assignment both sticky assignors compute.

Pure; network thread. Owns the choice of the algorithm: ``sticky_constrained`` when all members are
subscribed to the same topics, else ``sticky_general``. Both know of racks (``sticky_racks``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kfast.consumer.group.assignors.group_topics import by_id, subscribed_partitions
from kfast.consumer.group.assignors.sticky_claims import Claims, settle_claims
from kfast.consumer.group.assignors.sticky_constrained import assign_equally
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
    """An assignment and what it was based on.

    Parameters
    ----------
    assigned : Assigned
        The partitions of every member.
    claims : Claims
        What the members owned.
    is_uniform : bool
        Whether all members are subscribed to the same topics.
    """

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
        assigned = assign_equally([m.member_id for m in ordered], partitions, claims, racks)
    else:
        assigned = GeneralAssignment(ordered, topics, claims, racks).run()
    return StickyResult(assigned, claims, is_uniform)
