"""The exceptions that a consumer can raise.

Owns the exception tree and the shape of its messages, which the package describes. Never logs or
prints. All classes derive from ``KafkaError`` and pickle.
"""

from __future__ import annotations

from typing import Any, Final

_CORE_FIELDS: Final = ("cause", "found", "hint", "topic", "partition", "offset", "node")


class KafkaError(Exception):
    """Base of all kfast exceptions.

    Parameters
    ----------
    message : str
        What failed; the first line of ``str(error)``.
    cause, found : str or None
        Why it failed, and what was seen; printed as ``cause:`` and ``found:``.
    hint : str or None
        What to do; printed as ``try:``. Some classes have one of their own.
    command_hint : str or None
        What to do on the command line, if that has other words.
    topic, partition, offset : str, int, int or None
        The data concerned.
    node : int, str or None
        The broker concerned: its id or its address.
    **extra : object
        Further attributes that a class documents.

    Attributes
    ----------
    retriable : bool
        Whether the same call may succeed later without any change.
    code : int or None
        Kafka's error code, if a broker sent one or the class stands for one.

    Examples
    --------
    >>> print(kfast.KafkaError("it broke", cause="why", hint="what to do"))
    it broke
    cause: why
    try: what to do
    """

    retriable: bool = False
    code: int | None = None
    hint: str | None = None
    command_hint: str | None = None

    def __init__(
        self,
        message: str = "",
        *,
        cause: str | None = None,
        found: str | None = None,
        hint: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        node: int | str | None = None,
        **extra: object,
    ) -> None:
        self.message = message or type(self).__name__
        super().__init__(self.message)
        self.cause = cause
        self.found = found
        if hint is not None:
            self.hint = hint
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.node = node
        for name, value in extra.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        lines = [self.message]
        lines += [
            f"{label}: {text}"
            for label, text in (("cause", self.cause), ("found", self.found), ("try", self.hint))
            if text
        ]
        return "\n".join(lines).encode(errors="backslashreplace").decode()  # half a surrogate pair

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), dict(self.__dict__))


def _rebuild(cls: type[KafkaError], state: dict[str, object]) -> KafkaError:
    error = cls(str(state["message"]))
    error.__dict__.update(state)
    return error


# --- what may succeed when tried again ------------------------------------------------------------


class RetriableError(KafkaError):
    """The condition is expected to pass; kfast retries these itself inside ``poll``."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """The view of the cluster is out of date: it is refreshed before the retry."""


class CoordinatorError(RetriableError):
    """The group's coordinator must be found again before the retry."""


class KafkaTimeoutError(RetriableError):
    """An operation did not finish in its time; the message names it and what was missing."""


class KafkaConnectionError(RetriableError):
    """A broker cannot be reached, or is not one."""


class DisconnectError(KafkaConnectionError):
    """A connection that worked was lost."""


class RequestTimedOutError(KafkaTimeoutError):
    """The broker gave up on a request."""


class UnknownTopicOrPartitionError(InvalidMetadataError):
    """The topic or partition does not exist, or not yet on the broker asked."""


class LeaderNotAvailableError(InvalidMetadataError):
    """The partition has no leader at the moment."""


class NotLeaderOrFollowerError(InvalidMetadataError):
    """The broker asked neither leads nor follows the partition."""


class ReplicaNotAvailableError(InvalidMetadataError):
    """The replica is not available on the broker asked."""


class NetworkError(InvalidMetadataError):
    """The broker lost a connection of its own while serving the request."""


class KafkaStorageError(InvalidMetadataError):
    """A disk of the broker failed."""


class ListenerNotFoundError(InvalidMetadataError):
    """The leader has no listener of the name the client came in by."""


class FencedLeaderEpochError(InvalidMetadataError):
    """The request carried an older leader epoch than the broker's (KIP-320)."""


class UnknownTopicIdError(InvalidMetadataError):
    """The broker does not know the topic id: the topic is new, gone or created anew."""


class InconsistentTopicIdError(InvalidMetadataError):
    """The topic id does not belong to the topic any more."""


class UnknownLeaderEpochError(RetriableError):
    """The broker has not yet seen the leader epoch of the request (KIP-320)."""


class OffsetNotAvailableError(RetriableError):
    """A new leader does not know its high watermark yet."""


class FetchSessionIdNotFoundError(RetriableError):
    """The broker has dropped the fetch session (KIP-227)."""


class InvalidFetchSessionEpochError(RetriableError):
    """The fetch session is out of step (KIP-227)."""


class FetchSessionTopicIdError(RetriableError):
    """The fetch session mixed topic names and topic ids."""


class CoordinatorLoadInProgressError(RetriableError):
    """The coordinator is still loading the group."""


class CoordinatorNotAvailableError(CoordinatorError):
    """The group has no coordinator at the moment."""


class NotCoordinatorError(CoordinatorError):
    """The broker is not, or no longer, the group's coordinator."""


class UnstableOffsetCommitError(RetriableError):
    """A transaction that holds offsets of this group is still open (KIP-447)."""


class ThrottlingQuotaExceededError(RetriableError):
    """The quota is used up."""


# --- data -----------------------------------------------------------------------------------------


class ProtocolError(KafkaError):
    """Bytes from a broker that are not a well-formed response."""


class CorruptRecordError(KafkaError):
    """A batch failed its checksum or is malformed inside.

    Attributes
    ----------
    offset : int
        The batch's base offset.
    next_offset, following_offset, batch_bytes, bytes_behind : int
        Where to ``seek`` to leave it out, by its own header if nothing was received behind it; base
        offset of the batch behind it, size of this one, bytes received behind. -1: unknown.
    """

    next_offset: int = -1
    following_offset: int = -1
    batch_bytes: int = -1
    bytes_behind: int = -1


class RecordTooLargeError(KafkaError):
    """A batch is larger than the client accepts.

    Attributes
    ----------
    size_needed : int or None
        Bytes the limit would have to be.
    """

    size_needed: int | None = None


class UnsupportedCompressionTypeError(KafkaError):
    """The compression is unknown, or the package that reads it is not installed."""


class DeserializationError(KafkaError):
    """A key or value is not what the deserializer expects.

    Attributes
    ----------
    column : str
        ``"key"`` or ``"value"``.
    key_bytes, value_bytes : bytes or None
        The record as it came.
    code, path, byte_position, schema_id : str, str, int, and int or str or None
        Why it cannot be read, where, and by which schema; see :class:`kfast.records.RecordError`.
    """

    column: str = ""
    code: str = ""  # type: ignore[assignment]  # Kafka has no number for it
    path: str = ""
    byte_position: int = -1
    schema_id: int | str | None = None
    key_bytes: bytes | None = None
    value_bytes: bytes | None = None


class OffsetOutOfRangeError(KafkaError):
    """The log does not hold the position, and no policy says where to go on.

    Attributes
    ----------
    log_start_offset : int or None
        First offset the log still holds.
    """

    hint = 'seek_to_beginning(), or auto_offset_reset="earliest"'
    log_start_offset: int | None = None


class NoOffsetForPartitionError(KafkaError):
    """There is no position to start from and ``auto_offset_reset`` is ``"none"``."""

    hint = 'seek(), or auto_offset_reset="earliest" or "latest"'


class LogTruncationError(KafkaError):
    """The log was cut behind the position by an unclean leader election (KIP-320).

    Attributes
    ----------
    divergent_offset : OffsetAndMetadata or None
        Where the log that was read and the log there is now part, if known.
    """

    divergent_offset: object = None


class InvalidTopicError(KafkaError):
    """The name is not allowed for a topic."""


class UnsupportedForMessageFormatError(KafkaError):
    """The topic's record format is too old for the request."""


# --- permission and identity ----------------------------------------------------------------------


class AuthenticationError(KafkaError):
    """The broker refused this client, or this client the broker: a log-in or a certificate.

    A refusal is final for the call that raises it.

    Attributes
    ----------
    mechanism : str or None
        The SASL mechanism of the log-in.
    user : str or None
        User name, principal of the token, or subject of the client certificate, where known.
    node : int, str or None
        The broker: its id; negative for a bootstrap server.
    is_transient : bool
        Whether the cause may pass without the caller's doing, as a certificate that is being
        renewed: connections are tried again after 1 to 30 s instead of 10 to 300 s.
    """

    mechanism: str | None = None
    user: str | None = None
    is_transient: bool = False


class UnsupportedSaslMechanismError(AuthenticationError):
    """The broker does not offer the SASL mechanism asked for."""


class IllegalSaslStateError(AuthenticationError):
    """The listener has no SASL, or a request came at the wrong point of the log-in."""


class SaslAuthenticationError(AuthenticationError):
    """The broker refused the credentials."""


class SslAuthenticationError(AuthenticationError):
    """The certificate of the broker, or of this client, was not accepted."""


class AuthorizationError(KafkaError):
    """The user is not allowed to do this.

    Attributes
    ----------
    user : str or None
        Who that is, as far as this client knows: the brokers may map it to another name.
    operation : str
        What was denied of a topic: ``read`` or ``describe``.
    """

    user: str | None = None
    operation: str = "read"


class TopicAuthorizationError(AuthorizationError):
    """The user may not read or describe the topic; works again once granted."""

    hint = "grant READ and DESCRIBE on the topic to this user"


class GroupAuthorizationError(AuthorizationError):
    """The user may not use the group; works again once granted."""

    hint = "grant READ on the group to this user"


class ClusterAuthorizationError(AuthorizationError):
    """The user may not do this with the cluster."""


# --- requests and groups --------------------------------------------------------------------------


class UnknownServerError(KafkaError):
    """The broker failed without saying how, or with a code this version does not know."""


class UnsupportedVersionError(KafkaError):
    """Client and broker have no version of an API in common.

    Attributes
    ----------
    api : str or None
        Name of the API.
    client_range, broker_range : tuple of int or None
        Lowest and highest version either side speaks; None when the broker lacks the API.
    """

    api: str | None = None
    client_range: tuple[int, int] | None = None
    broker_range: tuple[int, int] | None = None

    @classmethod
    def for_api(
        cls,
        api: str,
        client_range: tuple[int, int],
        broker_range: tuple[int, int] | None,
        node: int | str,
        *,
        address: str | None = None,
        hint: str | None = None,
    ) -> UnsupportedVersionError:
        """Return the error for an API that one broker does not offer in a usable version.

        The message names the broker by ``address`` if that is known.
        """
        wanted = f"versions {client_range[0]} to {client_range[1]}"
        offered = (
            "the broker does not offer this API"
            if broker_range is None
            else f"the broker offers versions {broker_range[0]} to {broker_range[1]}"
        )
        broker = address or f"broker {node}"
        return cls(
            f"{broker} does not support {api} {wanted}",
            cause=offered,
            hint=hint or "upgrade the broker, or leave out what needs this API",
            node=node,
            api=api,
            client_range=client_range,
            broker_range=broker_range,
        )


class InvalidRequestError(KafkaError):
    """The broker found a request malformed."""


class InconsistentClusterIdError(KafkaError):
    """The broker belongs to another cluster."""


class RebootstrapRequiredError(KafkaError):
    """The cluster asks to be looked up again from ``bootstrap_servers`` (KIP-1102)."""


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


# --- the program's own mistakes -------------------------------------------------------------------


class ConfigurationError(KafkaError, ValueError):
    """A setting is unknown, out of range or at odds with another one."""


class ConfigNotFoundError(ConfigurationError):
    """There is no such file of settings, or no such profile in it."""


class IllegalStateError(KafkaError):
    """The call breaks a rule of use: second thread, closed consumer, forked child, ..."""


class WakeupError(KafkaError):
    """``wakeup()`` was called; the call it interrupted has lost nothing."""


class MissingDependencyError(KafkaError, ImportError):
    """An optional package is needed and not installed; the hint names it."""


class StorageError(KafkaError):
    """A file or folder cannot be written or read."""


class TableError(KafkaError):
    """The log of a table that an ingest writes is damaged."""


class LocalKafkaError(KafkaError):
    """``LocalKafka`` or ``LocalRegistry`` cannot do what was asked: no Java, no files, no start."""


# --- schema registries ----------------------------------------------------------------------------


class SchemaRegistryError(KafkaError):
    """A schema registry gives no answer, or none that can be used.

    Retriable if the cause may pass without the caller's doing: the registry cannot be reached, or
    answers 5xx or 429. ``poll`` raises it with the position unmoved, and the next one tries again.

    Attributes
    ----------
    url : str
        Of the registry, without credentials.
    status : int or None
        That of the HTTP answer, if there is one.
    """

    url: str = ""
    status: int | None = None


class SchemaRegistryAuthenticationError(SchemaRegistryError):
    """The schema registry refuses the credentials (401), or does not permit the request (403)."""


# --- answers that kfast handles itself ------------------------------------------------------------


class InvalidFetchSizeError(KafkaError):
    """The requested fetch size is not valid."""


class RecordBatchTooLargeError(KafkaError):
    """The batch is larger than a log segment."""


class InvalidCommitOffsetSizeError(KafkaError):
    """The offsets to commit are too large to be stored."""


class MemberIdRequiredError(KafkaError):
    """The group coordinator assigned a member id to join with (KIP-394)."""


class InvalidRecordError(KafkaError):
    """The broker refused the record."""
