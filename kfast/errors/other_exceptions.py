"""Exceptions for the error codes of producers, administrators and brokers.

A consumer does not meet them; they are here so that every code of Kafka's error table has a class
of its own, under the name that follows from the code's.
"""

from __future__ import annotations

from kfast.errors.exceptions import KafkaError, RetriableError


class BrokerNotAvailableError(KafkaError):
    """The broker is not available."""


class StaleControllerEpochError(KafkaError):
    """The request carries an older controller epoch."""


class NotEnoughReplicasError(RetriableError):
    """Fewer replicas are in sync than ``min.insync.replicas`` asks for."""


class NotEnoughReplicasAfterAppendError(RetriableError):
    """The batch was written, but to fewer replicas than ``min.insync.replicas`` asks for."""


class InvalidRequiredAcksError(KafkaError):
    """The produce request asks for an unknown number of acknowledgements."""


class InvalidTimestampError(KafkaError):
    """A record's timestamp is outside the topic's limits."""


class TopicAlreadyExistsError(KafkaError):
    """The topic exists already."""


class InvalidPartitionsError(KafkaError):
    """The number of partitions is not allowed."""


class InvalidReplicationFactorError(KafkaError):
    """The replication factor is not possible with the brokers there are."""


class InvalidReplicaAssignmentError(KafkaError):
    """The replica assignment is not possible."""


class InvalidConfigError(KafkaError):
    """A topic's or broker's configuration is not valid."""


class NotControllerError(RetriableError):
    """The broker is not the controller."""


class PolicyViolationError(KafkaError):
    """A policy of the cluster forbids the request."""


class OutOfOrderSequenceNumberError(KafkaError):
    """The producer's sequence number is not the next one."""


class DuplicateSequenceNumberError(KafkaError):
    """The producer's sequence number has been seen before."""


class InvalidProducerEpochError(KafkaError):
    """The producer's epoch is out of date."""


class InvalidTxnStateError(KafkaError):
    """The request does not fit the state of the transaction."""


class InvalidProducerIdMappingError(KafkaError):
    """The transactional id belongs to another producer id."""


class InvalidTransactionTimeoutError(KafkaError):
    """The transaction timeout is longer than the broker allows."""


class ConcurrentTransactionsError(RetriableError):
    """Another request of the same transaction is still being served."""


class TransactionCoordinatorFencedError(KafkaError):
    """A newer transaction coordinator has taken over."""


class TransactionalIdAuthorizationError(KafkaError):
    """The user may not use the transactional id."""


class SecurityDisabledError(KafkaError):
    """The cluster has no authorizer."""


class OperationNotAttemptedError(KafkaError):
    """The broker did not attempt the operation, because another one of the request failed."""


class LogDirNotFoundError(KafkaError):
    """The broker has no such log directory."""


class UnknownProducerIdError(KafkaError):
    """The broker has dropped what it knew of the producer id."""


class ReassignmentInProgressError(KafkaError):
    """A reassignment of the partition is under way."""


class DelegationTokenAuthDisabledError(KafkaError):
    """Delegation tokens are not enabled."""


class DelegationTokenNotFoundError(KafkaError):
    """The delegation token does not exist."""


class DelegationTokenOwnerMismatchError(KafkaError):
    """The delegation token belongs to another principal."""


class DelegationTokenRequestNotAllowedError(KafkaError):
    """Delegation tokens are not allowed on this connection."""


class DelegationTokenAuthorizationError(KafkaError):
    """The user may not use delegation tokens this way."""


class DelegationTokenExpiredError(KafkaError):
    """The delegation token has expired."""


class InvalidPrincipalTypeError(KafkaError):
    """The principal type is not supported."""


class NonEmptyGroupError(KafkaError):
    """The group has members."""


class TopicDeletionDisabledError(KafkaError):
    """``delete.topic.enable`` is off."""


class StaleBrokerEpochError(KafkaError):
    """The request carries an older broker epoch."""


class PreferredLeaderNotAvailableError(RetriableError):
    """The preferred replica cannot be elected leader."""


class EligibleLeadersNotAvailableError(RetriableError):
    """No replica can be elected leader."""


class ElectionNotNeededError(RetriableError):
    """The partition needs no election."""


class NoReassignmentInProgressError(KafkaError):
    """There is no reassignment to cancel."""


class GroupSubscribedToTopicError(KafkaError):
    """The group is subscribed to the topic."""


class ProducerFencedError(KafkaError):
    """A newer producer with the same transactional id has taken over."""


class ResourceNotFoundError(KafkaError):
    """The resource does not exist."""


class DuplicateResourceError(KafkaError):
    """The request names a resource twice."""


class UnacceptableCredentialError(KafkaError):
    """The credential is not acceptable."""


class InconsistentVoterSetError(KafkaError):
    """The voters of the quorum do not agree."""


class InvalidUpdateVersionError(KafkaError):
    """The feature level is not allowed."""


class FeatureUpdateFailedError(KafkaError):
    """The feature could not be updated."""


class PrincipalDeserializationFailureError(KafkaError):
    """The forwarded principal could not be read."""


class SnapshotNotFoundError(KafkaError):
    """The snapshot does not exist."""


class PositionOutOfRangeError(KafkaError):
    """The position is outside the snapshot."""


class DuplicateBrokerRegistrationError(KafkaError):
    """Another broker is registered under this id."""


class BrokerIdNotRegisteredError(KafkaError):
    """No broker is registered under this id."""


class TransactionalIdNotFoundError(KafkaError):
    """The transactional id does not exist."""


class IneligibleReplicaError(KafkaError):
    """The replica cannot be in sync."""


class NewLeaderElectedError(KafkaError):
    """A new leader was elected while the request was being served."""


class OffsetMovedToTieredStorageError(KafkaError):
    """The offset has moved to tiered storage."""


class MismatchedEndpointTypeError(KafkaError):
    """The request came to a listener of another kind."""


class UnsupportedEndpointTypeError(KafkaError):
    """This kind of listener is not supported."""


class UnknownControllerIdError(KafkaError):
    """The controller id is not known."""


class InvalidRegistrationError(KafkaError):
    """The broker's registration is not valid."""


class TransactionAbortableError(KafkaError):
    """The transaction must be aborted."""


class InvalidRecordStateError(KafkaError):
    """The record of a share group is in another state."""


class ShareSessionNotFoundError(RetriableError):
    """The broker has dropped the share session."""


class InvalidShareSessionEpochError(RetriableError):
    """The share session is out of step."""


class FencedStateEpochError(KafkaError):
    """The request carries an older state epoch."""


class InvalidVoterKeyError(KafkaError):
    """The voter's key is not valid."""


class DuplicateVoterError(KafkaError):
    """The voter is in the set already."""


class VoterNotFoundError(KafkaError):
    """The voter is not in the set."""


class StreamsInvalidTopologyError(KafkaError):
    """The topology of the Streams group is not valid."""


class StreamsInvalidTopologyEpochError(KafkaError):
    """The epoch of the Streams topology is not valid."""


class StreamsTopologyFencedError(KafkaError):
    """The Streams topology is out of date."""


class ShareSessionLimitReachedError(RetriableError):
    """The broker has no room for another share session."""


class UnknownSubscriptionIdError(KafkaError):
    """The telemetry subscription is out of date (KIP-714)."""


class TelemetryTooLargeError(KafkaError):
    """The telemetry report is too large (KIP-714)."""
