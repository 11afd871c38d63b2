"""The names of kafka-python's exceptions, as of its versions 2 and 3.

Each is another name of the class that kfast raises in that case, so that a program ported from
kafka-python changes the import and nothing else. Names that both have are not repeated here.
``tests/unit/test_kafka_python_names.py`` lists the ones left out, and why.
"""

from __future__ import annotations

from kfast.errors import exceptions as _own
from kfast.errors import other_exceptions as _other

# --- no broker ------------------------------------------------------------------------------------
NoBrokersAvailable = _own.KafkaConnectionError
KafkaUnavailableError = _own.KafkaConnectionError
NodeNotReadyError = _own.KafkaConnectionError
IncompatibleBrokerVersion = _own.UnsupportedVersionError
UnrecognizedBrokerVersion = _own.UnsupportedVersionError
MetadataEmptyBrokerList = _own.InvalidMetadataError
StaleMetadata = _own.InvalidMetadataError
UnknownBrokerIdError = _own.InvalidMetadataError

# --- the program's own mistakes -------------------------------------------------------------------
IllegalArgumentError = _own.ConfigurationError
KafkaConfigurationError = _own.ConfigurationError

# --- permission and identity ----------------------------------------------------------------------
AuthenticationFailedError = _own.AuthenticationError
AuthenticationMethodNotSupported = _own.UnsupportedSaslMechanismError
SaslAuthenticationFailedError = _own.SaslAuthenticationError
TopicAuthorizationFailedError = _own.TopicAuthorizationError
GroupAuthorizationFailedError = _own.GroupAuthorizationError
ClusterAuthorizationFailedError = _own.ClusterAuthorizationError
DelegationTokenAuthorizationFailedError = _other.DelegationTokenAuthorizationError
TransactionalIdAuthorizationFailedError = _other.TransactionalIdAuthorizationError

# --- data -----------------------------------------------------------------------------------------
CorruptRecordException = _own.CorruptRecordError
InvalidMessageError = _own.CorruptRecordError
CorrelationIdError = _own.ProtocolError
InvalidReceiveError = _own.ProtocolError
KafkaProtocolError = _own.ProtocolError
MessageSizeTooLargeError = _own.RecordTooLargeError
RecordListTooLargeError = _own.RecordBatchTooLargeError
UnsupportedCodecError = _own.UnsupportedCompressionTypeError

# --- codes that Kafka has renamed -----------------------------------------------------------------
GroupCoordinatorNotAvailableError = _own.CoordinatorNotAvailableError
GroupLoadInProgressError = _own.CoordinatorLoadInProgressError
InvalidConfigurationError = _other.InvalidConfigError
InvalidFetchRequestError = _own.InvalidFetchSizeError
InvalidReplicationAssignmentError = _other.InvalidReplicaAssignmentError
NetworkExceptionError = _own.NetworkError
NotCoordinatorForGroupError = _own.NotCoordinatorError
NotLeaderForPartitionError = _own.NotLeaderOrFollowerError
UnknownError = _own.UnknownServerError
