"""The names of kafka-python's exceptions, as of its versions 2 and 3.

Each is another name of the class that kfast raises in that case, so that a program ported from
kafka-python changes the import and nothing else. Names that both have are not repeated here.
``tests/unit/test_kafka_python_names.py`` lists the ones left out, and why.
"""

from __future__ import annotations

from typing import Final

from kfast.errors import base as _base
from kfast.errors import brokers as _brokers
from kfast.errors import data as _data
from kfast.errors import groups as _groups
from kfast.errors import security as _security

# --- no broker ------------------------------------------------------------------------------------
NoBrokersAvailable = _brokers.KafkaConnectionError
KafkaUnavailableError = _brokers.KafkaConnectionError
NodeNotReadyError = _brokers.KafkaConnectionError
IncompatibleBrokerVersion = _brokers.UnsupportedVersionError
UnrecognizedBrokerVersion = _brokers.UnsupportedVersionError
MetadataEmptyBrokerList = _brokers.InvalidMetadataError
StaleMetadata = _brokers.InvalidMetadataError
UnknownBrokerIdError = _brokers.InvalidMetadataError

# --- the program's own mistakes -------------------------------------------------------------------
IllegalArgumentError = _base.ConfigurationError
KafkaConfigurationError = _base.ConfigurationError

# --- permission and identity ----------------------------------------------------------------------
AuthenticationFailedError = _security.AuthenticationError
AuthenticationMethodNotSupported = _security.UnsupportedSaslMechanismError
SaslAuthenticationFailedError = _security.SaslAuthenticationError
TopicAuthorizationFailedError = _security.TopicAuthorizationError
GroupAuthorizationFailedError = _security.GroupAuthorizationError
ClusterAuthorizationFailedError = _security.ClusterAuthorizationError

# --- data -----------------------------------------------------------------------------------------
CorruptRecordException = _data.CorruptRecordError
InvalidMessageError = _data.CorruptRecordError
CorrelationIdError = _brokers.ProtocolError
InvalidReceiveError = _brokers.ProtocolError
KafkaProtocolError = _brokers.ProtocolError
MessageSizeTooLargeError = _data.RecordTooLargeError
RecordListTooLargeError = _data.RecordBatchTooLargeError
UnsupportedCodecError = _data.UnsupportedCompressionTypeError

# --- codes that Kafka has renamed -----------------------------------------------------------------
GroupCoordinatorNotAvailableError = _groups.CoordinatorNotAvailableError
GroupLoadInProgressError = _groups.CoordinatorLoadInProgressError
InvalidFetchRequestError = _data.InvalidFetchSizeError
NetworkExceptionError = _brokers.NetworkError
NotCoordinatorForGroupError = _groups.NotCoordinatorError
NotLeaderForPartitionError = _brokers.NotLeaderOrFollowerError
UnknownError = _brokers.UnknownServerError

# --- of classes that are made when they are asked for ---------------------------------------------
NAMES_OF_CODES: Final = {
    "DelegationTokenAuthorizationFailedError": "DelegationTokenAuthorizationError",
    "InvalidConfigurationError": "InvalidConfigError",
    "InvalidReplicationAssignmentError": "InvalidReplicaAssignmentError",
    "TransactionalIdAuthorizationFailedError": "TransactionalIdAuthorizationError",
}
