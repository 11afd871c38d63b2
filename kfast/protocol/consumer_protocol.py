"""Consumer embedded protocol: subscriptions and assignments of a classic group.

A member's subscription is sent in JoinGroup, the leader's assignment in SyncGroup; the group
coordinator passes both on without reading them. Both start with an i16 version and are never
flexible::

    Subscription  topics [str], user_data bytes?
                  v1 + owned_partitions [topic str, partitions [i32]]   (KIP-429)
                  v2 + generation_id i32                                (KIP-792)
                  v3 + rack_id str?                                     (KIP-881)
    Assignment    assigned_partitions [topic str, partitions [i32]], user_data bytes?

A version above 3 is read as version 3 and bytes after it are ignored; below 0 is an error. The
bytes come from other members with any client: malformed ones raise ``ProtocolError``; negative and
repeated partitions are ignored.

Owns values and their encoding. Stateless; any thread.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, TypeVar

from kfast.errors import ProtocolError
from kfast.protocol.decoders import message_decoder
from kfast.protocol.encoders import message_encoder
from kfast.protocol.schema import BYTES, I32, STR, ArrayOf, wire
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

PROTOCOL_TYPE: Final = "consumer"
"""``protocol_type`` of JoinGroup and SyncGroup."""
MAX_VERSION: Final = 3

_VERSION: Final = struct.Struct(">h")

T = TypeVar("T")


# --- the wire -------------------------------------------------------------------------------------


@dataclass(slots=True)
class WireTopic:
    """Partitions of one topic."""

    topic: str = wire(STR)
    partitions: list[int] = wire(ArrayOf(I32))


@dataclass(slots=True)
class WireSubscription:
    """A subscription, after its version."""

    topics: list[str] = wire(ArrayOf(STR))
    user_data: bytes | None = wire(BYTES, nullable="0+", default=None)
    owned_partitions: list[WireTopic] = wire(ArrayOf(WireTopic), "1+", ignorable=True)
    generation_id: int = wire(I32, "2+", default=-1, ignorable=True)
    rack_id: str | None = wire(STR, "3+", nullable="3+", default=None, ignorable=True)


@dataclass(slots=True)
class WireAssignment:
    """An assignment, after its version."""

    assigned_partitions: list[WireTopic] = wire(ArrayOf(WireTopic))
    user_data: bytes | None = wire(BYTES, nullable="0+", default=None)


# --- values ---------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class ConsumerProtocolSubscription:
    """Subscription and owned partitions of a member, with the assignor's user data."""

    topics: list[str]
    user_data: bytes | None = None
    owned_partitions: list[TopicPartition] = field(default_factory=list)
    generation_id: int = -1
    """Generation in which the owned partitions were assigned; -1 if unknown."""
    rack_id: str | None = None

    def encode(self, version: int = MAX_VERSION) -> bytes:
        """Return the bytes; topics and partitions sorted, fields that the version lacks omitted."""
        wired = WireSubscription(
            sorted(self.topics),
            self.user_data,
            _grouped(self.owned_partitions),
            self.generation_id,
            self.rack_id,
        )
        return _encode(wired, version)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the subscription in JoinGroup metadata.

        Raises
        ------
        ProtocolError
            The bytes are not a well-formed subscription.
        """
        wired = _decode(WireSubscription, data, "subscription")
        return cls(
            list(dict.fromkeys(wired.topics)),
            wired.user_data,
            _flat(wired.owned_partitions),
            wired.generation_id,
            wired.rack_id,
        )


@dataclass(slots=True, frozen=True)
class ConsumerProtocolAssignment:
    """All partitions assigned to a member, with the assignor's user data."""

    partitions: list[TopicPartition]
    user_data: bytes | None = None

    def encode(self, version: int = MAX_VERSION) -> bytes:
        """Return the bytes; partitions sorted."""
        return _encode(WireAssignment(_grouped(self.partitions), self.user_data), version)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the assignment in a SyncGroup response; zero bytes are an empty one.

        Raises
        ------
        ProtocolError
            The bytes are not a well-formed assignment.
        """
        if not data:
            return cls([])
        wired = _decode(WireAssignment, data, "assignment")
        return cls(_flat(wired.assigned_partitions), wired.user_data)


def _grouped(partitions: Iterable[TopicPartition]) -> list[WireTopic]:
    topics: dict[str, WireTopic] = {}
    for topic, partition in sorted(set(partitions)):
        topics.setdefault(topic, WireTopic(topic)).partitions.append(partition)
    return list(topics.values())


def _flat(topics: Iterable[WireTopic]) -> list[TopicPartition]:
    """Return the partitions in wire order, without negative and repeated ones."""
    partitions: dict[TopicPartition, None] = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition >= 0:
                partitions[TopicPartition(topic.topic, partition)] = None
    return list(partitions)


def _encode(wired: object, version: int) -> bytes:
    if not 0 <= version <= MAX_VERSION:
        raise ValueError(f"version must be 0 to {MAX_VERSION}, not {version}")
    out = bytearray(_VERSION.pack(version))
    kind: type = type(wired)
    try:
        message_encoder(kind, version, False)(out, wired)
    except (struct.error, UnicodeEncodeError) as error:
        raise ProtocolError("cannot encode a group member's data", cause=str(error)) from error
    return bytes(out)


def _decode(cls: type[T], data: bytes, message_name: str) -> T:
    values: list[T] = []
    kind: type = cls
    try:
        version: int = _VERSION.unpack_from(data)[0]
        if version < 0:
            raise ProtocolError("malformed message", cause=f"its version is {version}")
        message_decoder(kind, min(version, MAX_VERSION), False).read(data, _VERSION.size, values)
    except ProtocolError as error:
        error.message = f"malformed {message_name} of a group member"
        raise
    except (IndexError, struct.error) as error:
        raise ProtocolError(
            f"malformed {message_name} of a group member",
            cause=f"{len(data)} bytes are not the whole {message_name}",
        ) from error
    except UnicodeDecodeError as error:
        raise ProtocolError(
            f"malformed {message_name} of a group member", cause="a string is not UTF-8"
        ) from error
    return values[0]
