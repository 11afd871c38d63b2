"""Parts of a batch of an ingest: ranges of offsets with files, partitions restarted or gone.

Owns the values and their JSON form, in which tasks send them to the driver and logs keep them. A
batch is a micro-batch of Spark, or some complete ranges of ``kfast ingest``. Pure.

What is read from storage is checked by `batch_part_of`, which raises ``KeyError``, ``TypeError`` or
``ValueError`` for other JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kfast.table.offset_ranges import OffsetRange
from kfast.types import TopicPartition


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file that a task has written."""

    staged: str
    """Its path in the staging folder, relative to the table; unique per attempt."""
    path: str
    """Its published path, relative to the table."""
    rows: int = 0
    bytes: int = 0
    min_timestamp_ms: int = -1
    max_timestamp_ms: int = -1
    """-1 without records."""
    stats: str = ""
    """Of its columns, as Delta has them in JSON; for Delta tables."""
    partition_values: str = ""
    """Its values of the table's partition fields, in JSON; for Iceberg tables."""
    folder: str = ""
    """URL of the folder of dead letters that it is in, "" for a file of the table."""


@dataclass(frozen=True, slots=True)
class ReadRange:
    """A range of offsets that was read whole, with the files that have its records, if any."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int
    files: tuple[DataFile, ...] = ()
    """Those of the table and those of dead letters."""
    lost_offsets: int = 0
    """Offsets of the range that the log had no more."""
    bad_records: int = 0
    """Records with a key or value that is not of the format: null in the file, or left out."""
    skipped_batches: str = ""
    """Record batches left out as corrupt, by base and last offset: ``120-139 200-219``."""
    unknown_fields: int = 0
    """Fields of documents that no column is read from."""
    unknown_paths: str = ""
    """The first ones: ``value.age, value.user.name``."""
    produced_letters: int = 0
    """Malformed keys and values that were produced to a topic of dead letters."""
    changes: int = 0
    """Rows of a table with keys that the range inserts, updates or deletes; it has no files."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets(self) -> OffsetRange:
        """The offsets as a range."""
        return OffsetRange(self.topic, self.partition, self.from_offset, self.until_offset)

    @property
    def table_files(self) -> tuple[DataFile, ...]:
        """The files that are the table's."""
        return tuple(file for file in self.files if not file.folder)


@dataclass(frozen=True, slots=True)
class PartitionRestart:
    """The partition begins anew at an offset, as its topic was deleted and created again."""

    topic: str
    partition: int
    former_end: int
    from_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class PartitionGone:
    """The partition is gone, or not selected any more."""

    topic: str
    partition: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.topic, self.partition)


BatchPart = ReadRange | PartitionRestart | PartitionGone


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """What a batch adds to its table, and what of its ranges it does not."""

    rows: int = 0
    bytes: int = 0
    files: int = 0
    """Of the table."""
    lost_offsets: int = 0
    bad_records: int = 0
    dead_letters: int = 0
    """Malformed keys and values that were written to a folder or a topic of their own."""
    unknown_fields: int = 0
    """Fields of documents that no column is read from."""


_KINDS: Mapping[str, type[PartitionRestart | PartitionGone]] = {
    "restart": PartitionRestart,
    "gone": PartitionGone,
}


def ranges_in(parts: Iterable[BatchPart]) -> list[ReadRange]:
    """The ranges of a batch."""
    return [batch_part for batch_part in parts if isinstance(batch_part, ReadRange)]


def files_in(parts: Iterable[BatchPart]) -> list[DataFile]:
    """All files of a batch, dead letters too."""
    return [file for batch_range in ranges_in(parts) for file in batch_range.files]


def count_batch(parts: Iterable[BatchPart]) -> BatchCounts:
    """The counts of a batch."""
    ranges = ranges_in(parts)
    files = [file for batch_range in ranges for file in batch_range.table_files]
    return BatchCounts(
        sum(file.rows for file in files) + sum(batch_range.changes for batch_range in ranges),
        sum(file.bytes for file in files),
        len(files),
        sum(batch_range.lost_offsets for batch_range in ranges),
        sum(batch_range.bad_records for batch_range in ranges),
        sum(file.rows for file in files_in(ranges) if file.folder)
        + sum(batch_range.produced_letters for batch_range in ranges),
        sum(batch_range.unknown_fields for batch_range in ranges),
    )


def batch_ends(parts: Iterable[BatchPart]) -> dict[TopicPartition, int | None]:
    """Up to which offset a batch has read each of its partitions; None for those that are gone.

    Spark repeats a batch up to the same offsets, though with other tasks and files.
    """
    ends: dict[TopicPartition, int | None] = {}
    for batch_part in parts:
        tp = batch_part.topic_partition
        if isinstance(batch_part, PartitionGone):
            ends.setdefault(tp, None)
        elif isinstance(batch_part, ReadRange):
            ends[tp] = max(ends.get(tp) or 0, batch_part.until_offset)
    return ends


def batch_part_dict(batch_part: BatchPart, *, with_files: bool = True) -> dict[str, Any]:
    """The JSON form of a part; without its files for logs that list them in their own way."""
    body = asdict(batch_part)
    if isinstance(batch_part, ReadRange):
        if not with_files:
            del body["files"]
        return body
    return {"kind": "restart" if isinstance(batch_part, PartitionRestart) else "gone", **body}


def batch_part_of(body: Mapping[str, Any]) -> BatchPart:
    """A part from its JSON form."""
    if "kind" in body:
        kind = _KINDS[body["kind"]]
        return kind(**{name: value for name, value in body.items() if name != "kind"})
    files = tuple(DataFile(**file) for file in body.get("files", ()))
    return ReadRange(**{**body, "files": files})
