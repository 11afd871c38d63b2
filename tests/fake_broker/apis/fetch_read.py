"""Reading partitions for a Fetch: errors, redirects, divergence, limits, aborted transactions.

Owns the rules for one partition and the byte budget across them: until one partition has given
data, at least one whole batch is returned however large (KIP-74); after that each gets at most what
is left. A node that follows serves what it has, up to the high watermark it knows (KIP-392).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kfast.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    LeaderIdAndEpoch,
    PartitionData,
)
from kfast.types import ZERO_UUID
from tests.fake_broker.context import (
    FENCED_LEADER_EPOCH,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_TOPIC_OR_PARTITION,
    RequestContext,
)
from tests.fake_broker.fetch_sessions import FetchWish, PartitionKey
from tests.fake_broker.topology import FakePartition

OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_ID: Final = 100
FIRST_VERSION_WITH_RACK: Final = 11
FIRST_VERSION_WITH_HINTS: Final = 16
HINTED_ERRORS: Final = frozenset({NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH})
NONE: Final = -1


@dataclass(frozen=True, slots=True)
class FetchRead:
    """What holds for all partitions of one request."""

    context: RequestContext
    read_committed: bool
    max_bytes: int
    rack_id: str


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """One partition's part of the answer.

    Attributes
    ----------
    available_bytes : int
        What counts towards ``min_bytes``.
    """

    key: PartitionKey
    topic: str
    topic_id: bytes
    data: PartitionData
    available_bytes: int = 0

    @property
    def ends_wait(self) -> bool:
        """Return whether the answer must go out although too few bytes are there."""
        data = self.data
        return bool(
            data.error_code or data.preferred_read_replica >= 0 or data.diverging_epoch.epoch >= 0
        )


def read_partitions(read: FetchRead, wishes: dict[PartitionKey, FetchWish]) -> list[PartitionRead]:
    """Read all partitions in order under the byte limit."""
    found = []
    bytes_left = read.max_bytes
    at_least_one = True
    for key, wish in wishes.items():
        partition = _read_partition(read, key, wish, bytes_left, at_least_one)
        size = len(partition.data.records or b"")
        bytes_left = max(0, bytes_left - size)
        at_least_one = at_least_one and size == 0
        found.append(partition)
    return found


def _read_partition(
    read: FetchRead, key: PartitionKey, wish: FetchWish, bytes_left: int, at_least_one: bool
) -> PartitionRead:
    context = read.context
    topic, topic_id, number = key
    if topic_id != ZERO_UUID:
        topic = context.cluster.topic_name(topic_id)
        if not topic:
            error = context.plan.error_for("", number) or UNKNOWN_TOPIC_ID
            return PartitionRead(key, topic, topic_id, _error(number, error))
    else:
        topic_id = context.cluster.topic_id(topic)
    error, partition = context.find_partition(
        topic,
        number,
        wish.current_leader_epoch,
        allows_follower=context.version >= FIRST_VERSION_WITH_RACK,
    )
    if error or partition is None:
        data = _error(number, error or UNKNOWN_TOPIC_OR_PARTITION)
        if partition is not None:
            _add_hint(context, data, partition)
        return PartitionRead(key, topic, topic_id, data)

    data = _healthy(context, partition)
    log_start, log_end = partition.offsets(context.node_id)
    preferred = context.cluster.preferred_replica(
        partition, context.node_id, read.rack_id, wish.fetch_offset
    )
    if preferred >= 0:
        data.preferred_read_replica = preferred
    elif wish.last_fetched_epoch >= 0 and (diverging := _divergence(partition, wish)):
        data.diverging_epoch = diverging
    elif not log_start <= wish.fetch_offset <= log_end:
        data = _error(number, OFFSET_OUT_OF_RANGE)
    else:
        available = _read_records(
            read, partition, wish, data, min(bytes_left, wish.max_bytes), at_least_one
        )
        return PartitionRead(key, topic, topic_id, data, available)
    return PartitionRead(key, topic, topic_id, data)


def _read_records(
    read: FetchRead,
    partition: FakePartition,
    wish: FetchWish,
    data: PartitionData,
    max_bytes: int,
    at_least_one: bool,
) -> int:
    """Fill in records and aborted transactions; return the bytes that count as available."""
    limit = data.last_stable_offset if read.read_committed else data.high_watermark
    log = partition.log
    found = log.read(wish.fetch_offset, max_bytes, limit, at_least_one=at_least_one)
    data.records = found.data
    if read.read_committed:
        data.aborted_transactions = [
            AbortedTransaction(entry.producer_id, entry.first_offset)
            for entry in log.aborted_between(wish.fetch_offset, found.next_offset)
        ]
    return log.readable_bytes(wish.fetch_offset, wish.max_bytes, limit)


def _healthy(context: RequestContext, partition: FakePartition) -> PartitionData:
    return PartitionData(
        partition.partition,
        0,
        partition.high_watermark(context.node_id),
        partition.last_stable_offset(context.node_id),
        partition.offsets(context.node_id)[0],
        records=b"",
        aborted_transactions=None,
    )


def _error(number: int, error: int) -> PartitionData:
    return PartitionData(number, error, NONE, NONE, NONE, records=b"", aborted_transactions=None)


def _add_hint(context: RequestContext, data: PartitionData, partition: FakePartition) -> None:
    """Name the leader with errors 6 and 74, if the cluster sends such hints (KIP-951)."""
    if (
        data.error_code in HINTED_ERRORS
        and context.version >= FIRST_VERSION_WITH_HINTS
        and context.cluster.has_leader_hints
        and partition.leader >= 0
    ):
        data.current_leader = LeaderIdAndEpoch(partition.leader, partition.leader_epoch)


def _divergence(partition: FakePartition, wish: FetchWish) -> EpochEndOffset | None:
    """Return where the fetcher's log parts from this one (KIP-595), None if it does not."""
    end = partition.log.end_of_epoch(wish.last_fetched_epoch)
    if end.leader_epoch < wish.last_fetched_epoch or end.end_offset < wish.fetch_offset:
        return EpochEndOffset(end.leader_epoch, end.end_offset)
    return None
