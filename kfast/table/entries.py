"""Entry: what the log of a table says of one batch, or of the beginning of a writer.

Owns the values and their JSON. An entry is either the *beginning* of a writer (a query of Spark
with its checkpoint, or a run of ``kfast ingest``) or one of its batches. Each has the totals of all
entries before it (``ends``, ``rows``, ``bytes``), so that the last one is enough to read. Where it
is kept is the business of each `TableLog`. Pure: independent of Spark and of storage.

What is read from storage is checked: a foreign or truncated entry is an error that names it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from kfast.errors import KafkaError, TableError
from kfast.table.batches import (
    BatchCounts,
    BatchPart,
    DataFile,
    PartitionGone,
    PartitionRestart,
    ReadRange,
    batch_part_dict,
    batch_part_of,
    count_batch,
    files_in,
    ranges_in,
)
from kfast.table.offsets_json import from_json_dict, to_json_dict
from kfast.table.projection import Projection
from kfast.types import TopicPartition

FORMAT_VERSION: Final = 2

CATALOG_FORMATS: Final = ("delta", "iceberg")
"""Formats of tables whose own catalog has the columns, and lists the files."""

_MOST_PATHS: Final = 8

KFAST_INGEST: Final = "kfast ingest"
"""In place of the checkpoint of a writer that has none: the log is the checkpoint."""


@dataclass(frozen=True, slots=True)
class TableShape:
    """Common to the files of a table; a query with another shape is rejected."""

    format: str = "parquet"
    schema: str = ""
    """The columns of the files, in Spark's DDL; "" where the log does not say."""
    partition_by: tuple[str, ...] = ()
    """The columns of the folders, outermost first."""
    catalog_table: str = ""
    """Of an Iceberg table: its catalog and its name there."""
    keys: tuple[str, ...] = ()
    """The columns by which rows are upserted; none where records are appended."""

    @property
    def has_catalog(self) -> bool:
        """Whether a catalog has the columns of the table, and lists its files."""
        return self.format in CATALOG_FORMATS

    def in_files(self, projection: Projection) -> Projection:
        """The columns of the files: folders have theirs in their names, but for Iceberg."""
        if self.format == "iceberg":
            return projection
        return projection.without(self.partition_by)


@dataclass(frozen=True, slots=True)
class Writer:
    """A query of Spark, or one run of ``kfast ingest``, that writes the table."""

    id: str
    """From its checkpoint: the same whenever the query is started. Every run has one of its own."""
    checkpoint: str
    """URL, for messages; `KFAST_INGEST` for a run."""
    begin: int
    """Number of its first entry. In a log of manifests its batch ``n`` has the number
    ``begin + 1 + n``."""

    @property
    def is_run(self) -> bool:
        """Whether it is a run of ``kfast ingest``."""
        return self.checkpoint == KFAST_INGEST

    def sequence(self, batch_id: int) -> int:
        """Return the number of the entry of a batch."""
        return self.begin + 1 + batch_id

    def __str__(self) -> str:
        return KFAST_INGEST if self.is_run else f"Spark with the checkpoint {self.checkpoint}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a table's log."""

    sequence: int
    """Its number; there are no gaps."""
    writer: Writer
    shape: TableShape
    batch_id: int | None = None
    """The writer's number of the batch; None for the beginning of a writer."""
    parts: tuple[BatchPart, ...] = ()
    """What the batch consists of."""
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Next offset of each partition of the table, this entry included."""
    rows: int = 0
    bytes: int = 0
    """Written to the whole table, this entry included."""
    restarts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """How often each partition has begun anew: offsets before and after are of different records,
    and names of files say which."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's ids of the topics, as far as the writers knew them."""
    counts: BatchCounts = field(default_factory=BatchCounts)
    """Of this batch."""
    id: str = ""
    """Unique per attempt to publish."""

    @property
    def ranges(self) -> list[ReadRange]:
        """The ranges of offsets of this batch."""
        return ranges_in(self.parts)

    @property
    def files(self) -> list[DataFile]:
        """The files of this batch, dead letters too."""
        return files_in(self.parts)

    @property
    def table_files(self) -> list[DataFile]:
        """The files of this batch that are the table's."""
        return [file for file in self.files if not file.folder]

    @property
    def restarted(self) -> list[TopicPartition]:
        """The partitions that begin anew in this batch."""
        return [
            batch_part.topic_partition
            for batch_part in self.parts
            if isinstance(batch_part, PartitionRestart)
        ]

    @property
    def gone(self) -> list[TopicPartition]:
        """The partitions that are gone since the batch before."""
        return [
            batch_part.topic_partition
            for batch_part in self.parts
            if isinstance(batch_part, PartitionGone)
        ]

    @property
    def unknown_paths(self) -> tuple[str, ...]:
        """The first fields of documents of this batch that no column is read from."""
        paths = (
            path
            for batch_part in self.ranges
            for path in batch_part.unknown_paths.split(", ")
            if path
        )
        return tuple(dict.fromkeys(paths))[:_MOST_PATHS]

    def beginning(self, writer: Writer, shape: TableShape) -> Entry:
        """The entry with which another writer begins after this one."""
        return replace(
            self,
            sequence=self.sequence + 1,
            writer=writer,
            shape=shape,
            batch_id=None,
            parts=(),
            counts=BatchCounts(),
            id=uuid.uuid4().hex,
        )

    def next(
        self,
        batch_id: int,
        parts: Iterable[BatchPart],
        topic_ids: Mapping[str, str] | None = None,
        shape: TableShape | None = None,
        writer: Writer | None = None,
    ) -> Entry:
        """The entry of the next batch; `KafkaError` if the table has its offsets.

        ``shape`` is that of its files, if they have columns that those before have not, ``writer``
        the one that goes on without an entry of its own. A partition may begin anew and be read in
        the same batch.
        """
        ordered = tuple(sorted(parts, key=_order))
        ends, restarts = dict(self.ends), dict(self.restarts)
        ids, begins = dict(self.topic_ids), dict(self.ends)
        for batch_part in ordered:
            tp = batch_part.topic_partition
            if isinstance(batch_part, PartitionGone):
                continue
            if isinstance(batch_part, PartitionRestart):
                ends[tp] = begins[tp] = batch_part.from_offset
                restarts[tp] = restarts.get(tp, 0) + 1
                ids.pop(tp.topic, None)
                continue
            if batch_part.from_offset < begins.get(tp, 0):
                raise KafkaError(
                    f"the table has offsets of {tp} up to {begins[tp] - 1}, and batch {batch_id} "
                    f"begins at {batch_part.from_offset}",
                    cause="the topic was deleted and created anew, was left out of the query for "
                    "a while, or another ingest wrote it",
                    hint="write to another folder",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=batch_part.from_offset,
                )
            ends[tp] = max(ends.get(tp, 0), batch_part.until_offset)
        counts = count_batch(ordered)
        return Entry(
            self.sequence + 1,
            writer or self.writer,
            shape or self.shape,
            batch_id,
            tuple(_renamed(batch_part, restarts) for batch_part in ordered),
            ends,
            self.rows + counts.rows,
            self.bytes + counts.bytes,
            restarts,
            {**ids, **(topic_ids or {})},
            counts,
            uuid.uuid4().hex,
        )


def first_entry(writer: Writer, shape: TableShape) -> Entry:
    """The entry with which the first writer of a table begins."""
    return Entry(0, writer, shape, id=uuid.uuid4().hex)


def _order(batch_part: BatchPart) -> tuple[str, int, bool, int]:
    begin = batch_part.from_offset if isinstance(batch_part, ReadRange) else 0
    return (*batch_part.topic_partition, not isinstance(batch_part, PartitionRestart), begin)


def _renamed(batch_part: BatchPart, restarts: Mapping[TopicPartition, int]) -> BatchPart:
    """Give files names that no file of an earlier topic of this name has."""
    count = restarts.get(batch_part.topic_partition, 0)
    if not count or not isinstance(batch_part, ReadRange):
        return batch_part
    files = []
    for file in batch_part.files:
        name, dot, ending = file.path.rpartition(".")
        files.append(replace(file, path=f"{name}-r{count}{dot}{ending}"))
    return replace(batch_part, files=tuple(files))


def encode_entry(entry: Entry, *, with_files: bool = True) -> bytes:
    """The JSON of an entry, always the same bytes for the same entry.

    Without its files for logs that list them in their own way, and then in one line.
    """
    body = {
        "version": FORMAT_VERSION,
        "id": entry.id,
        "sequence": entry.sequence,
        "writer": asdict(entry.writer),
        "table": asdict(entry.shape),
        "batch": entry.batch_id,
        "parts": [batch_part_dict(batch_part, with_files=with_files) for batch_part in entry.parts],
        "ends": to_json_dict(entry.ends),
        "rows": entry.rows,
        "bytes": entry.bytes,
        "restarts": to_json_dict(entry.restarts),
        "topic_ids": dict(sorted(entry.topic_ids.items())),
        "counts": asdict(entry.counts),
    }
    if not with_files:
        return json.dumps(body, separators=(",", ":")).encode()
    return (json.dumps(body, indent=1) + "\n").encode()


def decode_entry(data: bytes | str, path: str) -> Entry:
    """An entry from its JSON; ``path`` is for messages.

    Raises ``TableError`` if it is not an entry, or one of another version of kfast.
    """
    try:
        body: dict[str, Any] = json.loads(data)
        version = int(body["version"])
        if version != FORMAT_VERSION:
            is_newer = version > FORMAT_VERSION
            raise TableError(
                f"{path} has version {version} of the log's format",
                found=f"this kfast reads version {FORMAT_VERSION}",
                hint="upgrade kfast"
                if is_newer
                else "write to another folder: an earlier kfast wrote this one",
            )
        return Entry(
            int(body["sequence"]),
            Writer(**body["writer"]),
            TableShape(
                str(body["table"]["format"]),
                str(body["table"]["schema"]),
                tuple(map(str, body["table"]["partition_by"])),
                str(body["table"]["catalog_table"]),
                tuple(map(str, body["table"].get("keys", ()))),
            ),
            None if body["batch"] is None else int(body["batch"]),
            tuple(batch_part_of(batch_part) for batch_part in body["parts"]),
            from_json_dict(body["ends"]),
            int(body["rows"]),
            int(body["bytes"]),
            from_json_dict(body["restarts"]),
            {str(topic): str(topic_id) for topic, topic_id in body["topic_ids"].items()},
            BatchCounts(**body["counts"]),
            str(body["id"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TableError(
            f"{path} is not an entry of a table's log",
            cause=f"{type(error).__name__}: {error}",
            hint="restore it: without it the content of the table is unknown",
        ) from error
