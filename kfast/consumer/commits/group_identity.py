"""GroupIdentity: who the consumer is in its group when it commits or looks up offsets.

Owns the rules that keep offsets of one assignment from being committed under another (C-08):

| the consumer | commits under |
|---|---|
| assigns by hand, or is subscribed to nothing | generation -1, no member id |
| is between JoinGroup and SyncGroup | nothing: RebalanceInProgressError (C-06) |
| subscribes and is not a member | nothing: CommitFailedError |
| is a member of a classic group | the generation of the snapshot, while that is the current one |
| is a member under KIP-848 | the newest epoch, while the assignment is that of the snapshot |

A KIP-848 epoch moves on without any partition being taken away, a classic generation does not.
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
    """Who the consumer was when the offsets to commit were taken.

    Parameters
    ----------
    identity : MemberIdentity
        As the group knew it.
    assignment_version : int
        `SubscriptionState.assignment_version` at that time.
    is_member : bool
        Whether the group counted it as a member.
    """

    identity: MemberIdentity
    assignment_version: int
    is_member: bool


class GroupIdentity:
    """Tells who the consumer is in its group.

    Parameters
    ----------
    config : ConsumerConfig
        ``group_id``, ``group_protocol``.
    subscriptions : SubscriptionState
        Whether partitions are assigned by hand, and whether the assignment has changed.

    Attributes
    ----------
    group_id : str
        Name of the group.
    membership : GroupMembership or None
        The place in the group; None when partitions are only ever assigned by hand.
    is_kip848 : bool
        Whether generations are member epochs.
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
        """Return who commits these partitions.

        Parameters
        ----------
        partitions : Iterable of TopicPartition
            What is to be committed, for the error.
        identity : MemberIdentity or None
            Who the consumer was when the offsets were taken, if that was earlier.

        Raises
        ------
        RebalanceInProgressError
            A JoinGroup is under way.
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
                raise self.moved_on(partitions)
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
            raise self.moved_on(partitions)
        return current

    def moved_on(self, partitions: Iterable[TopicPartition]) -> RebalanceInProgressError:
        """Return the error for offsets that were taken under an identity of the past."""
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
        """Whether a JoinGroup may be parked on the coordinator's connection."""
        return self.membership is not None and self.membership.is_rebalancing

    def for_fetch(self) -> MemberIdentity | None:
        """Return the KIP-848 member an OffsetFetch speaks for; None in a classic group."""
        if not self.is_kip848 or not self._is_automatic or self.membership is None:
            return None
        identity = self.membership.identity
        return None if identity is None or identity.generation_id < 0 else identity

    def is_another(self, identity: MemberIdentity) -> bool:
        """Return whether the consumer has a place in the group, and not under this identity."""
        current = None if self.membership is None else self.membership.identity
        return current is not None and current != identity

    def failed(self, error_code: int, identity: MemberIdentity, now_ms: int) -> None:
        """Tell the membership what a request under an identity was answered."""
        if self.membership is not None and identity.generation_id >= 0:
            self.membership.commit_failed(error_code, identity, now_ms)

    def __repr__(self) -> str:
        return f"<GroupIdentity {self.group_id} {self.membership!r}>"
