"""Claims: partitions that the members claim to own, without contradictions.

The common input of both sticky algorithms. Network thread. Claims come from other members, so they
may be outdated, doubled or have partitions that do not exist; these are left out.

| a partition is claimed by | its owner |
|---|---|
| one member | that member, however old its generation |
| several, one of the newest generation | that one |
| several of the newest generation | none: one of the claims is wrong (KAFKA-12984) |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfast._base.logs import get_logger
from kfast.consumer.group.assignors.assignor import NO_GENERATION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kfast.consumer.group.assignors.assignor import GroupMember
    from kfast.consumer.group.assignors.sticky_user_data import Claim
    from kfast.types import TopicPartition

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Claims:
    """Owner of each partition by member id, and the claims that were left out.

    ``doubled`` are claimed by several members of one generation, ``outdated`` has the newest
    claimant among members that are not of the newest generation, ``claimants`` all of them.
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
    """Return the claims of ``members``, ordered by id, to ``existing`` partitions."""
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
