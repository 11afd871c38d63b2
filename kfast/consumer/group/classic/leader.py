"""LeaderAssignment: assignment by the leader of a classic group.

Owns the subscriptions of all members of the generation, the run of the assignor over them, and the
detection of topic changes that need a new assignment. The subscriptions were written by other
programs: whatever they contain, it never fails the leader. Sends nothing. Network thread only.

| subscription of a member | result |
|---|---|
| readable | used, without duplicates and negative partitions |
| topics readable, the rest not | subscribed, owns no partition |
| not readable at all | subscribed to nothing; reported to the application once per member |
| a second entry of the same member id | ignored |

A change is one of the partition counts of the group's topics, and of the racks of their replicas if
this client has a rack. A broker that leaves the metadata keeps its rack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger
from kfast.consumer.group.assignors.assignment_check import check_assignment
from kfast.consumer.group.assignors.assignor import GroupMember
from kfast.consumer.group.classic.errors import assignor_failed
from kfast.consumer.subscription import SubscriptionType
from kfast.errors import InconsistentGroupProtocolError, KafkaError, ProtocolError
from kfast.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfast.client.cluster import Cluster, PartitionMetadata
    from kfast.consumer.group.assignors.assignor import ConsumerPartitionAssignor, RebalanceProtocol
    from kfast.consumer.manager_context import ManagerContext
    from kfast.protocol.messages.join_group import JoinGroupResponseMember

logger = get_logger(__name__)

METADATA_WAIT_MS: Final = 5_000
"""How long an assignment waits for metadata of topics that are unknown to the leader. Then it is
made without them; when they appear, that is a change of the topics."""

_VERSION_0: Final = b"\x00\x00"

_Snapshot = dict[str, tuple[frozenset[str | None], ...]]
"""Per topic and partition the racks of the replicas; empty sets where racks do not matter."""


def read_member(member: JoinGroupResponseMember) -> GroupMember | None:
    """Return a member as an input of an assignor, None if its subscription cannot be read."""
    data = member.metadata
    try:
        subscription = ConsumerProtocolSubscription.decode(data)
    except ProtocolError:
        try:
            # Topics and user data stand in front and are the same in all versions.
            subscription = ConsumerProtocolSubscription.decode(_VERSION_0 + data[2:])
        except ProtocolError:
            return None
    return GroupMember(
        member.member_id,
        tuple(subscription.topics),
        tuple(subscription.owned_partitions),
        subscription.generation_id,
        subscription.user_data,
        member.group_instance_id,
        subscription.rack_id,
    )


class LeaderAssignment:
    """Assignment of one generation; ``is_leading`` if this member leads the current one."""

    def __init__(self, context: ManagerContext, protocol: RebalanceProtocol) -> None:
        config = context.config
        self._group_id = config.group_id
        self._has_rack = bool(config.client_rack)
        self._subscriptions = context.subscriptions
        self._metadata = context.metadata
        self._protocol = protocol
        self.is_leading = False
        self._members: list[GroupMember] = []
        self._topics: frozenset[str] = frozenset()
        self._metadata_deadline_ms = 0
        self._elected_version = 0
        self._seen_cluster: Cluster | None = None
        self._snapshot: _Snapshot | None = None
        self._racks: dict[int, str | None] = {}
        self._reported: set[str] = set()

    # --- election ---------------------------------------------------------------------------------

    def elected(self, members: Iterable[JoinGroupResponseMember], now_ms: int) -> list[KafkaError]:
        """Begin to lead a generation; return the errors of members to report to the application."""
        self.is_leading = True
        self._snapshot = None
        readable: dict[str, GroupMember] = {}
        errors: list[KafkaError] = []
        for entry in members:
            if entry.member_id in readable:
                logger.warning("Group %s lists member %s twice", self._group_id, entry.member_id)
                continue
            member = read_member(entry)
            if member is None:
                errors += self._unreadable(entry.member_id)
                member = GroupMember(entry.member_id, ())
            readable[entry.member_id] = member
        self._reported &= readable.keys()
        self._members = list(readable.values())
        self._topics = frozenset(topic for member in self._members for topic in member.topics)
        self._elected_version = self._metadata.version
        self._metadata_deadline_ms = now_ms + METADATA_WAIT_MS
        self._subscriptions.set_group_topics(self._topics)
        if self._subscriptions.subscription_type is SubscriptionType.AUTO_TOPICS:
            self._metadata.set_topics(self._subscriptions.metadata_topics())
        if self._unknown_topics():
            self._metadata.request_update()
        return errors

    def _unreadable(self, member_id: str) -> list[KafkaError]:
        logger.warning(
            "Member %s of group %s sent a subscription that cannot be read: it is assigned nothing",
            member_id,
            self._group_id,
        )
        if member_id in self._reported:
            return []
        self._reported.add(member_id)
        return [
            InconsistentGroupProtocolError(
                f'member {member_id} of group "{self._group_id}" sent a subscription that cannot '
                "be read; it is assigned nothing",
                hint="check the client of that member; this consumer goes on",
            )
        ]

    def resign(self) -> None:
        """Stop leading."""
        if not self.is_leading:
            return
        self.is_leading = False
        self._members = []
        self._topics = frozenset()
        self._snapshot = None
        self._subscriptions.set_group_topics(())

    # --- assigning --------------------------------------------------------------------------------

    def ms_to_assignment(self, now_ms: int) -> int:
        """Return how long at most to wait for metadata of the group's topics; 0 to assign now."""
        metadata = self._metadata
        has_answer = metadata.version != self._elected_version and not metadata.is_update_needed
        if has_answer or not self._unknown_topics():
            return 0
        return max(0, self._metadata_deadline_ms - now_ms)

    def _unknown_topics(self) -> bool:
        topics = self._metadata.cluster.topics.keys() | self._metadata.topic_errors.keys()
        return not self._topics <= topics

    def assign(self, assignor: ConsumerPartitionAssignor) -> dict[str, bytes]:
        """Run the assignor; return the encoded assignment of every member.

        Raises
        ------
        KafkaError
            A user's assignor failed, or its result is not a valid assignment.
        """
        self.watch()
        cluster = self._metadata.cluster
        try:
            result = assignor.assign(cluster, tuple(self._members))
            checked = check_assignment(assignor, result, self._members, self._protocol)
            return {
                member_id: ConsumerProtocolAssignment(partitions).encode()
                for member_id, partitions in checked.items()
            }
        except KafkaError:
            raise
        except BaseException as error:  # a user's own code, which must not end the thread
            raise assignor_failed(assignor, "assign", self._group_id, error) from error

    # --- topic changes ----------------------------------------------------------------------------

    def watch(self) -> None:
        """Detect changes from now on: the assignment is for the topics as they are."""
        self._seen_cluster = self._metadata.cluster
        self._snapshot = self._snapshot_of(self._seen_cluster)

    def changed_topics(self, now_ms: int) -> list[str]:
        """Return the topics of the group that have changed since the assignment."""
        cluster = self._metadata.cluster
        if self._snapshot is None:
            if self.ms_to_assignment(now_ms) == 0:  # the assignment was kept, not made (KIP-814)
                self.watch()
            return []
        if cluster is self._seen_cluster:
            return []
        self._seen_cluster = cluster
        seen = self._snapshot_of(cluster)
        return sorted(
            topic
            for topic in self._snapshot.keys() | seen.keys()
            if self._snapshot.get(topic) != seen.get(topic)
        )

    def _snapshot_of(self, cluster: Cluster) -> _Snapshot:
        self._racks.update((node_id, node.rack) for node_id, node in cluster.brokers.items())
        return {
            name: tuple(self._racks_of(topic.partitions[p]) for p in sorted(topic.partitions))
            for name in self._topics
            if (topic := cluster.topics.get(name)) is not None
        }

    def _racks_of(self, partition: PartitionMetadata) -> frozenset[str | None]:
        if not self._has_rack:
            return frozenset()
        return frozenset(self._racks.get(node_id) for node_id in partition.replicas)

    def __repr__(self) -> str:
        return f"<LeaderAssignment leading={self.is_leading} members={len(self._members)}>"
