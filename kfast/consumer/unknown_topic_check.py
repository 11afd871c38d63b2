"""UnknownTopicCheck: whether a partition does not exist, judged by several metadata responses.

Brokers learn of a new topic one after the other, so that one response without it proves nothing.
Owns the count of such responses for one call; reads ``Metadata``, which any thread may, and changes
nothing. A partition does not exist when ``UNKNOWN_RESPONSES`` responses since the call, spread over
``UNKNOWN_MS``, were all without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast.errors import ErrorCode, UnknownTopicOrPartitionError, partition_range

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kfast.client.metadata import Metadata
    from kfast.types import TopicPartition

UNKNOWN_MS: Final = 1_000
UNKNOWN_RESPONSES: Final = 3


def unknown_partition(tp: TopicPartition, numbers: Collection[int]) -> UnknownTopicOrPartitionError:
    """Return the error for a partition that its topic does not have."""
    return UnknownTopicOrPartitionError(
        f"{partition_range(tp.topic, numbers)}: there is no partition {tp.partition}",
        hint="name only partitions that exist",
        topic=tp.topic,
        partition=tp.partition,
    )


def is_unknown(metadata: Metadata, tp: TopicPartition) -> bool:
    """Return whether the last metadata is without this partition; any thread."""
    numbers = metadata.cluster.partitions_for_topic(tp.topic)
    if numbers is None:
        return metadata.topic_errors.get(tp.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return tp.partition not in numbers


def unknown_error(metadata: Metadata, tp: TopicPartition) -> UnknownTopicOrPartitionError:
    """Return the error for a partition that `is_unknown`; any thread."""
    numbers = metadata.cluster.partitions_for_topic(tp.topic)
    if numbers is not None:
        return unknown_partition(tp, numbers)
    return UnknownTopicOrPartitionError(
        f'no topic "{tp.topic}" on this cluster',
        hint="create it first, or check that this user may describe it",
        topic=tp.topic,
    )


class UnknownTopicCheck:
    """The check of one call, which began at ``started_ms``: older metadata does not count.

    ``unknown`` is a partition that the last metadata is without; its owner requests an update.
    """

    __slots__ = ("_metadata", "_responses", "_started_ms", "unknown")

    def __init__(self, metadata: Metadata, started_ms: int) -> None:
        self.unknown: TopicPartition | None = None
        self._metadata = metadata
        self._started_ms = started_ms
        self._responses: list[int] = []

    def check(self, missing: Iterable[TopicPartition]) -> UnknownTopicOrPartitionError | None:
        """Return the error for one of these partitions that does not exist, None so far."""
        unknown = next((tp for tp in missing if is_unknown(self._metadata, tp)), None)
        if unknown != self.unknown:
            self.unknown = unknown
            self._responses.clear()
        response_ms = self._metadata.last_success_ms
        if unknown is None or response_ms is None or response_ms < self._started_ms:
            return None
        if response_ms not in self._responses[-1:]:
            self._responses.append(response_ms)
        if (
            len(self._responses) < UNKNOWN_RESPONSES
            or response_ms - self._responses[0] < UNKNOWN_MS
        ):
            return None
        return unknown_error(self._metadata, unknown)

    def __repr__(self) -> str:
        return f"<UnknownTopicCheck of {self.unknown} in {len(self._responses)} responses>"
