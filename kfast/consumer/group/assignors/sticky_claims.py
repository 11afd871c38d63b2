"""Who owned what before: the members' claims, with contradictions settled.

Owns ``Claims``, the common input of both sticky algorithms. Network thread; a claim is what another
member says of itself, so it may be outdated, doubled or name partitions that do not exist. These
are left out.

| a partition is claimed by | it belongs to |
|---|---|
| one member | that member, however old its generation |
| several, one of the newest generation | that one |
| several of the newest generation | nobody: one of them is mistaken (KAFKA-12984) |
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfast.consumer.group.assignors.assignor import NO_GENERATION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kfast.consumer.group.assignors.assignor import GroupMember
    from kfast.consumer.group.assignors.sticky_user_data import Claim
    from kfast.types import TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Claims:
    """What the members of a group own, as far as can be believed.

    Parameters
    ----------
    owners : Mapping of TopicPartition to str
        The member each partition belongs to.
    doubled : Collection of TopicPartition
        Claimed by several members of one generation.
    outdated : Mapping of TopicPartition to str
        The newest claimant among members that are not of the newest generation.
    claimants : Mapping of TopicPartition to frozenset of str
        Everyone who claims it, rightly or not.
    """

    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    doubled: Collection[TopicPartition] = frozenset()
    outdated: Mapping[TopicPartition, str] = field(default_factory=dict)
    claimants: Mapping[TopicPartition, Collection[str]] = field(default_factory=dict)


def settle_claims(
    members: Sequence[GroupMember],
    existing: Collection[TopicPartition],
    claim_of: Callable[[GroupMember], Claim],
) -> Claims:
    """Return the claims of a group.

    Parameters
    ----------
    members : sequence of GroupMember
        Ordered by member id.
    existing : collection of TopicPartition
        The partitions of the subscribed topics.
    claim_of : callable
        Reads a member's claim.
    """
    claims = {member.member_id: claim_of(member) for member in members}
    newest = max((generation for _, generation in claims.values()), default=NO_GENERATION)
    owners: dict[TopicPartition, str] = {}
    latest: dict[TopicPartition, tuple[str, int]] = {}
    doubled: set[TopicPartition] = set()
    outdated: dict[TopicPartition, tuple[str, int]] = {}
    claimants: dict[TopicPartition, list[str]] = {}
    for member_id, (partitions, generation) in claims.items():
        for tp in dict.fromkeys(partitions):
            if tp not in existing:
                continue
            claimants.setdefault(tp, []).append(member_id)
            if generation < newest and (tp not in outdated or generation > outdated[tp][1]):
                outdated[tp] = member_id, generation
            other, other_generation = latest.get(tp, ("", NO_GENERATION - 1))
            if generation == other_generation:
                logger.debug("%s is claimed by both %s and %s", tp, other, member_id)
                doubled.add(tp)
                owners.pop(tp, None)
            elif generation > other_generation:
                owners[tp] = member_id
            if generation >= other_generation:
                latest[tp] = member_id, generation
    if doubled:
        logger.warning(
            "%d partitions, such as %s, are claimed by several members of one generation",
            len(doubled),
            min(doubled),
        )
    return Claims(
        owners, doubled, {tp: member_id for tp, (member_id, _) in outdated.items()}, claimants
    )
