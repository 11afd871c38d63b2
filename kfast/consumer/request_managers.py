"""RequestManagers: makes the request managers of one consumer and orders them.

The one place that wires the sans-IO graph of a consumer, for the product and for the tests. The
order is that in which the network thread polls them:

* assignment before positions, and positions before fetching, so that one turn does all three;
* managers that need the group coordinator before the finder, so that it is looked up at once;
* metadata last: every other manager may have requested an update in the same turn, which is then
  sent in it. If it were first, the request would be sent after the next wait for I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kfast.client.metadata_manager import MetadataManager
from kfast.consumer.fetch.fetcher import Fetcher
from kfast.consumer.positions.offsets_request_manager import OffsetsRequestManager
from kfast.consumer.topic_assignment import TopicAssignmentManager
from kfast.consumer.topic_lookup import TopicLookupManager

if TYPE_CHECKING:
    from kfast.client.request_manager import RequestManager
    from kfast.consumer.admin.admin_requests import AdminRequests
    from kfast.consumer.commits.commit_request_manager import CommitRequestManager
    from kfast.consumer.fetch.buffer import FetchBuffer
    from kfast.consumer.group.coordinator_finder import CoordinatorFinder
    from kfast.consumer.group.membership import GroupMembership, StepPort
    from kfast.consumer.manager_context import ManagerContext


@dataclass(frozen=True, slots=True, eq=False)
class GroupManagers:
    """The request managers of a consumer with a ``group_id``.

    ``membership`` is idle while partitions are assigned by hand.
    """

    membership: GroupMembership
    commits: CommitRequestManager
    finder: CoordinatorFinder

    @classmethod
    def of(cls, context: ManagerContext, port: StepPort) -> GroupManagers:
        """Return the managers of a group member; imports the one group protocol that is used.

        Raises
        ------
        ConfigurationError
            ``partition_assignment_strategy`` cannot be used.
        """
        # Half of a consumer's modules, which one without a group never loads.
        from kfast.consumer.commits.commit_request_manager import CommitRequestManager  # noqa: PLC0415
        from kfast.consumer.group.coordinator_finder import CoordinatorFinder  # noqa: PLC0415

        finder = CoordinatorFinder(context)
        membership: GroupMembership
        if context.config.group_protocol == "consumer":
            from kfast.consumer.group.kip848.membership import (  # noqa: PLC0415
                ConsumerMembership,
            )

            membership = ConsumerMembership(context, finder, port)
        else:
            from kfast.consumer.group.assignors.strategies import (  # noqa: PLC0415
                resolve_assignors,
            )
            from kfast.consumer.group.classic.membership import (  # noqa: PLC0415
                ClassicMembership,
            )

            assignors = resolve_assignors(context.config.partition_assignment_strategy)
            membership = ClassicMembership(context, finder, port, assignors)
        commits = CommitRequestManager(context, finder)
        commits.membership = membership
        return cls(membership, commits, finder)


@dataclass(frozen=True, slots=True, eq=False)
class RequestManagers:
    """All request managers of one consumer.

    ``group`` is None without a ``group_id``, ``admin`` unless it is for administrative look-ups.
    """

    assignment: TopicAssignmentManager
    lookups: TopicLookupManager
    offsets: OffsetsRequestManager
    group: GroupManagers | None
    admin: AdminRequests | None
    fetcher: Fetcher
    metadata: MetadataManager

    @classmethod
    def of(
        cls,
        context: ManagerContext,
        fetch_buffer: FetchBuffer,
        port: StepPort | None = None,
        *,
        for_admin: bool = False,
    ) -> RequestManagers:
        """Return the managers of a consumer; ``port`` is needed with a ``group_id`` only.

        Raises
        ------
        ConfigurationError
            ``partition_assignment_strategy`` cannot be used.
        """
        group = admin = None
        if for_admin:
            from kfast.consumer.admin.admin_requests import AdminRequests  # noqa: PLC0415

            admin = AdminRequests(context)
        if context.config.group_id is not None:
            group = GroupManagers.of(context, cast("StepPort", port))
        return cls(
            TopicAssignmentManager(context),
            TopicLookupManager(context),
            OffsetsRequestManager(context, None if group is None else group.commits),
            group,
            admin,
            Fetcher(context, fetch_buffer),
            MetadataManager(context.config, context.metadata),
        )

    @property
    def in_order(self) -> tuple[RequestManager, ...]:
        """The managers in the order in which they are polled."""
        group = self.group
        members = () if group is None else (group.membership, group.commits, group.finder)
        admin = () if self.admin is None else (self.admin,)
        return (
            self.assignment,
            self.lookups,
            self.offsets,
            *members,
            *admin,
            self.fetcher,
            self.metadata,
        )
