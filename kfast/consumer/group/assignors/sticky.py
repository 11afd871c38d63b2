"""StickyAssignor: balanced assignment with few moves, for eager rebalances (KIP-54).

Owns the last assignment of this member, which is sent to the leader as user data: under the eager
protocol members own no partitions when they join. Network thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.consumer.group.assignors.assignor import ConsumerPartitionAssignor
from kfast.consumer.group.assignors.sticky_assignment import assign_sticky
from kfast.consumer.group.assignors.sticky_claims import (
    Claim,
    decode_assignment,
    encode_assignment,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfast.client.cluster import Cluster
    from kfast.consumer.group.assignors.assignor import GroupMember
    from kfast.types import TopicPartition


class StickyAssignor(ConsumerPartitionAssignor):
    """Even counts, and partitions stay with their member where that allows it (KIP-54).

    Members with a ``client_rack`` get and keep partitions with a replica there first (KIP-881).
    ``CooperativeStickyAssignor`` assigns alike without stopping the whole group.

    Examples
    --------
    >>> consumer = kfast.KafkaConsumer(
    ...     "orders",
    ...     bootstrap_servers="localhost:9092",
    ...     group_id="billing",
    ...     partition_assignment_strategy=[kfast.StickyAssignor],
    ... )
    """

    name = "sticky"

    def __init__(self) -> None:
        self._user_data: bytes | None = None

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:  # noqa: ARG002
        """Return the last assignment, None before the first."""
        return self._user_data

    def assign(
        self, cluster: Cluster, members: Sequence[GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of every member."""
        return assign_sticky(cluster, members, _claim_of).assigned

    def on_assignment(
        self,
        partitions: Sequence[TopicPartition],
        generation_id: int,
        user_data: bytes | None,  # noqa: ARG002 - no leader sends any
    ) -> None:
        """Keep the assignment for the next JoinGroup."""
        self._user_data = encode_assignment(partitions, generation_id)

    def __repr__(self) -> str:
        return f"<StickyAssignor claim={decode_assignment(self._user_data)}>"


def _claim_of(member: GroupMember) -> Claim:
    return decode_assignment(member.user_data)
