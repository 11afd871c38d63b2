"""GroupIdentity: identity under which a consumer commits and fetches offsets.

Owns the rules that keep offsets of one assignment from being committed under another (C-08):

| the consumer | commits under |
|---|---|
| assigns by hand, or is subscribed to nothing | generation -1, no member id |
| is between JoinGroup and SyncGroup | not at all: RebalanceInProgressError (C-06) |
| subscribes and is not a member | not at all: CommitFailedError |
| is a member of a classic group | the generation of the snapshot, while that is the current one |
| is a member under KIP-848 | the newest epoch, while the assignment is that of the snapshot |

A KIP-848 epoch may advance without a partition being revoked, a classic generation may not.
Sans-IO, network thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfast.consumer.commits.errors import not_a_member, rebalance_in_progress
from kfast.consumer.group.membership import MemberIdentity
from kfast.consumer.subscription import SubscriptionType
from kfast.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfast.config import ConsumerConfig
    from kfast.consumer.group.membership import GroupMembership
    from kfast.consumer.subscription_state import SubscriptionState
    from kfast.errors import RebalanceInProgressError
    from kfast.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Identity and `SubscriptionState.assignment_version` when the offsets were taken."""

    identity: MemberIdentity
    assignment_version: int
    is_member: bool


class GroupIdentity:
    """The current identity of a consumer in its group.

    ``membership`` is None when partitions are only ever assigned by hand. With ``is_kip848``
    generations are member epochs.
    """

    __slots__ = ("_max_poll_interval_ms", "_subscriptions", "group_id", "is_kip848", "membership")

    def __init__(self, config: ConsumerConfig, subscriptions: SubscriptionState) -> None:
        if config.group_id is None:
            raise IllegalStateError("without group_id there is nothing to commit to")
        self.group_id = config.group_id
        self.is_kip848 = config.group_protocol == "consumer"
        self.membership: GroupMembership | None = None
        self._subscriptions = subscriptions
        self._max_poll_interval_ms = config.max_poll_interval_ms

    def snapshot(
        self,
        partitions: Iterable[TopicPartition],
        identity: MemberIdentity | None = None,
    ) -> Snapshot:
        """Return the identity to commit under; ``identity`` is an earlier one of the offsets.

        Raises
        ------
        RebalanceInProgressError
            A JoinGroup or SyncGroup is in flight.
        CommitFailedError
            The consumer subscribes to topics and is not a member of the group.
        """
        version = self._subscriptions.assignment_version
        if not self._is_automatic:
            return Snapshot(MemberIdentity(self.group_id), version, is_member=False)
        current = identity or self._current(partitions)
        return Snapshot(current, version, is_member=True)

    def to_send(self, snapshot: Snapshot, partitions: Iterable[TopicPartition]) -> MemberIdentity:
        """Return the identity to commit under now.

        Raises
        ------
        RebalanceInProgressError
            The group has rebalanced since the snapshot, or is about to.
        CommitFailedError
            The consumer is no longer a member.
        """
        if not snapshot.is_member:
            if self._is_automatic:
                raise self.outdated_error(partitions)
            return snapshot.identity
        current = self._current(partitions)
        taken = snapshot.identity
        if self.is_kip848:
            version = self._subscriptions.assignment_version
            is_valid = current.member_id == taken.member_id and (
                current.generation_id == taken.generation_id
                or version == snapshot.assignment_version
            )
        else:
            is_valid = current == taken
        if not is_valid:
            raise self.outdated_error(partitions)
        return current

    def outdated_error(self, partitions: Iterable[TopicPartition]) -> RebalanceInProgressError:
        """Return the error for offsets that were taken under an earlier identity."""
        return rebalance_in_progress(self.group_id, partitions, has_ended=True)

    def _current(self, partitions: Iterable[TopicPartition]) -> MemberIdentity:
        membership = self.membership
        if membership is not None and membership.is_rebalancing:
            raise rebalance_in_progress(self.group_id, partitions)
        identity = None if membership is None else membership.identity
        if identity is None or identity.generation_id < 0:
            raise not_a_member(self.group_id, partitions, self._max_poll_interval_ms)
        return identity

    @property
    def _is_automatic(self) -> bool:
        if self.membership is None:
            return False
        kind = self._subscriptions.subscription_type
        return kind not in {SubscriptionType.NONE, SubscriptionType.USER_ASSIGNED}

    @property
    def is_rebalancing(self) -> bool:
        """Whether a JoinGroup may be in flight on the coordinator's connection."""
        return self.membership is not None and self.membership.is_rebalancing

    def member_for_fetch(self) -> MemberIdentity | None:
        """Return the KIP-848 member that sends an OffsetFetch; None in a classic group."""
        if not self.is_kip848 or not self._is_automatic or self.membership is None:
            return None
        identity = self.membership.identity
        return None if identity is None or identity.generation_id < 0 else identity

    def has_changed_from(self, identity: MemberIdentity) -> bool:
        """Return whether the consumer is a member under another identity."""
        current = None if self.membership is None else self.membership.identity
        return current is not None and current != identity

    def commit_failed(self, error_code: int, identity: MemberIdentity, now_ms: int) -> None:
        """Report the error code of a request under an identity to the membership."""
        if self.membership is not None and identity.generation_id >= 0:
            self.membership.commit_failed(error_code, identity, now_ms)

    def __repr__(self) -> str:
        return f"<GroupIdentity {self.group_id} {self.membership!r}>"
