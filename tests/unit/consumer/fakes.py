"""Chunks and decoders whose content a test states, instead of bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from kfast.consumer.fetch.completed_fetch import CompletedFetch
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kfast._native.record_index import RecordIndex
    from kfast.errors import KafkaError

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
T2 = TopicPartition("t", 2)


@dataclass
class FakeChunk:
    """Stands in for a RecordIndex."""

    offsets: list[int]
    next_offset: int
    memory_bytes: int = 10
    leader_epoch: int = -1
    data: object = None

    def __len__(self) -> int:
        return len(self.offsets)


@dataclass
class FakeDecoder:
    """Gives out chunks one by one; an error in the list is raised again and again."""

    chunks: list[FakeChunk | KafkaError]
    during: Callable[[], object] | None = None
    """Called by every decode, while it is under way."""
    allowed: list[int | None] = field(default_factory=list)
    """The most bytes that each decode was allowed."""
    calls: int = 0
    decoding_threads: list[int] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return not self.chunks

    def decode(self, max_bytes: int, most_bytes: int | None = None) -> RecordIndex | None:
        self.calls += 1
        self.allowed.append(most_bytes)
        if self.during is not None:
            self.during()
        head = self.chunks[0]
        if not isinstance(head, FakeChunk):
            raise head
        if most_bytes is not None and head.memory_bytes > most_bytes:
            return None
        self.chunks.pop(0)
        return cast("RecordIndex", head)


@dataclass
class FakeRows:
    """Stands in for PartitionRecords: just offsets."""

    offsets: list[int]
    next_offset: int

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, rows: slice) -> FakeRows:
        offsets = self.offsets[rows]
        reaches_end = rows.stop >= len(self.offsets)
        return FakeRows(offsets, self.next_offset if reaches_end else offsets[-1] + 1)


@dataclass
class FakeBuild:
    """Stands in for a BuildResult."""

    records: FakeRows
    error: KafkaError | None = None
    rest: int | None = None
    column_bytes: int = 0


def build(fetch: CompletedFetch, chunk: RecordIndex) -> FakeBuild:
    """Convert a fake chunk: every row is fine."""
    fake = cast("FakeChunk", chunk)
    return FakeBuild(FakeRows(list(fake.offsets), fake.next_offset))


def chunk(first: int, count: int, *, memory_bytes: int = 10, epoch: int = -1) -> FakeChunk:
    return FakeChunk(list(range(first, first + count)), first + count, memory_bytes, epoch)


def fetch(
    tp: TopicPartition = T0,
    *chunks: FakeChunk | KafkaError,
    version: int = 1,
    raw_bytes: int = 100,
    offset: int = 0,
) -> CompletedFetch:
    """Make a fetch that decodes to these chunks; by default to one of ten rows."""
    parts: Iterable[FakeChunk | KafkaError] = chunks or (chunk(offset, 10),)
    parts = list(parts)
    last = [part.next_offset for part in parts if isinstance(part, FakeChunk)]
    return CompletedFetch(
        tp,
        version=version,
        fetch_offset=offset,
        next_fetch_offset=last[-1] if last else offset,
        raw_bytes=raw_bytes,
        decoder=FakeDecoder(parts),
    )


def failed_fetch(
    tp: TopicPartition, error: KafkaError, *, version: int = 1, raw_bytes: int = 100
) -> CompletedFetch:
    """Make a fetch of which nothing can be read."""
    return CompletedFetch(
        tp,
        version=version,
        fetch_offset=0,
        next_fetch_offset=0,
        raw_bytes=raw_bytes,
        decoder=None,
        error=error,
    )
