"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup messages: requests are built, responses checked.

Owns the contents of the messages, and no state of the membership: `ClassicMembership` decides what
is sent when. Network thread only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from kfast.consumer.group.classic.errors import assignor_failed
from kfast.consumer.group.membership import MemberIdentity
from kfast.errors import InconsistentGroupProtocolError, ProtocolError
from kfast.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kfast.protocol.messages import leave_group
from kfast.protocol.messages.heartbeat import HeartbeatRequest
from kfast.protocol.messages.join_group import (
    LONGEST_REASON,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from kfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kfast.config import ConsumerConfig
    from kfast.consumer.group.assignors.assignor import ConsumerPartitionAssignor
    from kfast.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
    from kfast.protocol.messages.sync_group import SyncGroupResponse
    from kfast.types import TopicPartition

JOIN_SLACK_MS: Final = 5_000
"""Request timeout of JoinGroup beyond the rebalance timeout."""

STATIC_JOIN_VERSION: Final = 5
"""First JoinGroup with ``group_instance_id`` (KIP-345)."""
STATIC_MEMBER_VERSION: Final = 3
"""First SyncGroup and Heartbeat with it."""


@dataclass(frozen=True, slots=True)
class JoinedGroup:
    """Content of a JoinGroup response without error.

    With ``skips_assignment`` the member leads, but the group keeps its assignment (KIP-814).
    ``members`` is the whole group for the leader, else empty.
    """

    identity: MemberIdentity
    assignor: ConsumerPartitionAssignor
    is_leader: bool
    skips_assignment: bool
    members: Sequence[JoinGroupResponseMember]


class GroupRequests:
    """Builds the requests and reads the responses of one member.

    ``join_timeout_ms`` is the request timeout of JoinGroup, which brokers answer when all members
    have joined. ``join_version`` and ``member_version`` are the lowest versions of JoinGroup and of
    the other requests that have all fields in use.
    """

    def __init__(
        self, config: ConsumerConfig, assignors: Sequence[ConsumerPartitionAssignor]
    ) -> None:
        self._group_id = cast("str", config.group_id)
        self._instance_id = config.group_instance_id
        self._session_timeout_ms = config.session_timeout_ms
        self._rebalance_timeout_ms = config.max_poll_interval_ms
        self._rack_id = config.client_rack or None
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self.assignor_names = tuple(self._assignors)
        is_static = config.group_instance_id is not None
        self.join_version = STATIC_JOIN_VERSION if is_static else None
        self.member_version = STATIC_MEMBER_VERSION if is_static else None
        self.join_timeout_ms = max(
            config.request_timeout_ms, config.max_poll_interval_ms + JOIN_SLACK_MS
        )

    # --- requests ---------------------------------------------------------------------------------

    def join(
        self,
        member_id: str,
        generation_id: int,
        topics: frozenset[str],
        owned: Collection[TopicPartition],
        reason: str | None,
    ) -> JoinGroupRequest:
        """Return the request to join with this subscription."""
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=assignor.name,
                    metadata=ConsumerProtocolSubscription(
                        sorted(topics),
                        assignor.subscription_user_data(topics),
                        sorted(owned),
                        generation_id,
                        self._rack_id,
                    ).encode(),
                )
                for assignor in self._assignors.values()
            ],
            reason=reason and reason[:LONGEST_REASON],
        )

    def sync(
        self,
        identity: MemberIdentity,
        assignor: ConsumerPartitionAssignor,
        assignments: Mapping[str, bytes],
    ) -> SyncGroupRequest:
        """Return the request for the assignment; only the leader submits assignments."""
        return SyncGroupRequest(
            group_id=self._group_id,
            generation_id=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=assignor.name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in assignments.items()
            ],
        )

    def heartbeat(self, identity: MemberIdentity) -> HeartbeatRequest:
        """Return the heartbeat of a member."""
        return HeartbeatRequest(
            group_id=self._group_id,
            generation_id=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=self._instance_id,
        )

    def leave(
        self, member_id: str, reason: str, *, has_list: bool
    ) -> leave_group.LeaveGroupRequest:
        """Return the request to leave; ``has_list`` for versions that name members in a list."""
        if not has_list:
            return leave_group.LeaveGroupRequest(group_id=self._group_id, member_id=member_id)
        member = leave_group.MemberIdentity(
            member_id=member_id,
            group_instance_id=self._instance_id,
            reason=reason[:LONGEST_REASON],
        )
        return leave_group.LeaveGroupRequest(group_id=self._group_id, members=[member])

    # --- responses --------------------------------------------------------------------------------

    def joined(self, response: JoinGroupResponse) -> JoinedGroup:
        """Return the content of a JoinGroup response without error.

        Raises
        ------
        InconsistentGroupProtocolError
            Its protocol type or assignor is not one of this member's.
        ProtocolError
            It has no generation or no member id.
        """
        self._check_protocol("JoinGroup", response.protocol_type)
        assignor = self._assignors.get(response.protocol_name or "")
        if assignor is None:
            raise self._inconsistent("JoinGroup", response.protocol_name)
        if response.generation_id < 0 or not response.member_id:
            raise ProtocolError(
                f'the answer to JoinGroup of group "{self._group_id}" lacks a generation or id',
                found=f'generation {response.generation_id}, member id "{response.member_id}"',
            )
        is_leader = response.leader == response.member_id
        return JoinedGroup(
            MemberIdentity(
                self._group_id, response.generation_id, response.member_id, self._instance_id
            ),
            assignor,
            is_leader,
            is_leader and response.skip_assignment,
            response.members if is_leader else (),
        )

    def synced(
        self, response: SyncGroupResponse, assignor: ConsumerPartitionAssignor
    ) -> ConsumerProtocolAssignment:
        """Return the assignment in a SyncGroup response without error.

        Raises
        ------
        InconsistentGroupProtocolError
            Its protocol type or assignor is another one.
        ProtocolError
            It is malformed.
        """
        self._check_protocol("SyncGroup", response.protocol_type)
        if response.protocol_name is not None and response.protocol_name != assignor.name:
            raise self._inconsistent("SyncGroup", response.protocol_name)
        return ConsumerProtocolAssignment.decode(response.assignment)

    def notify_assignor(
        self,
        assignor: ConsumerPartitionAssignor,
        assignment: ConsumerProtocolAssignment,
        generation_id: int,
    ) -> None:
        """Call ``on_assignment`` of an assignor; an exception becomes a `KafkaError`."""
        try:
            assignor.on_assignment(assignment.partitions, generation_id, assignment.user_data)
        except BaseException as error:  # a user's own code, which must not end the thread
            raise assignor_failed(assignor, "on_assignment", self._group_id, error) from error

    def _check_protocol(self, exchange: str, protocol_type: str | None) -> None:
        if protocol_type is not None and protocol_type != PROTOCOL_TYPE:
            raise InconsistentGroupProtocolError(
                f'"{self._group_id}" is not a group of consumers',
                found=f'{exchange} answered protocol type "{protocol_type}"',
                hint="set another group_id",
            )

    def _inconsistent(self, exchange: str, name: str | None) -> InconsistentGroupProtocolError:
        return InconsistentGroupProtocolError(
            f'group "{self._group_id}" chose the assignor "{name}", which is not in '
            f"partition_assignment_strategy={list(self.assignor_names)}",
            found=f"it is in the answer to {exchange}",
        )

    def __repr__(self) -> str:
        return f"<GroupRequests {self._group_id} {self.assignor_names}>"
