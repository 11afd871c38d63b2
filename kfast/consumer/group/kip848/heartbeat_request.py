"""ConsumerHeartbeatRequest: fields of the ConsumerGroupHeartbeat requests of a member.

Owns the fields sent last; it has no state of the member and no time. Null (for the timeout -1)
means "unchanged". Network thread only.

| field | sent |
|---|---|
| group, member id, epoch, instance id | always |
| rack, rebalance timeout, assignor | in a full request |
| names, pattern | in a full request, and when they changed |
| owned partitions | in a full request, when they changed, and to acknowledge; empty when joining |

A full request is sent when joining, and after every error or timeout, since a request whose
response was lost may have been applied or not. A pattern is removed by an empty string, which is
sent as long as the coordinator may have a pattern: from this member, or from an earlier consumer
under the same instance id, whose subscription a static member inherits.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from kfast.protocol.messages.consumer_group_heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    TEMPORARY_LEAVE_EPOCH,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kfast.types import format_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfast.config import ConsumerConfig
    from kfast.consumer.group.kip848.reconciliation import TopicIdPartition
    from kfast.consumer.group.membership import CloseOperation

FIRST_VERSION_WITH_REGEX: Final = 1


def new_member_id() -> str:
    """Return an id for a member's whole life, in the text form of Kafka's ids (KIP-1082)."""
    while True:
        text = format_uuid(uuid.uuid4().bytes)
        if not text.startswith("-"):  # on a command line it would be taken for an option
            return text


class MemberFields(NamedTuple):
    """Fields that may change; ``topic_names`` is empty with a pattern that the brokers match."""

    topic_names: frozenset[str]
    topic_regex: str | None
    owned: frozenset[TopicIdPartition]


class ConsumerHeartbeatRequest:
    """Builds the requests of one member."""

    __slots__ = (
        "_assignor",
        "_group_id",
        "_instance_id",
        "_may_have_regex",
        "_rack_id",
        "_rebalance_timeout_ms",
        "_sent",
    )

    def __init__(self, config: ConsumerConfig) -> None:
        self._group_id = config.group_id or ""
        self._instance_id = config.group_instance_id
        self._rack_id = config.client_rack or None
        self._rebalance_timeout_ms = config.max_poll_interval_ms
        self._assignor = config.group_remote_assignor or None
        self._sent: MemberFields | None = None
        self._may_have_regex = config.group_instance_id is not None

    def reset(self) -> None:
        """Make the next request a full one: the coordinator may lack the fields sent."""
        self._sent = None

    def has_changes(self, fields: MemberFields) -> bool:
        """Return whether the fields differ from those sent last."""
        return self._sent != fields

    def build(
        self,
        member_id: str,
        epoch: int,
        fields: MemberFields,
        *,
        version: int,
        acknowledges: bool = False,
    ) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat to send now, and keep its fields; epoch 0 joins.

        ``acknowledges`` includes the owned partitions even if they are unchanged.
        """
        sent = None if epoch == JOIN_EPOCH else self._sent
        self._sent = fields
        request = self._bare(member_id, epoch)
        if sent is None:
            request.rack_id = self._rack_id
            request.rebalance_timeout_ms = self._rebalance_timeout_ms
            request.server_assignor = self._assignor
        if sent is None or sent.topic_names != fields.topic_names:
            request.subscribed_topic_names = sorted(fields.topic_names)
        if sent is None or sent.topic_regex != fields.topic_regex:
            self._may_have_regex = self._may_have_regex or fields.topic_regex is not None
            if self._may_have_regex and version >= FIRST_VERSION_WITH_REGEX:
                request.subscribed_topic_regex = fields.topic_regex or ""
        if acknowledges or sent is None or sent.owned != fields.owned:
            owned = () if epoch == JOIN_EPOCH else fields.owned
            request.topic_partitions = by_topic(owned)
        return request

    def keep_alive(self, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
        """Return a heartbeat that changes nothing."""
        return self._bare(member_id, epoch)

    def leave(self, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat that leaves with this epoch."""
        self._sent = None
        return self._bare(member_id, epoch)

    def leave_epoch(self, operation: CloseOperation) -> int | None:
        """Return the epoch to leave with, None for staying until the session ends (KIP-1092).

        A static member sends the temporary epoch even if it is to remain: its next consumer has
        another member id, and would be refused until the session of this one ends.
        """
        if operation == "leave_group":
            return LEAVE_EPOCH
        if self._instance_id is not None:
            return TEMPORARY_LEAVE_EPOCH
        return None if operation == "remain_in_group" else LEAVE_EPOCH

    def _bare(self, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._instance_id,
        )

    def __repr__(self) -> str:
        return f"<ConsumerHeartbeatRequest sent={self._sent}>"


def by_topic(partitions: Iterable[TopicIdPartition]) -> list[TopicPartitions]:
    """Return partitions as in the message, in a fixed order."""
    numbers_by_id: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        numbers_by_id.setdefault(topic_id, []).append(partition)
    return [TopicPartitions(topic_id, numbers) for topic_id, numbers in numbers_by_id.items()]
