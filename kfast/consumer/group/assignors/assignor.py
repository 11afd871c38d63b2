"""ConsumerPartitionAssignor: contract of the assignors of the classic group protocol.

Every member of a classic group sends the names of its assignors; the broker chooses one that all
members have, and one member, the leader, runs it for the whole group. Runs on the network thread:
no I/O, no waiting.

An assignor of your own::

    class FirstTakesAll(kfast.ConsumerPartitionAssignor):
        name = "first-takes-all"

        def assign(self, cluster, members):
            shares = {member.member_id: [] for member in members}
            for topic in {topic for member in members for topic in member.topics}:
                first = min(m.member_id for m in members if topic in m.topics)
                shares[first] += cluster.topic_partitions(topic)
            return shares

    kfast.KafkaConsumer("orders", group_id="g", partition_assignment_strategy=[FirstTakesAll], ...)
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfast.client.cluster import Cluster
    from kfast.types import TopicPartition

NO_GENERATION: Final = -1


class RebalanceProtocol(Enum):
    """What members do with their partitions while the group rebalances (KIP-429).

    ``EAGER``: every member revokes all of them before it joins. ``COOPERATIVE``: members keep
    them, revoke only those that the new assignment lacks, and join again so that these can be
    assigned to their new owners.

    Examples
    --------
    >>> kfast.RebalanceProtocol.EAGER in kfast.StickyAssignor().supported_protocols
    True
    """

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of the group, as an input of the assignor.

    Parameters
    ----------
    member_id : str
        The id the coordinator gave it.
    topics : tuple of str
        The topics it is subscribed to.
    owned_partitions : tuple of TopicPartition
        Partitions it claims to own when it joins. They may be out of date, contradict another
        member's or not exist. Empty under the eager protocol.
    generation_id : int
        The generation it owned them in, -1 if unknown.
    user_data : bytes or None
        What its assignor's ``subscription_user_data`` returned.
    group_instance_id : str or None
        Id of a static member (KIP-345).
    rack_id : str or None
        Rack of its client (``client_rack``, KIP-881).

    Examples
    --------
    >>> kfast.GroupMember("m-1", ("orders",)).topics
    ('orders',)
    """

    member_id: str
    topics: tuple[str, ...]
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    user_data: bytes | None = None
    group_instance_id: str | None = None
    rack_id: str | None = None


class ConsumerPartitionAssignor(Protocol):
    """Assigns the partitions of the subscribed topics to the members of a group.

    Derive from it, or write a class with the same members. ``partition_assignment_strategy`` takes
    the class (kfast creates one instance per consumer, without arguments) or an instance (do not
    give one instance to two consumers). All methods are called on kfast's network thread and must
    return soon: while they run, nothing is fetched and no heartbeat is sent.

    Examples
    --------
    >>> class Backwards(kfast.RangeAssignor):
    ...     name = "backwards"
    ...     def assign(self, cluster, members):
    ...         return super().assign(cluster, members[::-1])
    >>> consumer = kfast.KafkaConsumer(
    ...     "orders",
    ...     bootstrap_servers="localhost:9092",
    ...     group_id="billing",
    ...     partition_assignment_strategy=[Backwards],
    ... )
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name by which all members of the group know it, such as ``"range"``."""

    @property
    def supported_protocols(self) -> frozenset[RebalanceProtocol]:
        """The rebalance protocols it can be used with; the group runs the highest common one.

        An assignor that supports ``COOPERATIVE`` must not assign a partition to a member while
        another one owns it (``GroupMember.owned_partitions``): it leaves the partition out, and
        assigns it in the next rebalance, when the owner has revoked it. kfast refuses any other
        result.
        """
        return frozenset({RebalanceProtocol.EAGER})

    def subscription_user_data(
        self,
        topics: frozenset[str],  # noqa: ARG002 - for overriding methods
    ) -> bytes | None:
        """Return bytes for the leader's assignor, as ``GroupMember.user_data``.

        Called before each JoinGroup. The default is None: no user data.
        """
        return None

    @abstractmethod
    def assign(
        self, cluster: Cluster, members: Sequence[GroupMember]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Return the partitions of every member. Called on the leader only.

        Parameters
        ----------
        cluster : Cluster
            Topics, partitions, replicas and brokers (with racks) as known now. A subscribed topic
            that does not exist is missing from it.
        members : sequence of GroupMember
            The whole group, no id twice, in no particular order.

        Returns
        -------
        mapping of str to sequence of TopicPartition
            By member id. A member left out gets no partition. No partition may be assigned twice,
            nor to a member that is not subscribed to its topic.
        """

    def on_assignment(
        self,
        partitions: Sequence[TopicPartition],  # noqa: ARG002 - for overriding methods
        generation_id: int,  # noqa: ARG002
        user_data: bytes | None,  # noqa: ARG002
    ) -> None:
        """Receive the assignment of this member. Called on every member.

        Parameters
        ----------
        partitions : sequence of TopicPartition
            All partitions of the member.
        generation_id : int
            The generation of the assignment.
        user_data : bytes or None
            User data of the leader's assignor; leaders of kfast send None.
        """
        # A body: without one a type checker takes the method for one that has to be overridden.
        return


Assignor = ConsumerPartitionAssignor
