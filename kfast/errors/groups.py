"""Exceptions of consumer groups: coordinators, members, offsets that are committed."""

from __future__ import annotations

from kfast.errors.base import KafkaError, RetriableError


class CoordinatorError(RetriableError):
    """The group's coordinator must be found again before the retry."""


class CoordinatorLoadInProgressError(RetriableError):
    """The coordinator is still loading the group."""


class CoordinatorNotAvailableError(CoordinatorError):
    """The group has no coordinator at the moment."""


class NotCoordinatorError(CoordinatorError):
    """The broker is not, or no longer, the group's coordinator."""


class UnstableOffsetCommitError(RetriableError):
    """A transaction that holds offsets of this group is still open (KIP-447)."""


class CommitFailedError(KafkaError):
    """Offsets were not committed: the member is no longer in the group's current generation."""


class RebalanceInProgressError(KafkaError):
    """The group is rebalancing: call ``poll`` and commit again."""


class FencedInstanceIdError(KafkaError):
    """A newer consumer with the same ``group_instance_id`` has taken over; fatal."""


class FencedMemberEpochError(KafkaError):
    """The coordinator has fenced the member: it joins again by itself (KIP-848)."""


class StaleMemberEpochError(KafkaError):
    """The member's epoch is not its current one (KIP-848)."""


class UnreleasedInstanceIdError(KafkaError):
    """Another consumer with the same ``group_instance_id`` is still in the group; fatal."""


class UnsupportedAssignorError(KafkaError):
    """The coordinator does not offer ``group_remote_assignor``; fatal."""


class InvalidRegularExpressionError(KafkaError):
    """The brokers cannot read the ``SubscriptionPattern`` (RE2 syntax); fatal."""


class IllegalGenerationError(KafkaError):
    """The member's generation is not the group's current one."""


class UnknownMemberIdError(KafkaError):
    """The coordinator does not know the member."""


class InconsistentGroupProtocolError(KafkaError):
    """The members of the group have no assignor in common."""

    hint = "give all members of the group one common partition_assignment_strategy"


class InvalidGroupIdError(KafkaError):
    """The group id is not allowed."""


class InvalidSessionTimeoutError(KafkaError):
    """``session_timeout_ms`` is outside the broker's limits."""


class GroupMaxSizeReachedError(KafkaError):
    """The group has as many members as the broker allows."""


class GroupIdNotFoundError(KafkaError):
    """The group does not exist."""


class OffsetMetadataTooLargeError(KafkaError):
    """The text committed with an offset is too long."""


class InvalidCommitOffsetSizeError(KafkaError):
    """The offsets to commit are too large to be stored."""


class MemberIdRequiredError(KafkaError):
    """The group coordinator assigned a member id to join with (KIP-394)."""
