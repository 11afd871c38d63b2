"""Kafka's error codes: number, name, exception, what the client does about each, meaning.

Owns the protocol's error table. Flags as in the Java client: ``R`` retriable, ``M`` refresh the
metadata before the retry, ``C`` find the group coordinator before the retry. The exception of a
code is named after it: ``NOT_COORDINATOR`` is ``NotCoordinatorError``.

Error codes are needed below the protocol layer, by the exceptions that carry them, which is why
they are not in ``kfast.protocol``.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kfast.errors import exceptions
from kfast.errors import other_exceptions as other

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.errors.exceptions import KafkaError


class ErrorCode(IntEnum):
    """One error code of the protocol; the number on the wire.

    Attributes
    ----------
    code : int
        The number.
    exception : type
        The class raised for it (for ``NONE``, which is no error, ``KafkaError``).
    retriable, refresh_metadata, rediscover_coordinator : bool
        What the Java client does about it.
    meaning : str
        One line for people; may be empty.
    """

    code: int
    exception: type[KafkaError]
    retriable: bool
    refresh_metadata: bool
    rediscover_coordinator: bool
    meaning: str

    def __new__(
        cls, code: int, exception: type[KafkaError], flags: str = "", meaning: str = ""
    ) -> ErrorCode:
        """Make a member of one row of the table."""
        member = int.__new__(cls, code)
        member._value_ = member.code = code
        member.exception = exception
        member.retriable = "R" in flags
        member.refresh_metadata = "M" in flags
        member.rediscover_coordinator = "C" in flags
        member.meaning = meaning
        if code:
            exception.code = code
        return member

    # fmt: off
    UNKNOWN_SERVER_ERROR = (
        -1, exceptions.UnknownServerError, "",
        "the broker failed in a way it did not name",
    )
    NONE = 0, exceptions.KafkaError, "", "no error"
    OFFSET_OUT_OF_RANGE = 1, exceptions.OffsetOutOfRangeError, "", "the log holds no such offset"
    CORRUPT_MESSAGE = 2, exceptions.CorruptRecordError, "R", "the broker found a damaged batch"
    UNKNOWN_TOPIC_OR_PARTITION = (
        3, exceptions.UnknownTopicOrPartitionError, "RM",
        "the broker does not host this partition",
    )
    INVALID_FETCH_SIZE = (
        4, exceptions.InvalidFetchSizeError, "",
        "the requested fetch size is invalid",
    )
    LEADER_NOT_AVAILABLE = (
        5, exceptions.LeaderNotAvailableError, "RM",
        "the partition has no leader, an election is on",
    )
    NOT_LEADER_OR_FOLLOWER = (
        6, exceptions.NotLeaderOrFollowerError, "RM",
        "the partition has moved to another broker",
    )
    REQUEST_TIMED_OUT = 7, exceptions.RequestTimedOutError, "R", "the broker gave up on the request"
    BROKER_NOT_AVAILABLE = 8, other.BrokerNotAvailableError
    REPLICA_NOT_AVAILABLE = (
        9, exceptions.ReplicaNotAvailableError, "RM",
        "the replica is not available on this broker",
    )
    MESSAGE_TOO_LARGE = (
        10, exceptions.RecordTooLargeError, "",
        "the request holds a record too large for the broker",
    )
    STALE_CONTROLLER_EPOCH = 11, other.StaleControllerEpochError
    OFFSET_METADATA_TOO_LARGE = (
        12, exceptions.OffsetMetadataTooLargeError, "",
        "the text committed with an offset is too long",
    )
    NETWORK_EXCEPTION = 13, exceptions.NetworkError, "RM", "the broker lost a connection of its own"
    COORDINATOR_LOAD_IN_PROGRESS = (
        14, exceptions.CoordinatorLoadInProgressError, "R",
        "the coordinator is loading its state",
    )
    COORDINATOR_NOT_AVAILABLE = (
        15, exceptions.CoordinatorNotAvailableError, "RC",
        "the group has no coordinator at the moment",
    )
    NOT_COORDINATOR = (
        16, exceptions.NotCoordinatorError, "RC",
        "the group has moved to another coordinator",
    )
    INVALID_TOPIC_EXCEPTION = (
        17, exceptions.InvalidTopicError, "",
        "the topic's name is not allowed",
    )
    RECORD_LIST_TOO_LARGE = (
        18, exceptions.RecordBatchTooLargeError, "",
        "the batch is larger than a log segment",
    )
    NOT_ENOUGH_REPLICAS = 19, other.NotEnoughReplicasError, "R"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, other.NotEnoughReplicasAfterAppendError, "R"
    INVALID_REQUIRED_ACKS = 21, other.InvalidRequiredAcksError
    ILLEGAL_GENERATION = (
        22, exceptions.IllegalGenerationError, "",
        "the member's generation is out of date",
    )
    INCONSISTENT_GROUP_PROTOCOL = (
        23, exceptions.InconsistentGroupProtocolError, "",
        "the group's members have no assignor or protocol type in common",
    )
    INVALID_GROUP_ID = 24, exceptions.InvalidGroupIdError, "", "the group id is not allowed"
    UNKNOWN_MEMBER_ID = (
        25, exceptions.UnknownMemberIdError, "",
        "the coordinator does not know this member",
    )
    INVALID_SESSION_TIMEOUT = (
        26, exceptions.InvalidSessionTimeoutError, "",
        "session_timeout_ms is outside the broker's limits (6000 to 1800000 by default)",
    )
    REBALANCE_IN_PROGRESS = 27, exceptions.RebalanceInProgressError, "", "the group is rebalancing"
    INVALID_COMMIT_OFFSET_SIZE = (
        28, exceptions.InvalidCommitOffsetSizeError, "",
        "the commit is too large to be stored",
    )
    TOPIC_AUTHORIZATION_FAILED = (
        29, exceptions.TopicAuthorizationError, "",
        "the user may not do this with the topic",
    )
    GROUP_AUTHORIZATION_FAILED = (
        30, exceptions.GroupAuthorizationError, "",
        "the user may not use the group",
    )
    CLUSTER_AUTHORIZATION_FAILED = (
        31, exceptions.ClusterAuthorizationError, "",
        "the user may not do this with the cluster",
    )
    INVALID_TIMESTAMP = 32, other.InvalidTimestampError
    UNSUPPORTED_SASL_MECHANISM = (
        33, exceptions.UnsupportedSaslMechanismError, "",
        "the broker lacks this SASL mechanism",
    )
    ILLEGAL_SASL_STATE = (
        34, exceptions.IllegalSaslStateError, "",
        "the request does not fit the state of the log-in",
    )
    UNSUPPORTED_VERSION = (
        35, exceptions.UnsupportedVersionError, "",
        "the broker does not speak this version",
    )
    TOPIC_ALREADY_EXISTS = 36, other.TopicAlreadyExistsError
    INVALID_PARTITIONS = 37, other.InvalidPartitionsError
    INVALID_REPLICATION_FACTOR = 38, other.InvalidReplicationFactorError
    INVALID_REPLICA_ASSIGNMENT = 39, other.InvalidReplicaAssignmentError
    INVALID_CONFIG = 40, other.InvalidConfigError
    NOT_CONTROLLER = 41, other.NotControllerError, "R"
    INVALID_REQUEST = (
        42, exceptions.InvalidRequestError, "",
        "the broker found the request malformed",
    )
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        43, exceptions.UnsupportedForMessageFormatError, "",
        "the topic's record format is too old for this request",
    )
    POLICY_VIOLATION = 44, other.PolicyViolationError
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, other.OutOfOrderSequenceNumberError
    DUPLICATE_SEQUENCE_NUMBER = 46, other.DuplicateSequenceNumberError
    INVALID_PRODUCER_EPOCH = 47, other.InvalidProducerEpochError
    INVALID_TXN_STATE = 48, other.InvalidTxnStateError
    INVALID_PRODUCER_ID_MAPPING = 49, other.InvalidProducerIdMappingError
    INVALID_TRANSACTION_TIMEOUT = 50, other.InvalidTransactionTimeoutError
    CONCURRENT_TRANSACTIONS = 51, other.ConcurrentTransactionsError, "R"
    TRANSACTION_COORDINATOR_FENCED = 52, other.TransactionCoordinatorFencedError
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, other.TransactionalIdAuthorizationError
    SECURITY_DISABLED = 54, other.SecurityDisabledError
    OPERATION_NOT_ATTEMPTED = 55, other.OperationNotAttemptedError
    KAFKA_STORAGE_ERROR = 56, exceptions.KafkaStorageError, "RM", "a disk of the broker failed"
    LOG_DIR_NOT_FOUND = 57, other.LogDirNotFoundError
    SASL_AUTHENTICATION_FAILED = (
        58, exceptions.SaslAuthenticationError, "",
        "the log-in was refused",
    )
    UNKNOWN_PRODUCER_ID = 59, other.UnknownProducerIdError
    REASSIGNMENT_IN_PROGRESS = 60, other.ReassignmentInProgressError
    DELEGATION_TOKEN_AUTH_DISABLED = 61, other.DelegationTokenAuthDisabledError
    DELEGATION_TOKEN_NOT_FOUND = 62, other.DelegationTokenNotFoundError
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, other.DelegationTokenOwnerMismatchError
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, other.DelegationTokenRequestNotAllowedError
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, other.DelegationTokenAuthorizationError
    DELEGATION_TOKEN_EXPIRED = 66, other.DelegationTokenExpiredError
    INVALID_PRINCIPAL_TYPE = 67, other.InvalidPrincipalTypeError
    NON_EMPTY_GROUP = 68, other.NonEmptyGroupError
    GROUP_ID_NOT_FOUND = 69, exceptions.GroupIdNotFoundError, "", "the group does not exist"
    FETCH_SESSION_ID_NOT_FOUND = (
        70, exceptions.FetchSessionIdNotFoundError, "R",
        "the broker has dropped the fetch session",
    )
    INVALID_FETCH_SESSION_EPOCH = (
        71, exceptions.InvalidFetchSessionEpochError, "R",
        "the fetch session is out of step",
    )
    LISTENER_NOT_FOUND = (
        72, exceptions.ListenerNotFoundError, "RM",
        "the leader has no listener of this name",
    )
    TOPIC_DELETION_DISABLED = 73, other.TopicDeletionDisabledError
    FENCED_LEADER_EPOCH = (
        74, exceptions.FencedLeaderEpochError, "RM",
        "the request carries an older leader epoch",
    )
    UNKNOWN_LEADER_EPOCH = (
        75, exceptions.UnknownLeaderEpochError, "R",
        "the broker has not seen this leader epoch yet",
    )
    UNSUPPORTED_COMPRESSION_TYPE = (
        76, exceptions.UnsupportedCompressionTypeError, "",
        "the topic's compression is not supported by this version of the request",
    )
    STALE_BROKER_EPOCH = 77, other.StaleBrokerEpochError
    OFFSET_NOT_AVAILABLE = (
        78, exceptions.OffsetNotAvailableError, "R",
        "the new leader has not caught up yet",
    )
    MEMBER_ID_REQUIRED = (
        79, exceptions.MemberIdRequiredError, "",
        "the member must join again with the id given",
    )
    PREFERRED_LEADER_NOT_AVAILABLE = 80, other.PreferredLeaderNotAvailableError, "R"
    GROUP_MAX_SIZE_REACHED = (
        81, exceptions.GroupMaxSizeReachedError, "",
        "the group is full (group.max.size on the broker)",
    )
    FENCED_INSTANCE_ID = (
        82, exceptions.FencedInstanceIdError, "",
        "another consumer with the same group_instance_id has taken over",
    )
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, other.EligibleLeadersNotAvailableError, "R"
    ELECTION_NOT_NEEDED = 84, other.ElectionNotNeededError, "R"
    NO_REASSIGNMENT_IN_PROGRESS = 85, other.NoReassignmentInProgressError
    GROUP_SUBSCRIBED_TO_TOPIC = 86, other.GroupSubscribedToTopicError
    INVALID_RECORD = 87, exceptions.InvalidRecordError, "", "the broker refused the record"
    UNSTABLE_OFFSET_COMMIT = (
        88, exceptions.UnstableOffsetCommitError, "R",
        "a transaction with offsets of this group is still open",
    )
    THROTTLING_QUOTA_EXCEEDED = (
        89, exceptions.ThrottlingQuotaExceededError, "R",
        "the quota is used up",
    )
    PRODUCER_FENCED = 90, other.ProducerFencedError
    RESOURCE_NOT_FOUND = 91, other.ResourceNotFoundError
    DUPLICATE_RESOURCE = 92, other.DuplicateResourceError
    UNACCEPTABLE_CREDENTIAL = 93, other.UnacceptableCredentialError
    INCONSISTENT_VOTER_SET = 94, other.InconsistentVoterSetError
    INVALID_UPDATE_VERSION = 95, other.InvalidUpdateVersionError
    FEATURE_UPDATE_FAILED = 96, other.FeatureUpdateFailedError
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, other.PrincipalDeserializationFailureError
    SNAPSHOT_NOT_FOUND = 98, other.SnapshotNotFoundError
    POSITION_OUT_OF_RANGE = 99, other.PositionOutOfRangeError
    UNKNOWN_TOPIC_ID = (
        100, exceptions.UnknownTopicIdError, "RM",
        "the broker does not know this topic id",
    )
    DUPLICATE_BROKER_REGISTRATION = 101, other.DuplicateBrokerRegistrationError
    BROKER_ID_NOT_REGISTERED = 102, other.BrokerIdNotRegisteredError
    INCONSISTENT_TOPIC_ID = (
        103, exceptions.InconsistentTopicIdError, "RM",
        "the topic has been deleted or created anew",
    )
    INCONSISTENT_CLUSTER_ID = (
        104, exceptions.InconsistentClusterIdError, "",
        "the broker belongs to another cluster",
    )
    TRANSACTIONAL_ID_NOT_FOUND = 105, other.TransactionalIdNotFoundError
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106, exceptions.FetchSessionTopicIdError, "R",
        "the session mixes names and topic ids",
    )
    INELIGIBLE_REPLICA = 107, other.IneligibleReplicaError
    NEW_LEADER_ELECTED = 108, other.NewLeaderElectedError
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, other.OffsetMovedToTieredStorageError
    FENCED_MEMBER_EPOCH = (
        110, exceptions.FencedMemberEpochError, "",
        "the coordinator has fenced this member",
    )
    UNRELEASED_INSTANCE_ID = (
        111, exceptions.UnreleasedInstanceIdError, "",
        "another member with the same group_instance_id is still in the group",
    )
    UNSUPPORTED_ASSIGNOR = (
        112, exceptions.UnsupportedAssignorError, "",
        "the broker does not offer this assignor",
    )
    STALE_MEMBER_EPOCH = (
        113, exceptions.StaleMemberEpochError, "",
        "the member's epoch is out of date",
    )
    MISMATCHED_ENDPOINT_TYPE = 114, other.MismatchedEndpointTypeError
    UNSUPPORTED_ENDPOINT_TYPE = 115, other.UnsupportedEndpointTypeError
    UNKNOWN_CONTROLLER_ID = 116, other.UnknownControllerIdError
    UNKNOWN_SUBSCRIPTION_ID = (
        117, other.UnknownSubscriptionIdError, "",
        "the telemetry subscription is out of date",
    )
    TELEMETRY_TOO_LARGE = (
        118, other.TelemetryTooLargeError, "",
        "the telemetry report is too large",
    )
    INVALID_REGISTRATION = 119, other.InvalidRegistrationError
    TRANSACTION_ABORTABLE = 120, other.TransactionAbortableError
    INVALID_RECORD_STATE = 121, other.InvalidRecordStateError
    SHARE_SESSION_NOT_FOUND = 122, other.ShareSessionNotFoundError, "R"
    INVALID_SHARE_SESSION_EPOCH = 123, other.InvalidShareSessionEpochError, "R"
    FENCED_STATE_EPOCH = 124, other.FencedStateEpochError
    INVALID_VOTER_KEY = 125, other.InvalidVoterKeyError
    DUPLICATE_VOTER = 126, other.DuplicateVoterError
    VOTER_NOT_FOUND = 127, other.VoterNotFoundError
    INVALID_REGULAR_EXPRESSION = (
        128, exceptions.InvalidRegularExpressionError, "",
        "the pattern is not valid (RE2 syntax)",
    )
    REBOOTSTRAP_REQUIRED = (
        129, exceptions.RebootstrapRequiredError, "",
        "the cluster asks to be looked up again",
    )
    STREAMS_INVALID_TOPOLOGY = 130, other.StreamsInvalidTopologyError
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, other.StreamsInvalidTopologyEpochError
    STREAMS_TOPOLOGY_FENCED = 132, other.StreamsTopologyFencedError
    SHARE_SESSION_LIMIT_REACHED = 133, other.ShareSessionLimitReachedError, "R"
    # fmt: on


ERROR_TABLE: Final[Mapping[int, ErrorCode]] = MappingProxyType(
    {each.code: each for each in ErrorCode}
)
"""All error codes of Kafka 4.3, by number."""


def error_info(code: int) -> ErrorCode:
    """Return what is known of a code; one not in the table counts as UNKNOWN_SERVER_ERROR."""
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
    what = f"{info.name} (error {code})"
    if message is None:
        subject = "" if topic is None else topic if partition is None else f"{topic}-{partition}"
        broker = "the broker" if node is None else f"broker {node}"
        at = "" if offset is None else f" offset {offset}"
        message = (
            f"{subject}{at}: {broker} answered {what}" if subject else f"{broker} answered {what}"
        )
        cause = cause or info.meaning or None
    elif cause is None:
        cause = f"{info.meaning}: {what}" if info.meaning else what
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
