"""The committed offsets of one group.

Owns committed offsets and those of open transactions (KIP-447). A topic that was deleted and
created again has another id: its old offsets are gone, as a broker deletes them with the topic.
Changed under the cluster's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kfast.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset.

    Attributes
    ----------
    offset, leader_epoch, metadata : int, int, str
        As they were sent.
    topic_id : bytes
        Id the topic had then.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: bytes = b""


Offsets: TypeAlias = Mapping[TopicPartition, Committed]


class CommittedOffsets:
    """All committed offsets of a group.

    Parameters
    ----------
    topic_id : callable
        Returns the id a topic has now.

    Attributes
    ----------
    history : list of (TopicPartition, Committed)
        Every commit that was accepted, in order.
    """

    def __init__(self, topic_id: Callable[[str], bytes]) -> None:
        self.history: list[tuple[TopicPartition, Committed]] = []
        self._topic_id = topic_id
        self._offsets: dict[TopicPartition, Committed] = {}
        self._pending: dict[int, dict[TopicPartition, Committed]] = {}

    def commit(
        self, partition: TopicPartition, offset: int, leader_epoch: int = -1, metadata: str = ""
    ) -> None:
        """Store an offset."""
        entry = Committed(offset, leader_epoch, metadata, self._topic_id(partition.topic))
        self._offsets[partition] = entry
        self.history.append((partition, entry))

    def get(self, partition: TopicPartition) -> Committed | None:
        """Return the committed offset of a partition of the topic as it is now."""
        entry = self._offsets.get(partition)
        if entry is None or entry.topic_id != self._topic_id(partition.topic):
            return None
        return entry

    def all(self) -> dict[TopicPartition, Committed]:
        """Return all committed offsets."""
        offsets = {partition: self.get(partition) for partition in self._offsets}
        return {partition: entry for partition, entry in offsets.items() if entry is not None}

    def forget(self, partition: TopicPartition) -> None:
        """Drop the committed offset of a partition, as expiry does."""
        self._offsets.pop(partition, None)

    # -- transactions ----------------------------------------------------------------------

    def add_pending(
        self, producer_id: int, partition: TopicPartition, offset: int, leader_epoch: int = -1
    ) -> None:
        """Let an open transaction hold an offset."""
        entry = Committed(offset, leader_epoch, "", self._topic_id(partition.topic))
        self._pending.setdefault(producer_id, {})[partition] = entry

    def finish_pending(self, producer_id: int, *, committed: bool) -> None:
        """End the transaction of a producer: its offsets become real or vanish."""
        for partition, entry in self._pending.pop(producer_id, {}).items():
            if committed:
                self._offsets[partition] = entry
                self.history.append((partition, entry))

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Return whether an open transaction holds an offset of a partition."""
        return any(partition in offsets for offsets in self._pending.values())

    def __repr__(self) -> str:
        return f"<CommittedOffsets {len(self._offsets)} partitions {len(self._pending)} pending>"
