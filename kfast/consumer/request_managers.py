"""GroupParts: everything a consumer with a ``group_id`` has beside its other machinery.

Owns the construction of the coordinator finder, commits and the membership of either protocol from
one configuration, and the order in which the network thread polls them. It holds no semantics of
its own. Of the two protocols it imports the one that is used, and nothing imports this module
before there is a ``group_id``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfast.consumer.commits.commit_request_manager import Commits
from kfast.consumer.group.coordinator_finder import CoordinatorFinder

if TYPE_CHECKING:
    from kfast._clock import Clock
    from kfast.client.metadata import Metadata
    from kfast.client.request_manager import RequestManager
    from kfast.config import ConsumerConfig
    from kfast.consumer.group.kip848.heartbeat import GroupConnections
    from kfast.consumer.group.membership import GroupMembership, StepPort
    from kfast.consumer.pending_errors import ErrorPort
    from kfast.consumer.subscription_state import SubscriptionState


@dataclass(frozen=True, slots=True, eq=False)
class GroupParts:
    """The parts of a group member.

    Parameters
    ----------
    membership : GroupMembership
        The place in the group; idle while partitions are assigned by hand.
    commits : Commits
        Stores and looks up offsets.
    managers : tuple of RequestManager
        To be polled by the network thread in this order, after the one for positions.
    """

    membership: GroupMembership
    commits: Commits
    managers: tuple[RequestManager, ...]

    @classmethod
    def of(
        cls,
        config: ConsumerConfig,
        subscriptions: SubscriptionState,
        metadata: Metadata,
        connections: GroupConnections,
        fetch_buffer: ErrorPort,
        port: StepPort,
        clock: Clock,
    ) -> GroupParts:
        """Return the parts of a consumer with a ``group_id``.

        Raises
        ------
        ConfigurationError
            ``partition_assignment_strategy`` cannot be used.
        """
        finder = CoordinatorFinder(config, metadata, connections, clock)
        membership: GroupMembership
        if config.group_protocol == "consumer":
            from kfast.consumer.group.kip848.membership import ConsumerMembership  # noqa: PLC0415

            membership = ConsumerMembership(
                config, finder, subscriptions, metadata, connections, port, fetch_buffer, clock
            )
        else:
            from kfast.consumer.group.assignors.strategies import resolve_assignors  # noqa: PLC0415
            from kfast.consumer.group.classic.membership import ClassicMembership  # noqa: PLC0415

            membership = ClassicMembership(
                config,
                finder,
                subscriptions,
                metadata,
                connections,
                port,
                resolve_assignors(config.partition_assignment_strategy),
                fetch_buffer,
                clock,
            )
        commits = Commits(config, finder, subscriptions, metadata, connections, clock)
        commits.membership = membership
        # What asks for the coordinator comes before the finder, so that it is looked for at once.
        return cls(membership, commits, (membership, commits, finder))

    def __repr__(self) -> str:
        return f"<GroupParts {self.membership!r}>"
