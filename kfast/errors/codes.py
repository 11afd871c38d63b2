"""Kafka's error codes: number, name, exception, what the client does about each, meaning.

Owns the protocol's error table. Flags as in the Java client: ``R`` retriable, ``M`` refresh the
metadata before the retry, ``C`` find the group coordinator before the retry. The exception of a
code is named after it: ``NOT_COORDINATOR`` is ``NotCoordinatorError``. Codes of producers,
administrators and brokers, which a consumer does not meet, have the name only: the class is made
when it is asked for.

Error codes are needed below the protocol layer, by the exceptions that carry them, which is why
they are not in ``kfast.protocol``.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kfast.errors import base, brokers, data, groups, security

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.errors.base import KafkaError

_CLASSES: Final[dict[str, type[KafkaError]]] = {}
"""The classes of codes, by name: those that are there, and those that were made."""


class ErrorCode(IntEnum):
    """One error code of the protocol; the number on the wire.

    Attributes
    ----------
    code : int
        The number.
    exception_name : str
        Name of `exception`, without making it.
    retriable, refresh_metadata, rediscover_coordinator : bool
        What the Java client does about it.
    meaning : str
        One line for people.
    """

    code: int
    exception_name: str
    retriable: bool
    refresh_metadata: bool
    rediscover_coordinator: bool
    meaning: str

    def __new__(
        cls, code: int, exception: type[KafkaError] | str, meaning: str, flags: str = ""
    ) -> ErrorCode:
        """Make a member of one row of the table; ``exception`` is a class, or the name of one."""
        member = int.__new__(cls, code)
        member._value_ = member.code = code
        if isinstance(exception, str):
            member.exception_name = exception
        else:
            member.exception_name = exception.__name__
            _CLASSES[exception.__name__] = exception
            if code:
                exception.code = code
        member.retriable = "R" in flags
        member.refresh_metadata = "M" in flags
        member.rediscover_coordinator = "C" in flags
        member.meaning = meaning
        return member

    @property
    def exception(self) -> type[KafkaError]:
        """The class raised for it (for ``NONE``, which is no error, ``KafkaError``)."""
        name = self.exception_name
        exception = _CLASSES.get(name)
        if exception is None:
            parent = base.RetriableError if self.retriable else base.KafkaError
            text = f"{self.meaning[0].upper()}{self.meaning[1:]}."
            content = {"__doc__": text, "__module__": "kfast.errors", "code": self.code}
            # Another thread may have made it meanwhile: there is one class of a name.
            exception = _CLASSES.setdefault(name, type(name, (parent,), content))
        return exception

    # fmt: off
    UNKNOWN_SERVER_ERROR = (
        -1, brokers.UnknownServerError, "the broker failed in a way it did not name"
    )
    NONE = 0, base.KafkaError, "no error"
    OFFSET_OUT_OF_RANGE = 1, data.OffsetOutOfRangeError, "the log holds no such offset"
    CORRUPT_MESSAGE = 2, data.CorruptRecordError, "the broker found a damaged batch", "R"
    UNKNOWN_TOPIC_OR_PARTITION = (
        3, brokers.UnknownTopicOrPartitionError, "the broker does not host this partition", "RM"
    )
    INVALID_FETCH_SIZE = 4, data.InvalidFetchSizeError, "the requested fetch size is invalid"
    LEADER_NOT_AVAILABLE = (
        5, brokers.LeaderNotAvailableError, "the partition has no leader, an election is on", "RM"
    )
    NOT_LEADER_OR_FOLLOWER = (
        6, brokers.NotLeaderOrFollowerError, "the partition has moved to another broker", "RM"
    )
    REQUEST_TIMED_OUT = 7, brokers.RequestTimedOutError, "the broker gave up on the request", "R"
    BROKER_NOT_AVAILABLE = 8, "BrokerNotAvailableError", "the broker is not available"
    REPLICA_NOT_AVAILABLE = (
        9, brokers.ReplicaNotAvailableError, "the replica is not available on this broker", "RM"
    )
    MESSAGE_TOO_LARGE = (
        10, data.RecordTooLargeError, "the request holds a record too large for the broker"
    )
    STALE_CONTROLLER_EPOCH = (
        11, "StaleControllerEpochError", "the request carries an older controller epoch"
    )
    OFFSET_METADATA_TOO_LARGE = (
        12, groups.OffsetMetadataTooLargeError, "the text committed with an offset is too long"
    )
    NETWORK_EXCEPTION = 13, brokers.NetworkError, "the broker lost a connection of its own", "RM"
    COORDINATOR_LOAD_IN_PROGRESS = (
        14, groups.CoordinatorLoadInProgressError, "the coordinator is loading its state", "R"
    )
    COORDINATOR_NOT_AVAILABLE = (
        15, groups.CoordinatorNotAvailableError, "the group has no coordinator at the moment", "RC"
    )
    NOT_COORDINATOR = (
        16, groups.NotCoordinatorError, "the group has moved to another coordinator", "RC"
    )
    INVALID_TOPIC_EXCEPTION = 17, data.InvalidTopicError, "the topic's name is not allowed"
    RECORD_LIST_TOO_LARGE = (
        18, data.RecordBatchTooLargeError, "the batch is larger than a log segment"
    )
    NOT_ENOUGH_REPLICAS = (
        19, "NotEnoughReplicasError",
        "fewer replicas are in sync than ``min.insync.replicas`` asks for", "R",
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20, "NotEnoughReplicasAfterAppendError",
        "the batch was written, but to fewer replicas than ``min.insync.replicas`` asks for", "R",
    )
    INVALID_REQUIRED_ACKS = (
        21, "InvalidRequiredAcksError",
        "the produce request asks for an unknown number of acknowledgements",
    )
    ILLEGAL_GENERATION = 22, groups.IllegalGenerationError, "the member's generation is out of date"
    INCONSISTENT_GROUP_PROTOCOL = (
        23, groups.InconsistentGroupProtocolError,
        "the group's members have no assignor or protocol type in common",
    )
    INVALID_GROUP_ID = 24, groups.InvalidGroupIdError, "the group id is not allowed"
    UNKNOWN_MEMBER_ID = 25, groups.UnknownMemberIdError, "the coordinator does not know this member"
    INVALID_SESSION_TIMEOUT = (
        26, groups.InvalidSessionTimeoutError,
        "session_timeout_ms is outside the broker's limits (6000 to 1800000 by default)",
    )
    REBALANCE_IN_PROGRESS = 27, groups.RebalanceInProgressError, "the group is rebalancing"
    INVALID_COMMIT_OFFSET_SIZE = (
        28, groups.InvalidCommitOffsetSizeError, "the commit is too large to be stored"
    )
    TOPIC_AUTHORIZATION_FAILED = (
        29, security.TopicAuthorizationError, "the user may not do this with the topic"
    )
    GROUP_AUTHORIZATION_FAILED = (
        30, security.GroupAuthorizationError, "the user may not use the group"
    )
    CLUSTER_AUTHORIZATION_FAILED = (
        31, security.ClusterAuthorizationError, "the user may not do this with the cluster"
    )
    INVALID_TIMESTAMP = (
        32, "InvalidTimestampError", "a record's timestamp is outside the topic's limits"
    )
    UNSUPPORTED_SASL_MECHANISM = (
        33, security.UnsupportedSaslMechanismError, "the broker lacks this SASL mechanism"
    )
    ILLEGAL_SASL_STATE = (
        34, security.IllegalSaslStateError, "the request does not fit the state of the log-in"
    )
    UNSUPPORTED_VERSION = (
        35, brokers.UnsupportedVersionError, "the broker does not speak this version"
    )
    TOPIC_ALREADY_EXISTS = 36, "TopicAlreadyExistsError", "the topic exists already"
    INVALID_PARTITIONS = 37, "InvalidPartitionsError", "the number of partitions is not allowed"
    INVALID_REPLICATION_FACTOR = (
        38, "InvalidReplicationFactorError",
        "the replication factor is not possible with the brokers there are",
    )
    INVALID_REPLICA_ASSIGNMENT = (
        39, "InvalidReplicaAssignmentError", "the replica assignment is not possible"
    )
    INVALID_CONFIG = 40, "InvalidConfigError", "a topic's or broker's configuration is not valid"
    NOT_CONTROLLER = 41, "NotControllerError", "the broker is not the controller", "R"
    INVALID_REQUEST = 42, brokers.InvalidRequestError, "the broker found the request malformed"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        43, data.UnsupportedForMessageFormatError,
        "the topic's record format is too old for this request",
    )
    POLICY_VIOLATION = 44, "PolicyViolationError", "a policy of the cluster forbids the request"
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45, "OutOfOrderSequenceNumberError", "the producer's sequence number is not the next one"
    )
    DUPLICATE_SEQUENCE_NUMBER = (
        46, "DuplicateSequenceNumberError", "the producer's sequence number has been seen before"
    )
    INVALID_PRODUCER_EPOCH = 47, "InvalidProducerEpochError", "the producer's epoch is out of date"
    INVALID_TXN_STATE = (
        48, "InvalidTxnStateError", "the request does not fit the state of the transaction"
    )
    INVALID_PRODUCER_ID_MAPPING = (
        49, "InvalidProducerIdMappingError", "the transactional id belongs to another producer id"
    )
    INVALID_TRANSACTION_TIMEOUT = (
        50, "InvalidTransactionTimeoutError",
        "the transaction timeout is longer than the broker allows",
    )
    CONCURRENT_TRANSACTIONS = (
        51, "ConcurrentTransactionsError",
        "another request of the same transaction is still being served", "R",
    )
    TRANSACTION_COORDINATOR_FENCED = (
        52, "TransactionCoordinatorFencedError", "a newer transaction coordinator has taken over"
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (
        53, "TransactionalIdAuthorizationError", "the user may not use the transactional id"
    )
    SECURITY_DISABLED = 54, "SecurityDisabledError", "the cluster has no authorizer"
    OPERATION_NOT_ATTEMPTED = (
        55, "OperationNotAttemptedError",
        "the broker did not attempt the operation, because another one of the request failed",
    )
    KAFKA_STORAGE_ERROR = 56, brokers.KafkaStorageError, "a disk of the broker failed", "RM"
    LOG_DIR_NOT_FOUND = 57, "LogDirNotFoundError", "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, security.SaslAuthenticationError, "the log-in was refused"
    UNKNOWN_PRODUCER_ID = (
        59, "UnknownProducerIdError", "the broker has dropped what it knew of the producer id"
    )
    REASSIGNMENT_IN_PROGRESS = (
        60, "ReassignmentInProgressError", "a reassignment of the partition is under way"
    )
    DELEGATION_TOKEN_AUTH_DISABLED = (
        61, "DelegationTokenAuthDisabledError", "delegation tokens are not enabled"
    )
    DELEGATION_TOKEN_NOT_FOUND = (
        62, "DelegationTokenNotFoundError", "the delegation token does not exist"
    )
    DELEGATION_TOKEN_OWNER_MISMATCH = (
        63, "DelegationTokenOwnerMismatchError", "the delegation token belongs to another principal"
    )
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64, "DelegationTokenRequestNotAllowedError",
        "delegation tokens are not allowed on this connection",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (
        65, "DelegationTokenAuthorizationError", "the user may not use delegation tokens this way"
    )
    DELEGATION_TOKEN_EXPIRED = 66, "DelegationTokenExpiredError", "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "InvalidPrincipalTypeError", "the principal type is not supported"
    NON_EMPTY_GROUP = 68, "NonEmptyGroupError", "the group has members"
    GROUP_ID_NOT_FOUND = 69, groups.GroupIdNotFoundError, "the group does not exist"
    FETCH_SESSION_ID_NOT_FOUND = (
        70, brokers.FetchSessionIdNotFoundError, "the broker has dropped the fetch session", "R"
    )
    INVALID_FETCH_SESSION_EPOCH = (
        71, brokers.InvalidFetchSessionEpochError, "the fetch session is out of step", "R"
    )
    LISTENER_NOT_FOUND = (
        72, brokers.ListenerNotFoundError, "the leader has no listener of this name", "RM"
    )
    TOPIC_DELETION_DISABLED = 73, "TopicDeletionDisabledError", "``delete.topic.enable`` is off"
    FENCED_LEADER_EPOCH = (
        74, brokers.FencedLeaderEpochError, "the request carries an older leader epoch", "RM"
    )
    UNKNOWN_LEADER_EPOCH = (
        75, brokers.UnknownLeaderEpochError, "the broker has not seen this leader epoch yet", "R"
    )
    UNSUPPORTED_COMPRESSION_TYPE = (
        76, data.UnsupportedCompressionTypeError,
        "the topic's compression is not supported by this version of the request",
    )
    STALE_BROKER_EPOCH = 77, "StaleBrokerEpochError", "the request carries an older broker epoch"
    OFFSET_NOT_AVAILABLE = (
        78, brokers.OffsetNotAvailableError, "the new leader has not caught up yet", "R"
    )
    MEMBER_ID_REQUIRED = (
        79, groups.MemberIdRequiredError, "the member must join again with the id given"
    )
    PREFERRED_LEADER_NOT_AVAILABLE = (
        80, "PreferredLeaderNotAvailableError",
        "the preferred replica cannot be elected leader", "R",
    )
    GROUP_MAX_SIZE_REACHED = (
        81, groups.GroupMaxSizeReachedError, "the group is full (group.max.size on the broker)"
    )
    FENCED_INSTANCE_ID = (
        82, groups.FencedInstanceIdError,
        "another consumer with the same group_instance_id has taken over",
    )
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (
        83, "EligibleLeadersNotAvailableError", "no replica can be elected leader", "R"
    )
    ELECTION_NOT_NEEDED = 84, "ElectionNotNeededError", "the partition needs no election", "R"
    NO_REASSIGNMENT_IN_PROGRESS = (
        85, "NoReassignmentInProgressError", "there is no reassignment to cancel"
    )
    GROUP_SUBSCRIBED_TO_TOPIC = (
        86, "GroupSubscribedToTopicError", "the group is subscribed to the topic"
    )
    INVALID_RECORD = 87, data.InvalidRecordError, "the broker refused the record"
    UNSTABLE_OFFSET_COMMIT = (
        88, groups.UnstableOffsetCommitError,
        "a transaction with offsets of this group is still open", "R",
    )
    THROTTLING_QUOTA_EXCEEDED = (
        89, brokers.ThrottlingQuotaExceededError, "the quota is used up", "R"
    )
    PRODUCER_FENCED = (
        90, "ProducerFencedError", "a newer producer with the same transactional id has taken over"
    )
    RESOURCE_NOT_FOUND = 91, "ResourceNotFoundError", "the resource does not exist"
    DUPLICATE_RESOURCE = 92, "DuplicateResourceError", "the request names a resource twice"
    UNACCEPTABLE_CREDENTIAL = 93, "UnacceptableCredentialError", "the credential is not acceptable"
    INCONSISTENT_VOTER_SET = (
        94, "InconsistentVoterSetError", "the voters of the quorum do not agree"
    )
    INVALID_UPDATE_VERSION = 95, "InvalidUpdateVersionError", "the feature level is not allowed"
    FEATURE_UPDATE_FAILED = 96, "FeatureUpdateFailedError", "the feature could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97, "PrincipalDeserializationFailureError", "the forwarded principal could not be read"
    )
    SNAPSHOT_NOT_FOUND = 98, "SnapshotNotFoundError", "the snapshot does not exist"
    POSITION_OUT_OF_RANGE = 99, "PositionOutOfRangeError", "the position is outside the snapshot"
    UNKNOWN_TOPIC_ID = (
        100, brokers.UnknownTopicIdError, "the broker does not know this topic id", "RM"
    )
    DUPLICATE_BROKER_REGISTRATION = (
        101, "DuplicateBrokerRegistrationError", "another broker is registered under this id"
    )
    BROKER_ID_NOT_REGISTERED = (
        102, "BrokerIdNotRegisteredError", "no broker is registered under this id"
    )
    INCONSISTENT_TOPIC_ID = (
        103, brokers.InconsistentTopicIdError, "the topic has been deleted or created anew", "RM"
    )
    INCONSISTENT_CLUSTER_ID = (
        104, brokers.InconsistentClusterIdError, "the broker belongs to another cluster"
    )
    TRANSACTIONAL_ID_NOT_FOUND = (
        105, "TransactionalIdNotFoundError", "the transactional id does not exist"
    )
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106, brokers.FetchSessionTopicIdError, "the session mixes names and topic ids", "R"
    )
    INELIGIBLE_REPLICA = 107, "IneligibleReplicaError", "the replica cannot be in sync"
    NEW_LEADER_ELECTED = (
        108, "NewLeaderElectedError", "a new leader was elected while the request was being served"
    )
    OFFSET_MOVED_TO_TIERED_STORAGE = (
        109, "OffsetMovedToTieredStorageError", "the offset has moved to tiered storage"
    )
    FENCED_MEMBER_EPOCH = (
        110, groups.FencedMemberEpochError, "the coordinator has fenced this member"
    )
    UNRELEASED_INSTANCE_ID = (
        111, groups.UnreleasedInstanceIdError,
        "another member with the same group_instance_id is still in the group",
    )
    UNSUPPORTED_ASSIGNOR = (
        112, groups.UnsupportedAssignorError, "the broker does not offer this assignor"
    )
    STALE_MEMBER_EPOCH = 113, groups.StaleMemberEpochError, "the member's epoch is out of date"
    MISMATCHED_ENDPOINT_TYPE = (
        114, "MismatchedEndpointTypeError", "the request came to a listener of another kind"
    )
    UNSUPPORTED_ENDPOINT_TYPE = (
        115, "UnsupportedEndpointTypeError", "this kind of listener is not supported"
    )
    UNKNOWN_CONTROLLER_ID = 116, "UnknownControllerIdError", "the controller id is not known"
    UNKNOWN_SUBSCRIPTION_ID = (
        117, "UnknownSubscriptionIdError", "the telemetry subscription is out of date"
    )
    TELEMETRY_TOO_LARGE = 118, "TelemetryTooLargeError", "the telemetry report is too large"
    INVALID_REGISTRATION = 119, "InvalidRegistrationError", "the broker's registration is not valid"
    TRANSACTION_ABORTABLE = 120, "TransactionAbortableError", "the transaction must be aborted"
    INVALID_RECORD_STATE = (
        121, "InvalidRecordStateError", "the record of a share group is in another state"
    )
    SHARE_SESSION_NOT_FOUND = (
        122, "ShareSessionNotFoundError", "the broker has dropped the share session", "R"
    )
    INVALID_SHARE_SESSION_EPOCH = (
        123, "InvalidShareSessionEpochError", "the share session is out of step", "R"
    )
    FENCED_STATE_EPOCH = 124, "FencedStateEpochError", "the request carries an older state epoch"
    INVALID_VOTER_KEY = 125, "InvalidVoterKeyError", "the voter's key is not valid"
    DUPLICATE_VOTER = 126, "DuplicateVoterError", "the voter is in the set already"
    VOTER_NOT_FOUND = 127, "VoterNotFoundError", "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = (
        128, groups.InvalidRegularExpressionError, "the pattern is not valid (RE2 syntax)"
    )
    REBOOTSTRAP_REQUIRED = (
        129, brokers.RebootstrapRequiredError, "the cluster asks to be looked up again"
    )
    STREAMS_INVALID_TOPOLOGY = (
        130, "StreamsInvalidTopologyError", "the topology of the Streams group is not valid"
    )
    STREAMS_INVALID_TOPOLOGY_EPOCH = (
        131, "StreamsInvalidTopologyEpochError", "the epoch of the Streams topology is not valid"
    )
    STREAMS_TOPOLOGY_FENCED = (
        132, "StreamsTopologyFencedError", "the Streams topology is out of date"
    )
    SHARE_SESSION_LIMIT_REACHED = (
        133, "ShareSessionLimitReachedError",
        "the broker has no room for another share session", "R",
    )
    # fmt: on


ERROR_TABLE: Final[Mapping[int, ErrorCode]] = MappingProxyType({row.code: row for row in ErrorCode})
"""All error codes of Kafka 4.3, by number."""


def error_info(code: int) -> ErrorCode:
    """Return the row of a code; one not in the table counts as UNKNOWN_SERVER_ERROR."""
    return ERROR_TABLE.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


def exception_for(
    code: int,
    message: str | None = None,
    *,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
    node: int | str | None = None,
    cause: str | None = None,
    found: str | None = None,
    hint: str | None = None,
    **extra: object,
) -> KafkaError:
    """Return the exception for an error code that a broker sent.

    Parameters
    ----------
    code : int
        The code; an unknown one gives ``UnknownServerError`` and keeps its number.
    message : str or None
        First line of the message. None composes one from the topic, the partition and the node.
    topic, partition, offset, node, cause, found, hint, **extra
        As in ``KafkaError``; a missing ``cause`` is filled with the code's name and meaning.
    """
    info = error_info(code)
    answer = f"{info.name} (error {code})"
    if message is None:
        subject = "" if topic is None else topic if partition is None else f"{topic}-{partition}"
        broker = "the broker" if node is None else f"broker {node}"
        at = "" if offset is None else f" offset {offset}"
        message = (
            f"{subject}{at}: {broker} answered {answer}"
            if subject
            else f"{broker} answered {answer}"
        )
        cause = cause or info.meaning or None
    elif cause is None:
        cause = f"{info.meaning}: {answer}" if info.meaning else answer
    return info.exception(
        message,
        cause=cause,
        found=found,
        hint=hint,
        topic=topic,
        partition=partition,
        offset=offset,
        node=node,
        **{"code": code, **extra},
    )
