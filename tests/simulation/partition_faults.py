"""Faults in the partitions of an answer: left out, doubled, unasked, or with changed records.

Works on Fetch, ListOffsets and OffsetForLeaderEpoch responses, whose partition lists differ only in
attribute names. Owns no state.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kfast.testing.fault_table import ReplyPlan
from kfast.testing.request_log import LoggedRequest

RecordsEdit = Callable[[bytes], bytes]
"""Changes the record batches of one partition's answer."""

_BATCH_LENGTH: Final = struct.Struct(">i")
_LENGTH_POSITION: Final = 8
_BYTES_BEFORE_LENGTH_COUNTS: Final = 12


def response_topics(message: Any) -> list[Any]:
    """Return the list of topics of a response that has partitions."""
    topics: list[Any] = message.responses if hasattr(message, "responses") else message.topics
    return topics


def topic_name(topic: Any) -> str:
    name: str = topic.topic if hasattr(topic, "topic") else topic.name
    return name


def partition_number(partition: Any) -> int:
    number: int = (
        partition.partition_index if hasattr(partition, "partition_index") else partition.partition
    )
    return number


def _set_partition_number(partition: Any, number: int) -> None:
    name = "partition_index" if hasattr(partition, "partition_index") else "partition"
    setattr(partition, name, number)


def _selected(
    message: Any, topic: str | None, partition: int | None
) -> Iterator[tuple[list[Any], Any]]:
    """Yield (list, element) for every partition answer that is meant."""
    for entry in response_topics(message):
        if topic not in {None, topic_name(entry)}:
            continue
        for answer in list(entry.partitions):
            if partition is None or partition == partition_number(answer):
                yield entry.partitions, answer


@dataclass(frozen=True, slots=True)
class OmitPartition:
    """Leave partitions out of the answer."""

    topic: str | None = None
    partition: int | None = None

    def apply(self, plan: ReplyPlan) -> None:
        plan.message_edits.append(self._edit)

    def _edit(self, message: Any, request: LoggedRequest) -> None:
        for answers, answer in _selected(message, self.topic, self.partition):
            answers.remove(answer)
        topics = response_topics(message)
        topics[:] = [entry for entry in topics if entry.partitions]


@dataclass(frozen=True, slots=True)
class DuplicatePartition:
    """Answer partitions twice."""

    topic: str | None = None
    partition: int | None = None

    def apply(self, plan: ReplyPlan) -> None:
        plan.message_edits.append(self._edit)

    def _edit(self, message: Any, request: LoggedRequest) -> None:
        for answers, answer in list(_selected(message, self.topic, self.partition)):
            answers.append(copy.deepcopy(answer))


@dataclass(frozen=True, slots=True)
class UnaskedPartition:
    """Answer one more partition: a copy of the first answer under another number."""

    partition: int = 999

    def apply(self, plan: ReplyPlan) -> None:
        plan.message_edits.append(self._edit)

    def _edit(self, message: Any, request: LoggedRequest) -> None:
        for entry in response_topics(message)[:1]:
            extra = copy.deepcopy(entry.partitions[0])
            _set_partition_number(extra, self.partition)
            entry.partitions.append(extra)


@dataclass(frozen=True, slots=True)
class UnaskedTopic:
    """Answer the first topic once more, under a name and an id nobody asked for."""

    topic: str = "unasked"
    topic_id: bytes = b"\xee" * 16

    def apply(self, plan: ReplyPlan) -> None:
        plan.message_edits.append(self._edit)

    def _edit(self, message: Any, request: LoggedRequest) -> None:
        topics = response_topics(message)
        for entry in topics[:1]:
            extra = copy.deepcopy(entry)
            setattr(extra, "topic" if hasattr(extra, "topic") else "name", self.topic)
            if hasattr(extra, "topic_id"):
                extra.topic_id = self.topic_id
            topics.append(extra)


@dataclass(frozen=True, slots=True)
class EditRecords:
    """Change the record bytes of Fetch answers that have any."""

    edit: RecordsEdit
    topic: str | None = None
    partition: int | None = None

    def apply(self, plan: ReplyPlan) -> None:
        plan.message_edits.append(self._edit)

    def _edit(self, message: Any, request: LoggedRequest) -> None:
        for _, answer in _selected(message, self.topic, self.partition):
            if answer.records:
                answer.records = self.edit(answer.records)


def batch_positions(records: bytes) -> list[tuple[int, int]]:
    """Return (start, end) of every complete batch."""
    found = []
    start = 0
    while start + _BYTES_BEFORE_LENGTH_COUNTS <= len(records):
        (length,) = _BATCH_LENGTH.unpack_from(records, start + _LENGTH_POSITION)
        end = start + _BYTES_BEFORE_LENGTH_COUNTS + length
        if end > len(records):
            break
        found.append((start, end))
        start = end
    return found


def cut_tail(drop_bytes: int) -> RecordsEdit:
    """Return an edit that cuts the last batch short."""
    return lambda records: records[: max(0, len(records) - drop_bytes)]


def damage_batch(index: int, position: int = -1) -> RecordsEdit:
    """Return an edit that inverts one byte of a batch, so that its CRC fails."""

    def edit(records: bytes) -> bytes:
        start, end = batch_positions(records)[index]
        damaged = bytearray(records)
        damaged[end + position if position < 0 else start + position] ^= 0xFF
        return bytes(damaged)

    return edit


def claim_batch_length(index: int, length: int) -> RecordsEdit:
    """Return an edit that writes a wrong batchLength."""

    def edit(records: bytes) -> bytes:
        start, _ = batch_positions(records)[index]
        changed = bytearray(records)
        _BATCH_LENGTH.pack_into(changed, start + _LENGTH_POSITION, length)
        return bytes(changed)

    return edit
