"""Entry: the manifest of one batch, or the first entry of a writer, in a table's log.

Owns the values and their JSON. An entry of the log is either the *beginning* of a writer (a query
of Spark with its checkpoint, or a run of ``kfast ingest``) or the *manifest* of one of its batches.
Each has the totals of all entries before it (``ends``, ``rows``, ``bytes``), so that the last one
is enough to read. Pure: independent of Spark and of storage.

What is read from storage is checked: a foreign or truncated file is an error that names it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from kfast.errors import KafkaError, TableError
from kfast.table.offset_ranges import OffsetRange
from kfast.table.offsets_json import from_json_dict, to_json_dict
from kfast.types import TopicPartition

FORMAT_VERSION: Final = 1

GONE: Final = -1
"""In place of the end of a range: the partition is gone, or not selected any more."""

KFAST_INGEST: Final = "kfast ingest"
"""In place of the checkpoint of a writer that has none: the log is the checkpoint."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file a task wrote, or a range of offsets without a record.

    A range that ends before it begins has no file: the partition begins anew at its end, as its
    topic was deleted and created again; with the end `GONE` there is no such partition any more.
    """

    staged: str
    """Its path in the staging folder, relative to the table; unique per attempt, "" for no file."""
    path: str
    """Its published path, relative to the table; the same for all attempts."""
    topic: str
    partition: int
    from_offset: int
    until_offset: int
    """The range its task read."""
    rows: int = 0
    bytes: int = 0
    min_timestamp_ms: int = -1
    max_timestamp_ms: int = -1
    """-1 without records."""
    lost_offsets: int = 0
    """Offsets of the range that the log had no more. Of several files of a range the first has this
    and the following two."""
    bad_records: int = 0
    """Records whose value is not of the format: null in the file, or left out."""
    skipped_batches: str = ""
    """Record batches left out as corrupt, by base and last offset: ``120-139 200-219``."""
    stats: str = ""
    """Of its columns, as Delta has them in JSON; for Delta tables."""
    folder: str = ""
    """URL of the folder of dead letters that it is in, "" for a file of the table."""
    unknown_fields: int = 0
    """Fields of documents that no column is read from."""
    unknown_paths: str = ""
    """The first ones: ``value.age, value.user.name``."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def begins_anew(self) -> bool:
        """Whether the partition begins anew at the end of this range."""
        return GONE < self.until_offset < self.from_offset

    @property
    def is_gone(self) -> bool:
        """Whether the query has the partition no more."""
        return self.until_offset == GONE

    @property
    def offsets(self) -> OffsetRange:
        """The offsets its task read."""
        return OffsetRange(self.topic, self.partition, self.from_offset, self.until_offset)


@dataclass(frozen=True, slots=True)
class TableShape:
    """Common to the files of a table; a query with another shape is rejected."""

    format: str = "parquet"
    schema: str = ""
    """The columns of the files, in Spark's DDL."""
    partition_by: tuple[str, ...] = ()
    """The columns of the folders, outermost first."""
    catalog_table: str = ""
    """Of an Iceberg table: its catalog and its name there."""

    @property
    def has_catalog(self) -> bool:
        """Whether a catalog has the columns of the table, and lists its files."""
        return self.format in {"delta", "iceberg"}


@dataclass(frozen=True, slots=True)
class Writer:
    """A query of Spark, or one run of ``kfast ingest``, that writes the table."""

    id: str
    """From its checkpoint: the same whenever the query is started. Runs that follow each other have
    the same, so that catalogs keep one number for all of them."""
    checkpoint: str
    """URL, for messages; `KFAST_INGEST` for a run."""
    begin: int
    """Number of its first entry; its batch ``n`` has the number ``begin + 1 + n``. No two runs have
    the same."""

    @property
    def is_run(self) -> bool:
        """Whether it is a run of ``kfast ingest``."""
        return self.checkpoint == KFAST_INGEST

    @property
    def staging(self) -> str:
        """The name of its folder in the staging folder."""
        return f"{self.id}-{self.begin}" if self.is_run else self.id

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
    """Spark's number of the batch; None for the beginning of a writer."""
    files: tuple[DataFile, ...] = ()
    """Of this batch."""
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Next offset of each partition of the table, this entry included."""
    rows: int = 0
    bytes: int = 0
    """Of the whole table, this entry included."""
    restarts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """How often each partition has begun anew: offsets before and after are of different records,
    and names of files say which."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's ids of the topics, as far as the writers knew them."""

    @property
    def batch_rows(self) -> int:
        """Rows of this batch."""
        return sum(file.rows for file in self.written)

    @property
    def batch_bytes(self) -> int:
        """Bytes of this batch."""
        return sum(file.bytes for file in self.written)

    @property
    def batch_dead_letters(self) -> int:
        """Malformed keys and values of this batch that were written to a folder of their own."""
        return sum(file.rows for file in self.files if file.folder)

    @property
    def begun_anew(self) -> list[TopicPartition]:
        """The partitions that begin anew in this batch."""
        return [file.topic_partition for file in self.files if file.begins_anew]

    @property
    def gone(self) -> list[TopicPartition]:
        """The partitions that are gone since the batch before."""
        return [file.topic_partition for file in self.files if file.is_gone]

    @property
    def batch_lost_offsets(self) -> int:
        """Offsets of this batch that the logs had no more."""
        return sum(file.lost_offsets for file in self.files)

    @property
    def batch_bad_records(self) -> int:
        """Records of this batch whose values are not of the format."""
        return sum(file.bad_records for file in self.files)

    @property
    def batch_unknown_fields(self) -> int:
        """Fields of documents of this batch that no column is read from."""
        return sum(file.unknown_fields for file in self.files)

    @property
    def unknown_paths(self) -> tuple[str, ...]:
        """The first ones."""
        texts = (file.unknown_paths for file in self.files if file.unknown_paths)
        return tuple(dict.fromkeys(path for text in texts for path in text.split(", ")))[:8]

    @property
    def staged(self) -> tuple[DataFile, ...]:
        """The files of this batch, dead letters too, without ranges that had no record."""
        return tuple(file for file in self.files if file.staged)

    @property
    def written(self) -> tuple[DataFile, ...]:
        """The files of this batch that are the table's."""
        return tuple(file for file in self.staged if not file.folder)

    def next(
        self,
        batch_id: int,
        files: Iterable[DataFile],
        topic_ids: Mapping[str, str] | None = None,
        shape: TableShape | None = None,
    ) -> Entry:
        """Return the manifest of the next batch; `KafkaError` if the table has its offsets.

        ``shape`` is that of its files, if they have columns that those before have not. A partition
        may begin anew and be read in the same batch.
        """
        listed = tuple(
            sorted(
                files,
                key=lambda file: (
                    file.topic,
                    file.partition,
                    not file.begins_anew,
                    file.from_offset,
                ),
            )
        )
        ends, restarts = dict(self.ends), dict(self.restarts)
        ids, begins = dict(self.topic_ids), dict(self.ends)
        for file in listed:
            tp = file.topic_partition
            end = begins.get(tp, 0)
            if file.is_gone:
                continue
            if file.begins_anew:
                ends[tp] = begins[tp] = file.until_offset
                restarts[tp] = restarts.get(tp, 0) + 1
                ids.pop(tp.topic, None)
                continue
            if file.from_offset < end:
                raise KafkaError(
                    f"the table has offsets of {file.topic_partition} up to {end - 1}, and batch "
                    f"{batch_id} begins at {file.from_offset}",
                    cause="the topic was deleted and created anew, or was left out of the query "
                    "for a while",
                    hint="write to another folder",
                    topic=file.topic,
                    partition=file.partition,
                    offset=file.from_offset,
                )
            ends[tp] = max(ends.get(tp, 0), file.until_offset)
        return Entry(
            self.sequence + 1,
            self.writer,
            shape or self.shape,
            batch_id,
            tuple(_renumbered(file, restarts) for file in listed),
            ends,
            self.rows + sum(file.rows for file in listed if not file.folder),
            self.bytes + sum(file.bytes for file in listed if not file.folder),
            restarts,
            {**ids, **(topic_ids or {})},
        )


def _renumbered(file: DataFile, restarts: Mapping[TopicPartition, int]) -> DataFile:
    """Return a file with a name that no file of an earlier topic of this name has."""
    count = restarts.get(file.topic_partition, 0)
    if not count or not file.path:
        return file
    name, dot, ending = file.path.rpartition(".")
    return replace(file, path=f"{name}-r{count}{dot}{ending}")


def encode_entry(entry: Entry) -> bytes:
    """Return the JSON of an entry, always the same bytes for the same entry."""
    body = {
        "version": FORMAT_VERSION,
        "sequence": entry.sequence,
        "writer": asdict(entry.writer),
        "table": asdict(entry.shape),
        "batch": entry.batch_id,
        "files": [asdict(file) for file in entry.files],
        "ends": to_json_dict(entry.ends),
        "rows": entry.rows,
        "bytes": entry.bytes,
        "restarts": to_json_dict(entry.restarts),
        "topic_ids": dict(sorted(entry.topic_ids.items())),
    }
    return (json.dumps(body, indent=1) + "\n").encode()


def decode_entry(data: bytes, path: str) -> Entry:
    """Return an entry from its JSON; ``path`` is for messages.

    Raises ``TableError`` if it is not an entry, or one of a newer kfast.
    """
    try:
        body: dict[str, Any] = json.loads(data)
        version = int(body["version"])
        if version != FORMAT_VERSION:
            raise TableError(
                f"{path} has version {version} of the log's format",
                found=f"this kfast reads version {FORMAT_VERSION}",
                hint="upgrade kfast",
            )
        return Entry(
            int(body["sequence"]),
            Writer(**body["writer"]),
            TableShape(
                str(body["table"]["format"]),
                str(body["table"]["schema"]),
                tuple(map(str, body["table"]["partition_by"])),
                str(body["table"].get("catalog_table", "")),
            ),
            None if body["batch"] is None else int(body["batch"]),
            tuple(DataFile(**file) for file in body["files"]),
            from_json_dict(body["ends"]),
            int(body["rows"]),
            int(body["bytes"]),
            from_json_dict(body.get("restarts", {})),
            {str(topic): str(each) for topic, each in body.get("topic_ids", {}).items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TableError(
            f"{path} is not an entry of a table's log",
            cause=f"{type(error).__name__}: {error}",
            hint="restore the file: without it the content of the table is unknown",
        ) from error
