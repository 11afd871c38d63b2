"""Value types of kfast's public signatures.

Owns values only: comparison, printing and the text form of a topic id. The tuples have the fields,
order and defaults of kafka-python's, so that programs that build or unpack them work unchanged.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

ZERO_UUID: Final = bytes(16)
"""The topic id that means "no id" in the protocol."""


class TopicPartition(NamedTuple):
    """One partition of one topic.

    Parameters
    ----------
    topic : str
        Name of the topic.
    partition : int
        Number of the partition, from 0.

    Examples
    --------
    >>> str(kfast.TopicPartition("orders", 0))
    'orders-0'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """An offset to seek to or to commit: the next one to read, not the last one read.

    Parameters
    ----------
    offset : int
        The next offset to read.
    metadata : str
        Free text stored with a commit.
    leader_epoch : int
        Epoch of the leader the last record came from, -1 when unknown (KIP-320).

    Examples
    --------
    >>> kfast.OffsetAndMetadata(42, "by the night run")
    OffsetAndMetadata(offset=42, metadata='by the night run', leader_epoch=-1)
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetOfTopic(OffsetAndMetadata):
    """An `OffsetAndMetadata` that knows under which topic id it was read.

    It compares, unpacks and prints as one. Offsets mean nothing in a topic of the same name that
    was created later, so they are not committed to it.
    """

    topic_id: bytes | None = None
    """None: unknown (Kafka before 2.8)."""

    @classmethod
    def of(
        cls, offset: int, metadata: str, leader_epoch: int, topic_id: bytes | None
    ) -> OffsetOfTopic:
        """Return an offset of the topic with this id."""
        offset_and_metadata = cls(offset, metadata, leader_epoch)
        offset_and_metadata.topic_id = topic_id
        return offset_and_metadata

    def _replace(self, **changes: Any) -> OffsetOfTopic:
        return OffsetOfTopic.of(*super()._replace(**changes), self.topic_id)

    def __repr__(self) -> str:
        return repr(OffsetAndMetadata(*self))


def topic_id_of(at: object) -> bytes | None:
    """Return the topic id under which an offset was read, None if unknown."""
    return at.topic_id if isinstance(at, OffsetOfTopic) else None


class OffsetAndTimestamp(NamedTuple):
    """Result of a look-up by timestamp.

    Parameters
    ----------
    offset : int
        First offset whose timestamp is at or after the requested one.
    timestamp : int
        Timestamp of that record, milliseconds since 1970.
    leader_epoch : int or None
        Epoch of the leader that wrote it; None when unknown.

    Examples
    --------
    >>> first = kfast.TopicPartition("orders", 0)
    >>> with kfast.KafkaConsumer(bootstrap_servers="localhost:9092") as consumer:
    ...     consumer.offsets_for_times({first: 1_700_000_000_000})[first].offset
    0
    """

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(slots=True, frozen=True)
class ConsumerGroupMetadata:
    """A consumer's group membership, for a transactional producer (KIP-447).

    Parameters
    ----------
    group_id : str
        Id of the group.
    generation_id : int
        Generation (classic protocol) or member epoch (KIP-848); -1 when not a member.
    member_id : str
        The id assigned by the group coordinator; empty when not a member.
    group_instance_id : str or None
        Id of a static member (KIP-345).
    topic_ids : Mapping of str to bytes
        Ids of the assigned topics, as far as they are known. Not compared.

    Examples
    --------
    >>> kfast.ConsumerGroupMetadata("billing").member_id
    ''
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topic_ids: Mapping[str, bytes] = field(default_factory=dict, repr=False, compare=False)


@dataclass(slots=True, frozen=True)
class SubscriptionPattern:
    """A pattern that the brokers match topics against, with ``group_protocol="consumer"``.

    Unlike a Python pattern it needs no list of all topics on the client, and new topics are
    assigned as soon as the group coordinator finds them (KIP-848).

    Parameters
    ----------
    pattern : str
        A regular expression in RE2 syntax; the whole name of a topic must match it.

    Raises
    ------
    ValueError
        The pattern is empty.

    Examples
    --------
    >>> consumer = kfast.KafkaConsumer(
    ...     bootstrap_servers="localhost:9092", group_id="billing", group_protocol="consumer"
    ... )
    >>> consumer.subscribe(pattern=kfast.SubscriptionPattern("orders-.*"))
    """

    pattern: str

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str) or not self.pattern:
            raise ValueError(f"a pattern in RE2 syntax is a non-empty str, got {self.pattern!r}")

    def __str__(self) -> str:
        return self.pattern


@dataclass(slots=True, frozen=True, repr=False)
class OAuthToken:
    """A bearer token for OAUTHBEARER, as a token provider returns it; its ``repr`` shows no token.

    Parameters
    ----------
    value : str
        The token.
    expires_at_ms : int or None
        When it expires, in milliseconds since 1970-01-01 UTC. None: as its ``exp`` claim says if it
        is a JWT, else unknown, and then the provider is asked for each log-in.
    principal : str or None
        Who it is for, in messages. None: its ``sub`` claim.
    extensions : Mapping of str to str
        Sent along with it (KIP-342).

    Examples
    --------
    >>> kfast.OAuthToken("eyJhbGciOi...", expires_at_ms=1_769_860_800_000)
    OAuthToken(expires_at_ms=1769860800000)
    """

    value: str
    expires_at_ms: int | None = None
    principal: str | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"OAuthToken(expires_at_ms={self.expires_at_ms})"


def format_uuid(uuid: bytes) -> str:
    """Return a 16-byte id as Kafka's tools print it: 22 characters of URL-safe base64."""
    if len(uuid) != 16:
        raise ValueError(f"a topic id has 16 bytes, got {len(uuid)}")
    text = binascii.b2a_base64(uuid, newline=False).rstrip(b"=")
    return text.translate(bytes.maketrans(b"+/", b"-_")).decode("ascii")
