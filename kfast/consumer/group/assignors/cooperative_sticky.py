"""CooperativeStickyAssignor: sticky assignment with cooperative rebalances (KIP-429).

Owns the generation of this member's last assignment, which is sent to the leader as user data for
leaders that do not read it from the subscription. Network thread.

A partition that moves is withheld from its new owner while another member owns it; the old owner
revokes it and joins again, and then it is assigned. All other partitions are read meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.consumer.group.assignors.assignor import (
    NO_GENERATION,
    ConsumerPartitionAssignor,
    RebalanceProtocol,
)
from kfast.consumer.group.assignors.sticky_assignment import StickyResult, assign_sticky
from kfast.consumer.group.assignors.sticky_claims import (
    Claim,
    decode_generation,
    encode_generation,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfast.client.cluster import Cluster
    from kfast.consumer.group.assignors.assignor import GroupMember
    from kfast.types import TopicPartition


class CooperativeStickyAssignor(ConsumerPartitionAssignor):
    """Even counts, few moves, and members read on while the group rebalances.

    Members with a ``client_rack`` get and keep partitions with a replica there first (KIP-881).
    Can also be used eagerly, while a group changes over from another assignor.

    Examples
    --------
    >>> consumer = kfast.KafkaConsumer(
    ...     "orders",
    ...     bootstrap_servers="localhost:9092",
    ...     group_id="billing",
    ...     partition_assignment_strategy=[kfast.CooperativeStickyAssignor],
    ... )
    """

    name = "cooperative-sticky"
    supported_protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._generation_id = NO_GENERATION

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:  # noqa: ARG002
        """Return the generation of the last assignment."""
        return encode_generation(self._generation_id)

    def assign(
        self, cluster: Cluster, members: Sequence[GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of every member, without those another member has to revoke."""
        result = assign_sticky(cluster, members, _claim_of)
        return {
            member_id: [tp for tp in partitions if not _is_withheld(tp, member_id, result)]
            for member_id, partitions in result.assigned.items()
        }

    def on_assignment(
        self,
        partitions: Sequence[TopicPartition],  # noqa: ARG002 - the subscription has them
        generation_id: int,
        user_data: bytes | None,  # noqa: ARG002 - no leader sends any
    ) -> None:
        """Keep the generation for the next JoinGroup."""
        self._generation_id = generation_id

    def __repr__(self) -> str:
        return f"<CooperativeStickyAssignor generation={self._generation_id}>"


def _claim_of(member: GroupMember) -> Claim:
    if member.generation_id >= 0:
        return member.owned_partitions, member.generation_id
    return member.owned_partitions, decode_generation(member.user_data)


def _is_withheld(tp: TopicPartition, member_id: str, result: StickyResult) -> bool:
    """Return whether another member has to revoke the partition first."""
    claimants = result.claims.claimants.get(tp)
    if claimants is None:
        return False
    if result.is_uniform:
        return result.claims.owners.get(tp) != member_id or tp in result.claims.doubled
    return member_id not in claimants
