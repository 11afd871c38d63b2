"""Kafka's error codes as data.

Owns the numbers, names and flags of the protocol's error table, with what each means in one line.
Holds no classes: ``kfast.errors`` turns the rows into exceptions. Flags as in the Java client:
``R`` retriable, ``M`` refresh metadata before the retry, ``C`` find the coordinator again. The
exception's name follows from the code's name unless the last column gives another.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class ErrorRow(NamedTuple):
    """One line of the protocol's error table."""

    code: int
    name: str
    flags: str = ""
    meaning: str = ""
    exception: str = ""


CONSUMER_ERRORS: Final = (
    ErrorRow(-1, "UNKNOWN_SERVER_ERROR", "", "the broker failed in a way it did not name"),
    ErrorRow(0, "NONE", "", "no error", "KafkaError"),
    ErrorRow(1, "OFFSET_OUT_OF_RANGE", "", "the log holds no such offset"),
    ErrorRow(2, "CORRUPT_MESSAGE", "R", "the broker found a damaged batch", "CorruptRecordError"),
    ErrorRow(3, "UNKNOWN_TOPIC_OR_PARTITION", "RM", "the broker does not host this partition"),
    ErrorRow(4, "INVALID_FETCH_SIZE", "", "the requested fetch size is invalid"),
    ErrorRow(5, "LEADER_NOT_AVAILABLE", "RM", "the partition has no leader, an election is on"),
    ErrorRow(6, "NOT_LEADER_OR_FOLLOWER", "RM", "the partition has moved to another broker"),
    ErrorRow(7, "REQUEST_TIMED_OUT", "R", "the broker gave up on the request"),
    ErrorRow(9, "REPLICA_NOT_AVAILABLE", "RM", "the replica is not available on this broker"),
    ErrorRow(10, "MESSAGE_TOO_LARGE", "", "the request holds a record too large for the broker",
             "RecordTooLargeError"),
    ErrorRow(12, "OFFSET_METADATA_TOO_LARGE", "", "the text committed with an offset is too long"),
    ErrorRow(13, "NETWORK_EXCEPTION", "RM", "the broker lost a connection of its own"),
    ErrorRow(14, "COORDINATOR_LOAD_IN_PROGRESS", "R", "the coordinator is loading its state"),
    ErrorRow(15, "COORDINATOR_NOT_AVAILABLE", "RC", "the group has no coordinator at the moment"),
    ErrorRow(16, "NOT_COORDINATOR", "RC", "the group has moved to another coordinator"),
    ErrorRow(17, "INVALID_TOPIC_EXCEPTION", "", "the topic's name is not allowed"),
    ErrorRow(18, "RECORD_LIST_TOO_LARGE", "", "the batch is larger than a log segment",
             "RecordBatchTooLargeError"),
    ErrorRow(22, "ILLEGAL_GENERATION", "", "the member's generation is out of date"),
    ErrorRow(23, "INCONSISTENT_GROUP_PROTOCOL", "",
             "the group's members have no assignor or protocol type in common"),
    ErrorRow(24, "INVALID_GROUP_ID", "", "the group id is not allowed"),
    ErrorRow(25, "UNKNOWN_MEMBER_ID", "", "the coordinator does not know this member"),
    ErrorRow(26, "INVALID_SESSION_TIMEOUT", "",
             "session_timeout_ms is outside the broker's limits (6000 to 1800000 by default)"),
    ErrorRow(27, "REBALANCE_IN_PROGRESS", "", "the group is rebalancing"),
    ErrorRow(28, "INVALID_COMMIT_OFFSET_SIZE", "", "the commit is too large to be stored"),
    ErrorRow(29, "TOPIC_AUTHORIZATION_FAILED", "", "the user may not do this with the topic",
             "TopicAuthorizationError"),
    ErrorRow(30, "GROUP_AUTHORIZATION_FAILED", "", "the user may not use the group",
             "GroupAuthorizationError"),
    ErrorRow(31, "CLUSTER_AUTHORIZATION_FAILED", "", "the user may not do this with the cluster",
             "ClusterAuthorizationError"),
    ErrorRow(33, "UNSUPPORTED_SASL_MECHANISM", "", "the broker lacks this SASL mechanism"),
    ErrorRow(34, "ILLEGAL_SASL_STATE", "", "the request does not fit the state of the log-in"),
    ErrorRow(35, "UNSUPPORTED_VERSION", "", "the broker does not speak this version"),
    ErrorRow(42, "INVALID_REQUEST", "", "the broker found the request malformed"),
    ErrorRow(43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", "",
             "the topic's record format is too old for this request"),
    ErrorRow(56, "KAFKA_STORAGE_ERROR", "RM", "a disk of the broker failed"),
    ErrorRow(58, "SASL_AUTHENTICATION_FAILED", "", "the log-in was refused",
             "SaslAuthenticationError"),
    ErrorRow(69, "GROUP_ID_NOT_FOUND", "", "the group does not exist"),
    ErrorRow(70, "FETCH_SESSION_ID_NOT_FOUND", "R", "the broker has dropped the fetch session"),
    ErrorRow(71, "INVALID_FETCH_SESSION_EPOCH", "R", "the fetch session is out of step"),
    ErrorRow(72, "LISTENER_NOT_FOUND", "RM", "the leader has no listener of this name"),
    ErrorRow(74, "FENCED_LEADER_EPOCH", "RM", "the request carries an older leader epoch"),
    ErrorRow(75, "UNKNOWN_LEADER_EPOCH", "R", "the broker has not seen this leader epoch yet"),
    ErrorRow(76, "UNSUPPORTED_COMPRESSION_TYPE", "",
             "the topic's compression is not supported by this version of the request"),
    ErrorRow(78, "OFFSET_NOT_AVAILABLE", "R", "the new leader has not caught up yet"),
    ErrorRow(79, "MEMBER_ID_REQUIRED", "", "the member must join again with the id given"),
    ErrorRow(81, "GROUP_MAX_SIZE_REACHED", "",
             "the group is full (group.max.size on the broker)"),
    ErrorRow(82, "FENCED_INSTANCE_ID", "",
             "another consumer with the same group_instance_id has taken over"),
    ErrorRow(87, "INVALID_RECORD", "", "the broker refused the record"),
    ErrorRow(88, "UNSTABLE_OFFSET_COMMIT", "R",
             "a transaction with offsets of this group is still open"),
    ErrorRow(89, "THROTTLING_QUOTA_EXCEEDED", "R", "the quota is used up"),
    ErrorRow(100, "UNKNOWN_TOPIC_ID", "RM", "the broker does not know this topic id"),
    ErrorRow(103, "INCONSISTENT_TOPIC_ID", "RM", "the topic has been deleted or created anew"),
    ErrorRow(104, "INCONSISTENT_CLUSTER_ID", "", "the broker belongs to another cluster"),
    ErrorRow(106, "FETCH_SESSION_TOPIC_ID_ERROR", "R", "the session mixes names and topic ids"),
    ErrorRow(110, "FENCED_MEMBER_EPOCH", "", "the coordinator has fenced this member"),
    ErrorRow(111, "UNRELEASED_INSTANCE_ID", "",
             "another member with the same group_instance_id is still in the group"),
    ErrorRow(112, "UNSUPPORTED_ASSIGNOR", "", "the broker does not offer this assignor"),
    ErrorRow(113, "STALE_MEMBER_EPOCH", "", "the member's epoch is out of date"),
    ErrorRow(117, "UNKNOWN_SUBSCRIPTION_ID", "", "the telemetry subscription is out of date"),
    ErrorRow(118, "TELEMETRY_TOO_LARGE", "", "the telemetry report is too large"),
    ErrorRow(128, "INVALID_REGULAR_EXPRESSION", "", "the pattern is not valid (RE2 syntax)"),
    ErrorRow(129, "REBOOTSTRAP_REQUIRED", "", "the cluster asks to be looked up again"),
)  # fmt: skip
"""Codes a consumer can meet."""

OTHER_ERRORS: Final = (
    ErrorRow(8, "BROKER_NOT_AVAILABLE"),
    ErrorRow(11, "STALE_CONTROLLER_EPOCH"),
    ErrorRow(19, "NOT_ENOUGH_REPLICAS", "R"),
    ErrorRow(20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "R"),
    ErrorRow(21, "INVALID_REQUIRED_ACKS"),
    ErrorRow(32, "INVALID_TIMESTAMP"),
    ErrorRow(36, "TOPIC_ALREADY_EXISTS"),
    ErrorRow(37, "INVALID_PARTITIONS"),
    ErrorRow(38, "INVALID_REPLICATION_FACTOR"),
    ErrorRow(39, "INVALID_REPLICA_ASSIGNMENT"),
    ErrorRow(40, "INVALID_CONFIG"),
    ErrorRow(41, "NOT_CONTROLLER", "R"),
    ErrorRow(44, "POLICY_VIOLATION"),
    ErrorRow(45, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
    ErrorRow(46, "DUPLICATE_SEQUENCE_NUMBER"),
    ErrorRow(47, "INVALID_PRODUCER_EPOCH"),
    ErrorRow(48, "INVALID_TXN_STATE"),
    ErrorRow(49, "INVALID_PRODUCER_ID_MAPPING"),
    ErrorRow(50, "INVALID_TRANSACTION_TIMEOUT"),
    ErrorRow(51, "CONCURRENT_TRANSACTIONS", "R"),
    ErrorRow(52, "TRANSACTION_COORDINATOR_FENCED"),
    ErrorRow(
        53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "", "", "TransactionalIdAuthorizationError"
    ),
    ErrorRow(54, "SECURITY_DISABLED"),
    ErrorRow(55, "OPERATION_NOT_ATTEMPTED"),
    ErrorRow(57, "LOG_DIR_NOT_FOUND"),
    ErrorRow(59, "UNKNOWN_PRODUCER_ID"),
    ErrorRow(60, "REASSIGNMENT_IN_PROGRESS"),
    ErrorRow(61, "DELEGATION_TOKEN_AUTH_DISABLED"),
    ErrorRow(62, "DELEGATION_TOKEN_NOT_FOUND"),
    ErrorRow(63, "DELEGATION_TOKEN_OWNER_MISMATCH"),
    ErrorRow(64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"),
    ErrorRow(
        65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", "", "", "DelegationTokenAuthorizationError"
    ),
    ErrorRow(66, "DELEGATION_TOKEN_EXPIRED"),
    ErrorRow(67, "INVALID_PRINCIPAL_TYPE"),
    ErrorRow(68, "NON_EMPTY_GROUP"),
    ErrorRow(73, "TOPIC_DELETION_DISABLED"),
    ErrorRow(77, "STALE_BROKER_EPOCH"),
    ErrorRow(80, "PREFERRED_LEADER_NOT_AVAILABLE", "R"),
    ErrorRow(83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", "R"),
    ErrorRow(84, "ELECTION_NOT_NEEDED", "R"),
    ErrorRow(85, "NO_REASSIGNMENT_IN_PROGRESS"),
    ErrorRow(86, "GROUP_SUBSCRIBED_TO_TOPIC"),
    ErrorRow(90, "PRODUCER_FENCED"),
    ErrorRow(91, "RESOURCE_NOT_FOUND"),
    ErrorRow(92, "DUPLICATE_RESOURCE"),
    ErrorRow(93, "UNACCEPTABLE_CREDENTIAL"),
    ErrorRow(94, "INCONSISTENT_VOTER_SET"),
    ErrorRow(95, "INVALID_UPDATE_VERSION"),
    ErrorRow(96, "FEATURE_UPDATE_FAILED"),
    ErrorRow(97, "PRINCIPAL_DESERIALIZATION_FAILURE"),
    ErrorRow(98, "SNAPSHOT_NOT_FOUND"),
    ErrorRow(99, "POSITION_OUT_OF_RANGE"),
    ErrorRow(101, "DUPLICATE_BROKER_REGISTRATION"),
    ErrorRow(102, "BROKER_ID_NOT_REGISTERED"),
    ErrorRow(105, "TRANSACTIONAL_ID_NOT_FOUND"),
    ErrorRow(107, "INELIGIBLE_REPLICA"),
    ErrorRow(108, "NEW_LEADER_ELECTED"),
    ErrorRow(109, "OFFSET_MOVED_TO_TIERED_STORAGE"),
    ErrorRow(114, "MISMATCHED_ENDPOINT_TYPE"),
    ErrorRow(115, "UNSUPPORTED_ENDPOINT_TYPE"),
    ErrorRow(116, "UNKNOWN_CONTROLLER_ID"),
    ErrorRow(119, "INVALID_REGISTRATION"),
    ErrorRow(120, "TRANSACTION_ABORTABLE"),
    ErrorRow(121, "INVALID_RECORD_STATE"),
    ErrorRow(122, "SHARE_SESSION_NOT_FOUND", "R"),
    ErrorRow(123, "INVALID_SHARE_SESSION_EPOCH", "R"),
    ErrorRow(124, "FENCED_STATE_EPOCH"),
    ErrorRow(125, "INVALID_VOTER_KEY"),
    ErrorRow(126, "DUPLICATE_VOTER"),
    ErrorRow(127, "VOTER_NOT_FOUND"),
    ErrorRow(130, "STREAMS_INVALID_TOPOLOGY"),
    ErrorRow(131, "STREAMS_INVALID_TOPOLOGY_EPOCH"),
    ErrorRow(132, "STREAMS_TOPOLOGY_FENCED"),
    ErrorRow(133, "SHARE_SESSION_LIMIT_REACHED", "R"),
)
"""Codes meant for producers, administrators and brokers: only their name is of use here."""


def exception_name(row: ErrorRow) -> str:
    """Return the name of a row's class: ``NOT_COORDINATOR`` gives ``NotCoordinatorError``."""
    if row.exception:
        return row.exception
    words = [word for word in row.name.split("_") if word not in {"ERROR", "EXCEPTION"}]
    return "".join(word.capitalize() for word in words) + "Error"
