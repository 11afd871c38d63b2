"""Exceptions of brokers: connections, requests, and which broker has a partition."""

from __future__ import annotations

from kfast.errors.base import KafkaError, KafkaTimeoutError, RetriableError


class KafkaConnectionError(RetriableError):
    """A broker cannot be reached, or is not one."""


class DisconnectError(KafkaConnectionError):
    """A connection that worked was lost."""


class RequestTimedOutError(KafkaTimeoutError):
    """The broker gave up on a request."""


class InvalidMetadataError(RetriableError):
    """The view of the cluster is out of date: it is refreshed before the retry."""


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


class ThrottlingQuotaExceededError(RetriableError):
    """The quota is used up."""


class ProtocolError(KafkaError):
    """Bytes from a broker that are not a well-formed response."""


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
        versions = f"versions {client_range[0]} to {client_range[1]}"
        offered = (
            "the broker does not offer this API"
            if broker_range is None
            else f"the broker offers versions {broker_range[0]} to {broker_range[1]}"
        )
        broker = address or f"broker {node}"
        return cls(
            f"{broker} does not support {api} {versions}",
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
