"""What an assignor is: the part of a group member that shares the partitions out.

Owns the contract only. In a group under the classic protocol every member names the assignors it
has; the broker picks a name all of them know and one member, the leader, runs that assignor for the
whole group. Runs on the network thread: no IO, no waiting.

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

    ``EAGER``: every member gives up all of them before it joins. ``COOPERATIVE``: members keep
    them, give up only what the new assignment takes away, and join once more so that it can be
    handed to its new owner.
    """

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of the group, as the leader knows it.

    Parameters
    ----------
    member_id : str
        The id the coordinator gave it.
    topics : tuple of str
        What it is subscribed to.
    owned_partitions : tuple of TopicPartition
        What it says it owned when it joined. A claim: it may be out of date, contradict another
        member's or name partitions that do not exist. Empty under the eager protocol.
    generation_id : int
        The generation it owned them in, -1 when it did not say.
    user_data : bytes or None
        What its assignor's ``subscription_user_data`` returned.
    group_instance_id : str or None
        Its name, if it is a static member (KIP-345).
    rack_id : str or None
        Where it runs (``client_rack``, KIP-881).
    """

    member_id: str
    topics: tuple[str, ...]
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    user_data: bytes | None = None
    group_instance_id: str | None = None
    rack_id: str | None = None


class ConsumerPartitionAssignor(Protocol):
    """Shares the partitions of the subscribed topics among the members of a group.

    Derive from it, or write a class with the same members. ``partition_assignment_strategy`` takes
    the class (kfast creates one instance per consumer, without arguments) or an instance (do not
    give one instance to two consumers). All methods are called on kfast's network thread and must
    return soon: while they run, nothing is fetched and no heartbeat is sent.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name by which all members of the group know it, such as ``"range"``."""

    @property
    def supported_protocols(self) -> frozenset[RebalanceProtocol]:
        """The rebalance protocols it can be used with; the group runs the highest common one.

        An assignor that supports ``COOPERATIVE`` must not hand a partition to a member while
        another one owns it (``GroupMember.owned_partitions``): it leaves the partition out, and
        hands it over in the rebalance that follows when the owner has given it up. kfast refuses
        any other result.
        """
        return frozenset({RebalanceProtocol.EAGER})

    def subscription_user_data(
        self,
        topics: frozenset[str],  # noqa: ARG002 - for those who override it
    ) -> bytes | None:
        """Return bytes for the leader's assignor to find in ``GroupMember.user_data``.

        Called each time the member is about to join. The default is None: nothing.
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
            By member id. A member left out gets nothing. No partition may be given twice, nor to a
            member that is not subscribed to its topic.
        """

    def on_assignment(
        self,
        partitions: Sequence[TopicPartition],  # noqa: ARG002 - for those who override it
        generation_id: int,  # noqa: ARG002
        user_data: bytes | None,  # noqa: ARG002
    ) -> None:
        """Take note of what this member was assigned. Called on every member.

        Parameters
        ----------
        partitions : sequence of TopicPartition
            All that it has now.
        generation_id : int
            The generation it has them in.
        user_data : bytes or None
            What a foreign leader's assignor sent along; kfast's own leaders send None.
        """
        # A body: without one a type checker takes the method for one that has to be overridden.
        return


Assignor = ConsumerPartitionAssignor
